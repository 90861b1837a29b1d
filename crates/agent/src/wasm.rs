//! Wasm modules for Envoy: fetched once, kept as files, and checked before Envoy sees them.
//!
//! ```text
//!  ECDS resource with a remote module ──► config: URL, checksum, pull policy, secret
//!        │                                   │
//!        │                                cache ── miss ──► HTTP(S), or OCI registry (image)
//!        ▼                                   │
//!  ECDS resource with a local file ◄── DATA/<hash of the name>/<checksum>.wasm
//! ```
//!
//! A module that cannot be had becomes a filter that lets everything through or nothing, as the plug-in's fail strategy
//! says. Only a resource that is no Wasm filter at all although it says so is rejected to the control plane.
//!
//! What is fetched comes from anywhere: sizes are bounded, checksums are those of the bytes that are written, and where
//! the agent connects to passes [`crate::fetch::AddressGuard`].

mod archive;
mod config;
mod credentials;
mod image;
mod reference;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use bytes::Bytes;
use canopus_runtime::metrics::{Counter, Family, Gauge, Histogram, Registry, catalogue};
use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

pub use self::credentials::PullSecret;
use self::image::ImageClient;
pub(crate) use self::image::percent_encode;
pub use self::reference::ImageReference;
use crate::backoff::Backoff;
use crate::fetch::{self, Fetch, FetchError, Fetcher};

/// The beginning of every module.
const MAGIC: [u8; 4] = *b"\0asm";
const OCI: &str = "oci://";

/// How modules are fetched and kept.
#[derive(Clone, Debug)]
pub struct WasmSettings {
    /// Where files are kept.
    pub directory: PathBuf,
    /// `ISTIO_WASM_MAX_BINARY_SIZE_BYTES`.
    pub max_bytes: usize,
    /// `WASM_INSECURE_REGISTRIES`.
    pub insecure: Vec<String>,
    /// `WASM_HTTP_REQUEST_TIMEOUT`.
    pub request_timeout: Duration,
    /// `WASM_HTTP_REQUEST_MAX_RETRIES`.
    pub tries: u32,
    /// `WASM_MODULE_EXPIRY`.
    pub expiry: Duration,
    /// `WASM_PURGE_INTERVAL`.
    pub purge_interval: Duration,
}

/// Why there is no module.
#[derive(Debug, thiserror::Error)]
pub enum WasmError {
    /// The URL cannot be used.
    #[error("unsupported Wasm module downloading URL {0:?}; use https://, http:// or oci://")]
    Scheme(String),
    /// The reference is none.
    #[error("{0}")]
    Reference(String),
    /// The server cannot be asked, or answers nonsense.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The server refuses.
    #[error("{url}: status {status}{hint}")]
    Status {
        /// Where.
        url: String,
        /// The status.
        status: StatusCode,
        /// What to do.
        hint: &'static str,
    },
    /// The image is not one of a module.
    #[error("{image}: {reason}")]
    Image {
        /// The image.
        image: String,
        /// Why.
        reason: String,
    },
    /// The module's checksum is not the expected one.
    #[error("module downloaded from {url} has checksum {found}, which does not match: {expected}")]
    Checksum {
        /// Where from.
        url: String,
        /// The checksum.
        found: String,
        /// The wanted one.
        expected: String,
    },
    /// The bytes are not a Wasm module.
    #[error("what was fetched from {0} is not a Wasm module")]
    NotAModule(String),
    /// The fetch took too long.
    #[error("{url} was not fetched in {limit:?}")]
    Late {
        /// Where from.
        url: String,
        /// The limit.
        limit: Duration,
    },
    /// The module cannot be stored.
    #[error("{}: {error}; make room, or make the directory writable", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// When a module is fetched although it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// For images tagged `latest` as `Always`, else as `IfNotPresent`.
    #[default]
    Unspecified,
    /// Never.
    IfNotPresent,
    /// When the plug-in has changed.
    Always,
}

