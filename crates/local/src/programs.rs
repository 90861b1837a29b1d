//! The programs that a mesh consists of, beside the user's own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Path of this program, which starts the others.
    pub launcher: PathBuf,
    /// The control plane.
    pub canopusd: PathBuf,
    /// The agent beside each proxy.
    pub agent: PathBuf,
    /// The proxy.
    pub envoy: PathBuf,
}

impl Programs {
    /// Finds the programs: those of Canopus beside this one, Envoy where it is said to be or on the path.
    pub fn find(envoy: Option<&Path>) -> Result<Self> {
        let launcher = std::env::current_exe().context("the path of this program")?;
        let beside = |name: &str, package: &str| {
            let path = launcher.with_file_name(name);
            if !path.exists() {
                bail!(
                    "{name} is not beside canopus ({}); install both in one directory (from source: `cargo build -p {package}`)",
                    path.display()
                );
            }
            Ok(path)
        };
        Ok(Self {
            canopusd: beside("canopusd", "canopus-daemon")?,
            agent: beside("canopus-agent", "canopus-agent")?,
            envoy: find_envoy(envoy)?,
            launcher,
        })
    }
}

fn find_envoy(named: Option<&Path>) -> Result<PathBuf> {
    let program = named.map_or_else(|| PathBuf::from("envoy"), Path::to_owned);
    let asked = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    match asked {
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => bail!(
            "{} --version fails ({}): {}; name another Envoy with --envoy",
            program.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => bail!(
            "envoy is not on PATH; install it (https://www.envoyproxy.io/docs/envoy/latest/start/install), or name it with \
             --envoy PATH (`cargo xtask parts envoy` fetches one into the cache of a checkout)"
        ),
        Err(error) => bail!("{}: {error}; name an Envoy with --envoy PATH", program.display()),
    }
}
