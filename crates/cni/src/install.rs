//! Puts the plugin on the node, keeps it there, and takes it away again.
//!
//! ```text
//!  image: /opt/cni/bin/istio-cni ─────────► host: /opt/cni/bin/istio-cni
//!  service account: token, ca.crt ────────► /var/run/istio-cni/istio-cni-kubeconfig
//!  settings + host's first network config ► that config, with the plugin as last of its chain
//! ```
//!
//! One pass brings all three to what they should be and writes nothing that is so already; it runs whenever one of the
//! directories changes. So there is no list of events to handle, and the installer's own writes settle by themselves.

mod kubeconfig;
pub mod network_config;
mod watch;

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use canopus_runtime::metrics::{Registry, catalogue};

pub use self::kubeconfig::{ApiServer, KubeconfigError, render as render_kubeconfig};
pub use self::network_config::{NetworkConfigError, PLUGIN, PluginConfig};
pub use self::watch::DirectoryWatch;
use crate::files::{Directory, FileError};

/// The kubeconfig's name in the agent's directory.
pub const KUBECONFIG: &str = "istio-cni-kubeconfig";

/// The name of the configuration of a plugin that is not chained, unless told otherwise.
const STANDALONE_NAME: &str = "YYY-istio-cni.conf";

/// How long to wait for a change before everything is looked at again.
const AUDIT: Duration = Duration::from_secs(60);

/// How long to wait after a pass that failed.
const RETRY: Duration = Duration::from_secs(2);

/// Changes within this time are one: others write their files in steps, too.
const SETTLE: Duration = Duration::from_millis(100);

/// What is installed, and where.
#[derive(Clone, Debug, Default)]
pub struct InstallSettings {
    /// The host's directory of network configurations.
    pub network_directory: PathBuf,
    /// The configuration to work on; the first if empty.
    pub network_config: String,
    /// Whether the plugin is added to another's configuration.
    pub is_chained: bool,
    /// The name of a copy of the configuration to add the plugin to; `None` to add it to the configuration itself.
    pub owned_config: Option<String>,
    /// Permissions of configurations that the installer makes.
    pub config_mode: u32,
    /// Where programs are copied from.
    pub programs: PathBuf,
    /// The host's directories of programs.
    pub program_targets: Vec<PathBuf>,
    /// The agent's directory.
    pub run_directory: PathBuf,
    /// Permissions of the kubeconfig.
    pub kubeconfig_mode: u32,
    /// The directory of the pod's service account.
    pub service_account: PathBuf,
    /// The API server; its certificates are filled in.
    pub api_server: ApiServer,
    /// The certificates to trust; those of the service account if not set.
    pub ca_file: Option<PathBuf>,
    /// Trust any certificate.
    pub skip_tls_verify: bool,
    /// The plugin's configuration.
    pub plugin: PluginConfig,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Programs.
    #[error("cannot copy programs: {0}")]
    Programs(#[source] FileError),
    /// The kubeconfig's sources.
    #[error("cannot write the kubeconfig: {0}")]
    KubeconfigFile(#[source] FileError),
    /// The kubeconfig's contents.
    #[error("cannot write the kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// The network configuration's file.
    #[error("network configuration: {0}")]
    ConfigFile(#[source] FileError),
    /// The network configuration's contents.
    #[error("network configuration {name}: {source}")]
    Config {
        /// The file.
        name: String,
        /// What is wrong.
        source: NetworkConfigError,
    },
}

impl InstallError {
    fn result(&self) -> &'static str {
        match self {
            Self::Programs(_) => "COPY_BINARIES_FAILURE",
            Self::KubeconfigFile(_) | Self::Kubeconfig(_) => "CREATE_KUBECONFIG_FAILURE",
            Self::ConfigFile(_) | Self::Config { .. } => "CREATE_CNI_CONFIG_FAILURE",
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Programs(error) if error.is_read_only() => {
                "; the directory of CNI plugins differs on some platforms: set global.platform, or cniBinDir"
            }
            _ => "",
        }
    }
}

/// What a pass came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// All that the pass installs is in place.
    Complete,
    /// No network configuration exists yet that the plugin could be added to.
    Waiting,
}

/// Installs the plugin.
#[derive(Debug)]
pub struct Installer {
    settings: InstallSettings,
    /// The configuration that has the plugin.
    installed: Option<String>,
}

impl Installer {
    /// Prepares to install.
    pub fn new(settings: InstallSettings) -> Self {
        Self { settings, installed: None }
    }