/// Which module is wanted.
#[derive(Clone, Debug)]
pub struct ModuleRequest {
    /// Where it is.
    pub url: String,
    /// The SHA-256 it must have, or of an image's manifest; empty takes any.
    pub checksum: String,
    /// The name of the plug-in's resource.
    pub resource: String,
    /// The version of the plug-in.
    pub version: String,
    /// How long fetching may take.
    pub timeout: Duration,
    /// Credentials for the registry.
    pub secret: Option<PullSecret>,
    /// When to fetch again.
    pub policy: PullPolicy,
}

/// The modules that are there.
pub struct WasmModules {
    settings: WasmSettings,
    fetcher: Fetcher,
    cache: Mutex<Cache>,
    counters: Counters,
}

struct Counters {
    entries: Gauge,
    lookups: Family<Counter, 1>,
    fetches: Family<Counter, 1>,
    conversions: Family<Counter, 1>,
    duration: Histogram,
}

#[derive(Default)]
struct Cache {
    /// By name and checksum.
    modules: BTreeMap<(String, String), Module>,
    /// The last checksum of a URL that does not have it in itself.
    checksums: BTreeMap<String, LastChecksum>,
}

struct Module {
    path: PathBuf,
    used: Instant,
}

#[derive(Default)]
struct LastChecksum {
    checksum: String,
    /// The version of each plug-in that refers to the URL.
    versions: BTreeMap<String, String>,
}

impl WasmModules {
    /// Modules in a directory, fetched by `fetcher`.
    pub fn new(settings: WasmSettings, fetcher: Fetcher, registry: &Registry) -> Arc<Self> {
        let counters = Counters {
            entries: registry.value(catalogue::WASM_CACHE_ENTRIES),
            lookups: registry.family(catalogue::WASM_CACHE_LOOKUP_COUNT),
            fetches: registry.family(catalogue::WASM_REMOTE_FETCH_COUNT),
            conversions: registry.family(catalogue::WASM_CONFIG_CONVERSION_COUNT),
            duration: registry.value(catalogue::WASM_CONFIG_CONVERSION_DURATION),
        };
        Arc::new(Self { settings, fetcher, cache: Mutex::default(), counters })
    }

    /// Removes modules that nobody has asked for in a while, for as long as it is polled. A file that `is_needed` stays: an
    /// Envoy that starts while the control plane is away is told of it.
    pub async fn purge(self: Arc<Self>, is_needed: impl Fn(&Path) -> bool + Send) {
        remove_old_files(&self.settings.directory, self.settings.expiry, &is_needed);
        loop {
            sleep(self.settings.purge_interval.max(Duration::from_secs(1))).await;
            self.remove_unused(&is_needed);
        }
    }

    fn remove_unused(&self, is_needed: &impl Fn(&Path) -> bool) {
        let mut cache = self.cache.lock();
        let Cache { modules, checksums } = &mut *cache;
        modules.retain(|(_, checksum), module| {
            if module.used.elapsed() <= self.settings.expiry || is_needed(&module.path) {
                return true;
            }
            debug!(target: "wasm", "{} was not used for long and is removed", module.path.display());
            checksums.retain(|_, last| last.checksum != *checksum);
            fs::remove_file(&module.path).is_err()
        });
        self.count_entries(&cache);
    }

    fn count_entries(&self, cache: &Cache) {
        self.counters.entries.set(cache.modules.len() as f64);
    }

