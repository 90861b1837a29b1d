//! Certificates that are files: mounted for the workload, or named by secrets such as `file-cert:chain~key`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use canopus_identity::Certificate;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::secrets::{Identity, Secrets};
use crate::upstream::read;

/// Where certificates are mounted for the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedFiles {
    /// The chain.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
    /// The roots.
    pub root: PathBuf,
}

impl MountedFiles {
    /// Parity: the directory of the workload API's files if it has them, else the one of old.
    pub fn detect() -> Self {
        let spiffe = Self::within(Path::new("./var/run/secrets/workload-spiffe-credentials"));
        if spiffe.exist() { spiffe } else { Self::within(Path::new("./etc/certs")) }
    }

    /// The files of a directory, by their usual names.
    pub fn within(directory: &Path) -> Self {
        Self {
            certificate: directory.join("cert-chain.pem"),
            key: directory.join("key.pem"),
            root: directory.join("root-cert.pem"),
        }
    }

    /// Whether all of them are there.
    pub fn exist(&self) -> bool {
        [&self.certificate, &self.key, &self.root].iter().all(|path| path.exists())
    }

    /// Reads them.
    pub fn load(&self) -> Result<Identity, String> {
        let text = |path: &Path| {
            let bytes = read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            String::from_utf8(bytes).map_err(|_| format!("{}: expected PEM", path.display()))
        };
        let (chain, key, root) = (text(&self.certificate)?, text(&self.key)?, text(&self.root)?);
        let leaf = Certificate::from_pem(chain.as_bytes())
            .map_err(|error| format!("{}: {error}", self.certificate.display()))?;
        if !key.contains("PRIVATE KEY") {
            return Err(format!("{}: there is no private key in it", self.key.display()));
        }
        let expires = UNIX_EPOCH + Duration::from_secs(leaf.not_after().as_secs());
        if expires < SystemTime::now() {
            warn!(target: "cache", "{}: the certificate has expired", self.certificate.display());
        }
        Ok(Identity { chain, key: Zeroizing::new(key), root, expires })
    }
}

/// What a `file-cert:` or `file-root:` secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileSecret {
    Certificate { chain: String, key: Zeroizing<String> },
    Root(String),
}

/// Reads the files that the name of a secret names; `None` if it is another kind of name, or they cannot be read.
pub(crate) fn load(name: &str) -> Option<FileSecret> {
    let text = |path: &str| {
        let text =
            read(Path::new(path)).and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
        text.inspect_err(|error| warn!(target: "sds", "secret {name}: {path}: {error}")).ok()
    };
    if let Some(paths) = name.strip_prefix("file-cert:") {
        let (chain, key) = paths.split_once('~')?;
        return Some(FileSecret::Certificate { chain: text(chain)?, key: Zeroizing::new(text(key)?) });
    }
    match name.strip_prefix("file-root:")? {
        "system" => Some(FileSecret::Root(text(system_roots()?)?)),
        path => text(path).map(FileSecret::Root),
    }
}

/// The bundle of the operating system: the first that exists of those distributions have.
fn system_roots() -> Option<&'static str> {
    const BUNDLES: [&str; 5] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    BUNDLES.into_iter().find(|path| Path::new(path).exists())
}

/// Tells of changes in directories. Mounted Secrets change by a rename of a link, so files themselves are not watched.
pub struct DirectoryWatch {
    changed: Arc<Notify>,
    _watcher: RecommendedWatcher,
}

impl DirectoryWatch {
    /// Watches the directories that exist.
    pub fn new<'a>(directories: impl IntoIterator<Item = &'a Path>) -> notify::Result<Self> {
        let changed = Arc::new(Notify::new());
        let signal = Arc::clone(&changed);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                signal.notify_one();
            }
        })?;
        for directory in directories {
            if directory.is_dir() {
                watcher.watch(directory, RecursiveMode::NonRecursive)?;
            }
        }
        Ok(Self { changed, _watcher: watcher })
    }

    /// Waits until something changed and then nothing for as long as `quiet`.
    pub async fn settled(&self, quiet: Duration) {
        self.changed.notified().await;
        while tokio::time::timeout(quiet, self.changed.notified()).await.is_ok() {}
    }
}

/// Serves mounted certificates, and follows them.
pub async fn follow(files: MountedFiles, quiet: Duration, secrets: Arc<Secrets>) {
    let mut served: Option<(String, String)> = None;
    let parents: Vec<PathBuf> = [&files.certificate, &files.key, &files.root]
        .iter()
        .filter_map(|path| path.parent().map(Path::to_owned))
        .collect();
    loop {
        let watch = DirectoryWatch::new(parents.iter().map(PathBuf::as_path));
        match files.load() {
            Ok(identity) => {
                let now = (identity.chain.clone(), identity.root.clone());
                if served.as_ref() != Some(&now) {
                    info!(target: "cache", "certificates of {} are served", files.certificate.display());
                    served = Some(now);
                    secrets.set_identity(identity);
                }
            }
            Err(error) => warn!(target: "cache", "mounted certificates: {error}; waiting for them to change"),
        }
        secrets.reload_files();
        match watch {
            // What cannot be watched is looked at now and then.
            Ok(watch) if served.is_some() => watch.settled(quiet).await,
            _ => sleep(Duration::from_secs(1)).await,
        }
    }
}
