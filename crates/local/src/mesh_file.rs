//! `mesh.yaml`: which programs run as workloads of a mesh on this machine.
//!
//! [`MeshFile::parse`] reads and checks the whole file, so that nothing is started for one that is wrong. Every problem names
//! its line, the field and what to write instead. What the file means (addresses, objects, processes) is `plan`'s business.

mod check;
mod command;
mod tour;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use canopus_base::duration::Duration;
use canopus_base::tree::{Limits, Pos};
use canopus_base::yaml;
use serde::Deserialize;

pub use command::CommandLine;
pub use tour::{Expectation, Percentages, Request, Step};

/// The name of the file in a mesh's directory.
pub const FILE_NAME: &str = "mesh.yaml";

/// A mesh on this machine.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MeshFile {
    /// Name of the mesh; the directory's name if the file has none.
    #[serde(default)]
    pub name: String,
    /// Namespace of workloads and gateways that name none.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Directory of Istio and Kubernetes objects, relative to the file.
    #[serde(default = "default_config")]
    pub config: PathBuf,
    /// Fields of Istio's mesh configuration.
    #[serde(default)]
    pub mesh_config: serde_json::Value,
    /// How long certificates of workloads live; the agent's default if there is none.
    #[serde(default)]
    pub certificate_lifetime: Option<Duration>,
    /// Proxies that let traffic of this machine into the mesh.
    #[serde(default)]
    pub gateways: Vec<Gateway>,
    /// Programs that run as workloads.
    #[serde(default)]
    pub workloads: Vec<Workload>,
    /// Services outside the mesh that this machine can reach.
    #[serde(default)]
    pub externals: Vec<External>,
    /// Steps of a guided tour: something changes, and what follows is checked.
    #[serde(default)]
    pub tour: Vec<Step>,
}

/// A gateway, reachable on ports of this machine.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gateway {
    /// Name of the workload and its service account.
    pub name: String,
    /// Namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Labels that the selector of a Gateway object picks it by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Ports of this machine that lead to ports of Gateway objects.
    pub ports: Vec<PublishedPort>,
}

/// A port of this machine that leads to one of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedPort {
    /// The port of this machine.
    pub host: u16,
    /// The port of the Gateway object's server.
    pub gateway: u16,
}

/// A program, one process for each replica.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// Name of the workload.
    pub name: String,
    /// Namespace.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Program and arguments. Without them somebody else starts the program, in the workload's network namespace.
    #[serde(default)]
    pub command: Option<CommandLine>,
    /// Working directory, relative to the file.
    #[serde(default)]
    pub directory: Option<PathBuf>,
    /// Environment variables of the program, beside those it inherits.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The one port of the workload; `ports` if there are several.
    #[serde(default)]
    pub port: Option<u16>,
    /// What `port` speaks; HTTP if nothing is said.
    #[serde(default)]
    pub protocol: Option<String>,
    /// Ports of the workload's service.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// Service that the workload belongs to; its own name if nothing is said.
    #[serde(default)]
    pub service: Option<String>,
    /// Version, which becomes the label `version`.
    #[serde(default)]
    pub version: Option<String>,
    /// Further labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Service account, which is the identity; the service's name if nothing is said.
    #[serde(default)]
    pub service_account: Option<String>,
    /// How many processes run.
    #[serde(default = "one")]
    pub replicas: u16,
    /// Whether a proxy runs beside the program.
    #[serde(default = "yes")]
    pub sidecar: bool,
    /// When the program is started again after its end.
    #[serde(default)]
    pub restart: Restart,
    /// Host name under which the mesh knows the program as a service outside of it.
    #[serde(default)]
    pub external: Option<String>,
}

/// A port of a service.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Port {
    /// Port of the service.
    pub port: u16,
    /// Port that the program listens on; the service's if nothing is said.
    #[serde(default)]
    pub target_port: Option<u16>,
    /// What it speaks, in Istio's words.
    #[serde(default)]
    pub protocol: Option<String>,
    /// Name of the port; made from protocol and number if nothing is said.
    #[serde(default)]
    pub name: Option<String>,
}

/// A service that this machine can reach and the namespaces of workloads cannot.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct External {
    /// Host name that workloads use.
    pub host: String,
    /// Namespace of the ServiceEntry.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Port that workloads use.
    pub port: u16,
    /// What it speaks; TCP if nothing is said.
    #[serde(default)]
    pub protocol: Option<String>,
    /// `HOST:PORT` as this machine reaches it; host and port if nothing is said.
    #[serde(default)]
    pub address: Option<String>,
}

/// When a program is started again.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// After every end.
    Always,
    /// After an end with another status than 0.
    #[default]
    OnFailure,
    /// Never.
    Never,
}

fn default_namespace() -> String {
    "default".to_owned()
}

fn default_config() -> PathBuf {
    PathBuf::from("config")
}

const fn one() -> u16 {
    1
}

const fn yes() -> bool {
    true
}

/// A value in the file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands.
    pub at: Pos,
    /// The field, such as `workloads[2].port`.
    pub field: String,
    /// What is wrong, and what to do.
    pub message: String,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MeshFileError {
    /// The file cannot be read.
    #[error("{path}: {source}; `canopus init -- PROGRAM` writes one", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// What it says cannot be used.
    #[error("{}", listed(path, problems))]
    Problems {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problems: Vec<Problem>,
    },
}

fn listed(path: &Path, problems: &[Problem]) -> String {
    let lines = problems.iter().map(|problem| format!("{}:{problem}", path.display()));
    lines.collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.at.line, self.at.column)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

impl MeshFile {
    /// Reads the file of a mesh's directory.
    pub fn read(directory: &Path) -> Result<Self, MeshFileError> {
        let path = directory.join(FILE_NAME);
        let text =
            std::fs::read(&path).map_err(|source| MeshFileError::Read { path: path.clone(), source })?;
        let mut file = Self::parse(&text)
            .map_err(|problems| MeshFileError::Problems { path: path.clone(), problems })?;
        if file.name.is_empty() {
            file.name = check::name_of_directory(directory);
        }
        Ok(file)
    }

    /// Reads and checks the text of a file.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<Problem>> {
        let limits = Limits { max_bytes: 1 << 20, max_depth: 16, max_nodes: 100_000 };
        let syntax = |error: yaml::Error| {
            vec![Problem { at: error.at, field: String::new(), message: error.kind.to_string() }]
        };
        let node = yaml::parse_one(text, &limits).map_err(syntax)?;
        let file: Self = node
            .decode()
            .map_err(|error| vec![Problem { at: error.at, field: error.path, message: error.message }])?;
        let problems = check::problems(&file, &node);
        if problems.is_empty() { Ok(file) } else { Err(problems) }
    }
}

impl Workload {
    /// The ports of the workload, whichever way they were written.
    pub fn all_ports(&self) -> Vec<Port> {
        let single = self.port.map(|port| Port {
            port,
            target_port: None,
            protocol: self.protocol.clone(),
            name: None,
        });
        single.into_iter().chain(self.ports.iter().cloned()).collect()
    }

    /// The service that the workload belongs to.
    pub fn service_name(&self) -> &str {
        self.service.as_deref().unwrap_or(&self.name)
    }
}

#[cfg(test)]
mod tests;