    /// The file of a module, which is fetched if need be.
    pub async fn module(&self, request: &ModuleRequest) -> Result<PathBuf, WasmError> {
        let limit = request.timeout;
        let late = || WasmError::Late { url: request.url.clone(), limit };
        timeout(limit, self.find_or_fetch(request)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn find_or_fetch(&self, request: &ModuleRequest) -> Result<PathBuf, WasmError> {
        let name = module_name(&request.url);
        let (found, expected) = self.find(request, &name);
        if let Some(path) = found {
            return Ok(path);
        }
        let result = match request.url.strip_prefix(OCI) {
            Some(image) => self.fetch_image(request, &name, image, &expected).await,
            None => self.fetch_url(request, &expected).await,
        };
        let (checksum, bytes) = match result {
            Ok(Fetched::Known(path)) => return Ok(path),
            Ok(Fetched::New { checksum, bytes }) => (checksum, bytes),
            Err((outcome, error)) => {
                self.counters.fetches.with([outcome]).inc();
                return Err(error);
            }
        };
        if bytes.len() < 8 || !bytes.starts_with(&MAGIC) {
            self.counters.fetches.with(["fetch_failure"]).inc();
            return Err(WasmError::NotAModule(request.url.clone()));
        }
        self.counters.fetches.with(["success"]).inc();
        self.keep(request, name, checksum, &bytes)
    }

    /// A module that is there, or the checksum that it has to have.
    fn find(&self, request: &ModuleRequest, name: &str) -> (Option<PathBuf>, String) {
        let mut cache = self.cache.lock();
        let mut checksum = request.checksum.clone();
        if checksum.is_empty() {
            checksum = pinned_checksum(&request.url).unwrap_or_default();
        }
        let is_last = request.url.starts_with(OCI) && request.url.ends_with(":latest");
        let ignores_version = match request.policy {
            PullPolicy::Always => false,
            PullPolicy::IfNotPresent => true,
            PullPolicy::Unspecified => !is_last,
        };
        let mut known = checksum.clone();
        if known.is_empty()
            && let Some(last) = cache.checksums.get_mut(&request.url)
        {
            if ignores_version || last.versions.get(&request.resource) == Some(&request.version) {
                known.clone_from(&last.checksum);
            }
            last.versions.insert(request.resource.clone(), request.version.clone());
        }
        let module = cache.modules.get_mut(&(name.to_owned(), known));
        let path = module.filter(|module| module.path.exists()).map(|module| {
            module.used = Instant::now();
            module.path.clone()
        });
        self.counters.lookups.with([if path.is_some() { "true" } else { "false" }]).inc();
        (path, checksum)
    }

    fn keep(
        &self,
        request: &ModuleRequest,
        name: String,
        checksum: String,
        bytes: &[u8],
    ) -> Result<PathBuf, WasmError> {
        let directory = self.settings.directory.join(sha256(name.as_bytes()));
        let path = directory.join(format!("{checksum}.wasm"));
        let disk = |error| WasmError::Disk { path: path.clone(), error };
        fs::create_dir_all(&directory).map_err(disk)?;
        crate::files::write_private(&path, bytes).map_err(disk)?;
        info!(target: "wasm", "{} was fetched: {} bytes, {checksum}", request.url, bytes.len());
        let mut cache = self.cache.lock();
        if pinned_checksum(&request.url).is_none() {
            let last = cache.checksums.entry(request.url.clone()).or_default();
            last.checksum.clone_from(&checksum);
            last.versions.insert(request.resource.clone(), request.version.clone());
        }
        cache.modules.insert((name, checksum), Module { path: path.clone(), used: Instant::now() });
        self.count_entries(&cache);
        Ok(path)
    }

    async fn fetch_image(
        &self,
        request: &ModuleRequest,
        name: &str,
        image: &str,
        expected: &str,
    ) -> Result<Fetched, (&'static str, WasmError)> {
        let manifest_failed = |error| ("manifest_failure", error);
        let reference =
            ImageReference::parse(image).map_err(WasmError::Reference).map_err(manifest_failed)?;
        let is_insecure = self.is_insecure(&reference.registry);
        let credentials = match &request.secret {
            Some(secret) => secret.credentials(&reference.registry),
            None => None,
        };
        let mut client =
            ImageClient::new(&self.fetcher, reference, credentials, is_insecure, self.settings.max_bytes);
        let manifest = client.manifest().await.map_err(manifest_failed)?;
        check(&request.url, &manifest.digest, expected)?;
        let known = self
            .cache
            .lock()
            .modules
            .get(&(name.to_owned(), manifest.digest.clone()))
            .map(|module| module.path.clone());
        if let Some(path) = known.filter(|path| path.exists()) {
            return Ok(Fetched::Known(path));
        }
        let bytes = client.module(&manifest).await.map_err(|error| ("download_failure", error))?;
        Ok(Fetched::New { checksum: manifest.digest, bytes })
    }

    async fn fetch_url(
        &self,
        request: &ModuleRequest,
        expected: &str,
    ) -> Result<Fetched, (&'static str, WasmError)> {
        let failed = |error| ("download_failure", error);
        if !request.url.starts_with("http://") && !request.url.starts_with("https://") {
            return Err(failed(WasmError::Scheme(request.url.clone())));
        }
        let bytes = self.download(&request.url).await.map_err(failed)?;
        let bytes = archive::unbox(bytes, self.settings.max_bytes);
        let checksum = sha256(&bytes);
        check(&request.url, &checksum, expected)?;
        Ok(Fetched::New { checksum, bytes })
    }

    /// Downloads a page, and again after errors of the server.
    async fn download(&self, url: &str) -> Result<Bytes, WasmError> {
        let mut request = Fetch::get(url)?;
        request.unverified = request.url.authority().is_some_and(|host| self.is_insecure(host.as_str()));
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));
        let mut tries = self.settings.tries.max(1);
        loop {
            tries -= 1;
            let limit = self.settings.request_timeout;
            let fetching = async {
                let answer = self.fetcher.follow(request.clone()).await?;
                match answer.status() {
                    StatusCode::OK => Ok(fetch::body(answer, self.settings.max_bytes).await?),
                    status => Err(WasmError::Status { url: url.to_owned(), status, hint: "" }),
                }
            };
            let late = || WasmError::Late { url: url.to_owned(), limit };
            let result = timeout(limit, fetching).await.unwrap_or_else(|_| Err(late()));
            match result {
                Err(error) if tries > 0 && is_transient(&error) => {
                    debug!(target: "wasm", "{error}; trying again");
                    sleep(backoff.wait()).await;
                }
                result => return result,
            }
        }
    }

