//! The last good state on disk: what Envoy accepted, and the workload's certificate.
//!
//! While the control plane is away, a restarted Envoy, or a restarted agent with a new Envoy, is served from it. A type of
//! resources is a log ([`log`]): what Envoy acknowledges is appended, what is replaced becomes garbage and is left out when
//! the log is written anew. Nothing of it is kept in memory. The certificate is a file of its own ([`identity`]).
//!
//! Invariants: files are readable by this user alone; every record has a checksum, and a log is used up to the first one
//! that does not fit; a log belongs to one proxy of one control plane and is discarded by any other; no error here ever
//! reaches Envoy or the control plane, because a full disk is no reason to stop traffic.

mod log;
mod record;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use canopus_runtime::metrics::{Gauge, Registry, catalogue};
use parking_lot::Mutex;
use tracing::{info, warn};
use xxhash_rust::xxh3::xxh3_64;

use self::log::{AppendError, TypeLog};
pub use self::log::{Catalogue, StoredResource, inspect as inspect_log};
pub use self::record::Change;

/// Where state is kept, and for whom.
#[derive(Clone, Debug)]
pub struct LastGoodSettings {
    /// `CANOPUS_STATE_DIRECTORY`.
    pub directory: PathBuf,
    /// `CANOPUS_STATE_MAX_BYTES`.
    pub max_bytes: u64,
    /// Identifies the state's owner: the proxy and its control plane.
    pub owner: String,
}

/// The logs of all types.
pub struct LastGood {
    directory: PathBuf,
    max_bytes: u64,
    owner: u64,
    logs: Mutex<BTreeMap<String, Option<TypeLog>>>,
    size: Gauge,
}

impl LastGood {
    /// State in a directory, which is made if need be.
    pub fn open(settings: &LastGoodSettings, registry: &Registry) -> io::Result<Self> {
        let directory = settings.directory.join("xds");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let size = registry.value(catalogue::LAST_GOOD_BYTES);
        let owner = xxh3_64(settings.owner.as_bytes());
        Ok(Self { directory, max_bytes: settings.max_bytes, owner, logs: Mutex::default(), size })
    }

    /// Writes down changes of a type that Envoy has acknowledged. What the disk does not take is tried again with the next
    /// changes; a type that is larger than the limit is not kept any more.
    pub fn append(&self, type_url: &str, changes: &[Change<'_>]) {
        let mut logs = self.logs.lock();
        let others: u64 =
            logs.iter().filter(|(known, _)| *known != type_url).map(|(_, log)| length(log)).sum();
        let room = self.max_bytes.saturating_sub(others);
        let log = logs.entry(type_url.to_owned()).or_insert_with(|| self.log(type_url));
        let Some(open) = log else { return };
        match open.append(changes, room) {
            Ok(()) => {}
            Err(error @ AppendError::Write(_)) => {
                warn!(
                    target: "xdsproxy",
                    "{}: {error}; an outage would find {type_url} as it was before", open.path().display()
                );
            }
            Err(error) => {
                warn!(target: "xdsproxy", "{}: {error}; {type_url} is not kept for an outage", open.path().display());
                open.discard();
                *log = None;
            }
        }
        let bytes = logs.values().map(length).sum::<u64>();
        self.size.set(bytes as f64);
    }

    /// Whether a stored resource of a type has these bytes in it, such as the name of a file.
    pub fn mentions(&self, type_url: &str, bytes: &[u8]) -> bool {
        self.catalogue(type_url).is_some_and(|catalogue| catalogue.mentions(bytes))
    }

    /// What is stored of a type; `None` if nothing is.
    pub fn catalogue(&self, type_url: &str) -> Option<Catalogue> {
        let mut logs = self.logs.lock();
        let log = logs.entry(type_url.to_owned()).or_insert_with(|| self.log(type_url)).as_mut()?;
        let read = log.catalogue();
        read.inspect_err(|error| warn!(target: "xdsproxy", "{}: {error}", log.path().display())).ok()
    }

    /// The one resource of a type that has one resource.
    pub fn single(&self, type_url: &str) -> Option<Bytes> {
        let catalogue = self.catalogue(type_url)?;
        let name = catalogue.names().next()?.to_owned();
        catalogue.read(&name).map(|stored| stored.body)
    }

    /// Whether there is enough to serve an Envoy with: it does not start without clusters and listeners.
    pub fn is_usable(&self) -> bool {
        [canopus_xds::types::CLUSTER, canopus_xds::types::LISTENER]
            .iter()
            .all(|type_url| self.catalogue(type_url).is_some_and(|catalogue| !catalogue.is_empty()))
    }

    /// When something was last written.
    pub fn written(&self) -> Option<SystemTime> {
        let files = fs::read_dir(&self.directory).ok()?.flatten();
        files.filter_map(|file| file.metadata().ok()?.modified().ok()).max()
    }

    fn log(&self, type_url: &str) -> Option<TypeLog> {
        let path = self.directory.join(file_name(type_url));
        match TypeLog::open(&path, self.owner) {
            Ok(log) => Some(log),
            Err(error) => {
                warn!(target: "xdsproxy", "{}: {error}; {type_url} is not kept for an outage", path.display());
                None
            }
        }
    }
}

fn length(log: &Option<TypeLog>) -> u64 {
    log.as_ref().map_or(0, TypeLog::length)
}

/// A file name for a type, whatever characters it has.
fn file_name(type_url: &str) -> String {
    let name = type_url.rsplit('/').next().unwrap_or_default();
    let safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).take(100).collect();
    format!("{safe}.{:08x}.log", xxh3_64(type_url.as_bytes()) & 0xffff_ffff)
}

/// Opens the state, or goes on without where that cannot be.
pub fn open_or_warn(settings: &LastGoodSettings, registry: &Registry) -> Option<LastGood> {
    let path: &Path = &settings.directory;
    match LastGood::open(settings, registry) {
        Ok(state) => {
            info!(target: "xdsproxy", "the last good state is kept in {}", path.display());
            Some(state)
        }
        Err(error) => {
            warn!(
                target: "xdsproxy",
                "CANOPUS_STATE_DIRECTORY: {}: {error}; a proxy that restarts while the control plane is away will have no \
                 configuration; make the directory writable, or set the variable to nothing",
                path.display()
            );
            None
        }
    }
}

#[cfg(test)]
mod tests;