    /// The name of the configuration that has the plugin.
    pub fn installed(&self) -> Option<&str> {
        self.installed.as_deref()
    }

    /// Installs, and installs again what others change, until the future is dropped.
    pub async fn run(&mut self, metrics: &Registry, is_ready: impl Fn(bool)) {
        let installs = metrics.family(catalogue::ISTIO_CNI_INSTALLS_TOTAL);
        let gauge = metrics.family(catalogue::ISTIO_CNI_INSTALL_READY);
        let mut watch = DirectoryWatch::new(self.watched());
        let mut was_complete = false;
        loop {
            let pass = self.install();
            let is_complete = matches!(pass, Ok(Installed::Complete));
            if is_complete != was_complete {
                let result = pass.as_ref().map_or_else(InstallError::result, |_| "SUCCESS");
                if is_complete || pass.is_err() {
                    installs.with([result]).inc();
                }
                was_complete = is_complete;
            }
            gauge.with([]).set(if is_complete { 1.0 } else { 0.0 });
            is_ready(is_complete);
            let pause = match pass {
                Ok(Installed::Complete) => AUDIT,
                Ok(Installed::Waiting) => {
                    tracing::info!(
                        "waiting for a network configuration in {}",
                        self.settings.network_directory.display()
                    );
                    AUDIT
                }
                Err(error) => {
                    tracing::error!(
                        "installation failed, trying again in {RETRY:?}: {error}{}",
                        error.remedy()
                    );
                    RETRY
                }
            };
            tokio::select! {
                () = watch.changed() => tokio::time::sleep(SETTLE).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn watched(&self) -> Vec<PathBuf> {
        let settings = &self.settings;
        let mut paths = vec![settings.network_directory.clone(), settings.service_account.clone()];
        paths.extend(settings.program_targets.iter().cloned());
        paths
    }

    /// Brings everything to what it should be.
    pub fn install(&mut self) -> Result<Installed, InstallError> {
        self.copy_programs().map_err(InstallError::Programs)?;
        self.write_kubeconfig()?;
        self.write_config()
    }

    fn copy_programs(&self) -> Result<(), FileError> {
        let source = Directory::open(&self.settings.programs)?;
        for target in &self.settings.program_targets {
            let target = Directory::open(target)?;
            for name in source.names()? {
                remove_partial_copies(&target, &name)?;
                let mut program = source.file(&name)?;
                if target
                    .file(&name)
                    .is_ok_and(|mut there| is_same(&mut program, &mut there).unwrap_or(false))
                {
                    continue;
                }
                // The comparison may have read some of it.
                let mut program = source.file(&name)?;
                target.replace(&name, &mut program, 0o755)?;
                tracing::info!("copied {name} to {}", target.path().display());
            }
        }
        Ok(())
    }

    fn write_kubeconfig(&self) -> Result<(), InstallError> {
        let settings = &self.settings;
        let account = Directory::open(&settings.service_account).map_err(InstallError::KubeconfigFile)?;
        let token = account.read("token").map_err(InstallError::KubeconfigFile)?;
        let ca = match (&settings.ca_file, settings.skip_tls_verify) {
            (_, true) => None,
            (Some(file), false) => Some(read_path(file).map_err(InstallError::KubeconfigFile)?),
            (None, false) => Some(account.read("ca.crt").map_err(InstallError::KubeconfigFile)?),
        };
        let server = ApiServer { ca, ..settings.api_server.clone() };
        let text = kubeconfig::render(&server, &String::from_utf8_lossy(&token))?;
        let directory = Directory::create(&settings.run_directory).map_err(InstallError::KubeconfigFile)?;
        if directory.read(KUBECONFIG).is_ok_and(|there| there == text.as_bytes())
            && directory.mode(KUBECONFIG).is_ok_and(|mode| mode == settings.kubeconfig_mode)
        {
            return Ok(());
        }
        let written = directory.write(KUBECONFIG, text.as_bytes(), settings.kubeconfig_mode);
        written.map_err(InstallError::KubeconfigFile)?;
        tracing::info!("wrote {}", directory.path().join(KUBECONFIG).display());
        Ok(())
    }

    /// Writes the network configuration.
    pub fn write_config(&mut self) -> Result<Installed, InstallError> {
        let directory =
            Directory::open(&self.settings.network_directory).map_err(InstallError::ConfigFile)?;
        let plugin = self.settings.plugin.standalone().map_err(|source| self.config_error("", source))?;
        if !self.settings.is_chained {
            let name = self.settings.network_config.as_str();
            let name = if name.is_empty() { STANDALONE_NAME } else { name }.to_owned();
            if directory.read(&name).is_ok_and(|there| there == plugin.as_bytes()) {
                self.installed = Some(name);
                return Ok(Installed::Complete);
            }
            return self.put(&directory, name, &plugin, self.settings.config_mode);
        }
        let Some(primary) = self.primary(&directory)? else { return Ok(Installed::Waiting) };
        let existing = directory.read(&primary).map_err(InstallError::ConfigFile)?;
        let wanted = network_config::insert(&existing, plugin.as_bytes())
            .map_err(|source| self.config_error(&primary, source))?;
        if let Some(name) = self.settings.owned_config.clone() {
            if directory.read(&name).is_ok_and(|there| there == wanted.as_bytes()) {
                self.installed = Some(name);
                return Ok(Installed::Complete);
            }
            return self.put(&directory, name, &wanted, self.settings.config_mode);
        }
        let target = if primary.ends_with(".conf") { format!("{primary}list") } else { primary.clone() };
        self.leave_others(&directory, &target);
        if target == primary && equals(&existing, &wanted) {
            self.installed = Some(target);
            return Ok(Installed::Complete);
        }
        let mode = directory.mode(&primary).unwrap_or(self.settings.config_mode);
        let installed = self.put(&directory, target.clone(), &wanted, mode)?;
        if target != primary {
            directory.remove(&primary).map_err(InstallError::ConfigFile)?;
        }
        Ok(installed)
    }

    fn put(
        &mut self,
        directory: &Directory,
        name: String,
        text: &str,
        mode: u32,
    ) -> Result<Installed, InstallError> {
        directory.write(&name, text.as_bytes(), mode).map_err(InstallError::ConfigFile)?;
        tracing::info!("wrote {}", directory.path().join(&name).display());
        self.installed = Some(name);
        Ok(Installed::Complete)
    }

    fn config_error(&self, name: &str, source: NetworkConfigError) -> InstallError {
        InstallError::Config { name: name.to_owned(), source }
    }

    /// The configuration that the plugin is added to.
    fn primary(&self, directory: &Directory) -> Result<Option<String>, InstallError> {
        let named = self.settings.network_config.as_str();
        if named.is_empty() {
            return self.first_usable(directory);
        }
        let twin = match named.strip_suffix("list") {
            Some(single) if named.ends_with(".conflist") => single.to_owned(),
            _ => format!("{named}list"),
        };
        let is_config = named.ends_with(".conf") || named.ends_with(".conflist");
        let found = [Some(named), Some(twin.as_str()).filter(|_| is_config)];
        let found = found.into_iter().flatten().find(|name| directory.exists(name));
        if let (Some(found), Some(first)) = (found, self.first_usable(directory)?)
            && first.as_str() < found
        {
            tracing::warn!("network configuration {found} is not used: container runtimes prefer {first}");
        }
        Ok(found.map(str::to_owned))
    }

    /// The first configuration that a container runtime would use, apart from one that the installer made.
    fn first_usable(&self, directory: &Directory) -> Result<Option<String>, InstallError> {
        let names = directory.names().map_err(InstallError::ConfigFile)?;
        let is_config = |name: &String| name.ends_with(".conf") || name.ends_with(".conflist");
        for name in names.into_iter().filter(is_config) {
            if self.settings.owned_config.as_ref() == Some(&name) {
                continue;
            }
            let usable = directory
                .read(&name)
                .map_err(|error| error.to_string())
                .and_then(|text| network_config::validate(&name, &text).map_err(|error| error.to_string()));
            match usable {
                Ok(()) => return Ok(Some(name)),
                Err(reason) => tracing::warn!("network configuration {name} is skipped: {reason}"),
            }
        }
        Ok(None)
    }

    /// Takes the plugin out of the configuration that had it before another one came first.
    fn leave_others(&self, directory: &Directory, target: &str) {
        let Some(before) = self.installed.as_deref().filter(|before| *before != target) else { return };
        if let Err(error) = self.take_out(directory, before) {
            tracing::warn!("{error}");
        }
    }

    fn take_out(&self, directory: &Directory, name: &str) -> Result<(), InstallError> {
        let text = match directory.read(name) {
            Err(error) if error.is_not_found() => return Ok(()),
            read => read.map_err(InstallError::ConfigFile)?,
        };
        let rest = network_config::remove(&text).map_err(|source| self.config_error(name, source))?;
        let Some(rest) = rest else { return Ok(()) };
        let mode = directory.mode(name).unwrap_or(self.settings.config_mode);
        directory.write(name, rest.as_bytes(), mode).map_err(InstallError::ConfigFile)?;
        tracing::info!("removed the plugin from {}", directory.path().join(name).display());
        Ok(())
    }

    /// Takes away what was installed: first the configuration, so that no runtime calls a program that is gone.
    pub fn clean_up(&self) -> Result<(), InstallError> {
        let settings = &self.settings;
        if let Some(name) = &self.installed {
            let directory = Directory::open(&settings.network_directory).map_err(InstallError::ConfigFile)?;
            if settings.is_chained && settings.owned_config.is_none() {
                self.take_out(&directory, name)?;
            } else {
                directory.remove(name).map_err(InstallError::ConfigFile)?;
            }
        }
        if let Ok(directory) = Directory::open(&settings.run_directory) {
            directory.remove(KUBECONFIG).map_err(InstallError::KubeconfigFile)?;
        }
        for target in &settings.program_targets {
            let Ok(target) = Directory::open(target) else { continue };
            target.remove(PLUGIN).map_err(InstallError::Programs)?;
        }
        Ok(())
    }
}

fn equals(existing: &[u8], wanted: &str) -> bool {
    let existing: Result<serde_json::Value, _> = serde_json::from_slice(existing);
    let wanted: Result<serde_json::Value, _> = serde_json::from_str(wanted);
    matches!((existing, wanted), (Ok(existing), Ok(wanted)) if existing == wanted)
}

/// Removes what a copy that was cut short left behind.
fn remove_partial_copies(target: &Directory, name: &str) -> Result<(), FileError> {
    let prefix = format!("{name}.tmp.");
    for partial in target.names()?.iter().filter(|found| found.starts_with(&prefix)) {
        target.remove(partial)?;
    }
    Ok(())
}

fn read_path(path: &Path) -> Result<Vec<u8>, FileError> {
    let directory = Directory::open(path.parent().unwrap_or(Path::new("/")))?;
    directory.read(path.file_name().and_then(|name| name.to_str()).unwrap_or_default())
}

/// Whether two files have the same contents, and both can be run.
fn is_same(a: &mut File, b: &mut File) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    if a.metadata()?.len() != b.metadata()?.len() || b.metadata()?.permissions().mode() & 0o111 == 0 {
        return Ok(false);
    }
    a.rewind()?;
    b.rewind()?;
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let read = a.read(&mut left)?;
        if read == 0 {
            return Ok(true);
        }
        b.read_exact(&mut right[..read])?;
        if left[..read] != right[..read] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests;