    fn is_insecure(&self, registry: &str) -> bool {
        self.settings.insecure.iter().any(|allowed| allowed == "*" || allowed == registry)
    }
}

enum Fetched {
    Known(PathBuf),
    New { checksum: String, bytes: Bytes },
}

fn is_transient(error: &WasmError) -> bool {
    match error {
        WasmError::Status { status, .. } => {
            status.is_server_error() && ![501, 505, 511].contains(&status.as_u16())
        }
        WasmError::Fetch(error) => {
            !matches!(error, FetchError::Blocked { .. } | FetchError::Url { .. } | FetchError::Size(_))
        }
        WasmError::Late { .. } => true,
        _ => false,
    }
}

fn check(url: &str, found: &str, expected: &str) -> Result<(), (&'static str, WasmError)> {
    if expected.is_empty() || expected.eq_ignore_ascii_case(found) {
        return Ok(());
    }
    let (url, found, expected) = (url.to_owned(), found.to_owned(), expected.to_owned());
    Err(("checksum_mismatch", WasmError::Checksum { url, found, expected }))
}

/// The module in a download, taken out of the archives around it.
pub fn unpack_module(bytes: &[u8], limit: usize) -> Bytes {
    archive::unbox(Bytes::copy_from_slice(bytes), limit)
}

/// Reads the manifest of an image; the number of layers, if it is one.
pub fn inspect_manifest(bytes: &[u8]) -> Option<usize> {
    image::count_layers(bytes)
}

/// What a module is called whatever its tag or digest.
fn module_name(url: &str) -> String {
    match url.strip_prefix(OCI).map(ImageReference::parse) {
        Some(Ok(reference)) => format!("{OCI}{}/{}", reference.registry, reference.repository),
        _ => url.to_owned(),
    }
}

/// The checksum that the URL of an image has in itself.
fn pinned_checksum(url: &str) -> Option<String> {
    let reference = ImageReference::parse(url.strip_prefix(OCI)?).ok()?;
    reference.digest.as_deref().and_then(|digest| digest.strip_prefix("sha256:")).map(str::to_owned)
}

/// The hexadecimal SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    digest::digest(&digest::SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes what an earlier agent has fetched and nobody uses any more.
fn remove_old_files(directory: &Path, expiry: Duration, is_needed: &impl Fn(&Path) -> bool) {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let modules =
        entries(directory).filter(|path| path.is_dir()).flat_map(|path| entries(&path).collect::<Vec<_>>());
    for path in modules.filter(|path| path.extension().is_some_and(|extension| extension == "wasm")) {
        let age =
            fs::metadata(&path).and_then(|file| file.modified()).ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > expiry)
            && !is_needed(&path)
            && let Err(error) = fs::remove_file(&path)
        {
            warn!(target: "wasm", "{}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests;
