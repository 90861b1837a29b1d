//! Certificates that are files: mounted for the workload, or named by secrets such as `file-cert:chain~key`.

use std::collections::BTreeSet;
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
    /// The directory that a cloud's own authority fills, if it has done so. Parity: its certificate is used without being asked for.
    pub fn from_platform() -> Option<Self> {
        Some(Self::within(Path::new("./var/run/secrets/workload-spiffe-credentials"))).filter(Self::exist)
    }

    /// The same, else the directory of old.
    pub fn detect() -> Self {
        Self::from_platform().unwrap_or_else(|| Self::within(Path::new("./etc/certs")))
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

/// Whether the name of a secret names files.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with("file-cert:") || name.starts_with("file-root:")
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

/// The directories of the files that the name of a secret names.
fn directories(name: &str) -> Vec<PathBuf> {
    let paths: Vec<&str> = match (name.strip_prefix("file-cert:"), name.strip_prefix("file-root:")) {
        (Some(paths), _) => paths.split('~').collect(),
        (_, Some("system")) => system_roots().into_iter().collect(),
        (_, Some(path)) => vec![path],
        _ => Vec::new(),
    };
    paths.into_iter().filter_map(|path| Path::new(path).parent().map(Path::to_owned)).collect()
}

/// Reads files again that secrets name, whenever they change, for as long as it is polled.
pub async fn follow_named(secrets: Arc<Secrets>, quiet: Duration) {
    loop {
        let directories: BTreeSet<PathBuf> =
            secrets.file_names().iter().flat_map(|name| directories(name)).collect();
        let watch = DirectoryWatch::new(directories.iter().map(PathBuf::as_path));
        // A file may have changed before the watch began.
        secrets.reload_files();
        tokio::select! {
            () = secrets.file_wanted() => {}
            () = async {
                match watch {
                    Ok(watch) => watch.settled(quiet).await,
                    // What cannot be watched is looked at now and then.
                    Err(_) => sleep(Duration::from_secs(1)).await,
                }
            } => {}
        }
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
        match watch {
            // What cannot be watched is looked at now and then.
            Ok(watch) if served.is_some() => watch.settled(quiet).await,
            _ => sleep(Duration::from_secs(1)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Files as a mounted Secret has them: links into a directory that is replaced as a whole.
    struct Mount(tempfile::TempDir);

    impl Mount {
        fn new(text: &str) -> Self {
            let mount = Self(tempfile::tempdir().unwrap());
            mount.replace(text);
            for name in ["tls.crt", "tls.key"] {
                symlink(format!("..data/{name}"), mount.0.path().join(name)).unwrap();
            }
            mount
        }

        fn replace(&self, text: &str) {
            let directory = self.0.path().join(format!("..{text}"));
            fs::create_dir(&directory).unwrap();
            for name in ["tls.crt", "tls.key"] {
                fs::write(directory.join(name), format!("{text} {name}")).unwrap();
            }
            symlink(format!("..{text}"), self.0.path().join("..data_tmp")).unwrap();
            fs::rename(self.0.path().join("..data_tmp"), self.0.path().join("..data")).unwrap();
        }

        fn secret(&self) -> String {
            let path = |name| self.0.path().join(name).display().to_string();
            format!("file-cert:{}~{}", path("tls.crt"), path("tls.key"))
        }
    }

    fn chain(secrets: &Secrets, name: &str) -> Option<String> {
        match secrets.file(name)? {
            FileSecret::Certificate { chain, .. } => Some(chain),
            FileSecret::Root(_) => None,
        }
    }

    #[tokio::test]
    async fn named_files_are_read_again_when_a_mount_is_replaced() {
        let mount = Mount::new("first");
        let secrets = Arc::new(Secrets::default());
        let mut revisions = secrets.revisions();
        tokio::spawn(follow_named(Arc::clone(&secrets), Duration::from_millis(20)));
        let name = mount.secret();
        assert_eq!(chain(&secrets, &name).unwrap(), "first tls.crt");
        // The watch begins once the file is known.
        sleep(Duration::from_millis(200)).await;
        mount.replace("second");
        tokio::time::timeout(Duration::from_secs(10), revisions.changed()).await.unwrap().unwrap();
        assert_eq!(chain(&secrets, &name).unwrap(), "second tls.crt");
        // Half a mount is no reason to lose what is served.
        fs::remove_file(mount.0.path().join("tls.key")).unwrap();
        sleep(Duration::from_millis(200)).await;
        assert_eq!(chain(&secrets, &name).unwrap(), "second tls.crt");
    }

    #[tokio::test]
    async fn named_file_that_comes_later_is_served() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root.pem");
        let secrets = Arc::new(Secrets::default());
        let mut revisions = secrets.revisions();
        tokio::spawn(follow_named(Arc::clone(&secrets), Duration::from_millis(20)));
        let name = format!("file-root:{}", root.display());
        assert_eq!(secrets.file(&name), None);
        sleep(Duration::from_millis(200)).await;
        fs::write(&root, "a root").unwrap();
        tokio::time::timeout(Duration::from_secs(10), revisions.changed()).await.unwrap().unwrap();
        assert_eq!(secrets.file(&name), Some(FileSecret::Root("a root".into())));
    }

    #[test]
    fn names_that_are_no_files_have_none() {
        for name in ["default", "file-cert:/a", "file-root:/no/such/file", "file-cert:/no/such~/file", "x"] {
            assert_eq!(load(name), None, "{name}");
        }
    }
}
