//! Charts and profiles: from a directory as Istio's releases have it, or the profiles that are built in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use canopus_base::tree::Limits;
use canopus_base::yaml;
use canopus_gotemplate::Value;
use canopus_gotemplate::chart::{self, Chart, ChartError, Release};
use canopus_gotemplate::helm::Capabilities;
use serde_json::Value as Json;

use crate::component::Component;
use crate::own_charts;
use crate::tree::{self, Tree};

/// Where charts and profiles come from.
#[derive(Clone, Debug, Default)]
pub struct Package {
    directory: Option<PathBuf>,
}

/// Why charts or profiles cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// A file or directory cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The path.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// The profile does not exist.
    #[error("profile {name:?} not found; there are: {known}")]
    UnknownProfile {
        /// The profile.
        name: String,
        /// Names of the profiles that exist.
        known: String,
    },
    /// A profile cannot be read.
    #[error("profile {name:?}: {reason}")]
    Profile {
        /// The profile.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A chart cannot be read.
    #[error("load chart {chart}: {error}")]
    Chart {
        /// The chart.
        chart: String,
        /// What is wrong.
        error: ChartError,
    },
    /// A link in a chart leads to a directory that it is in, so that the chart would contain itself.
    #[error(
        "load chart {chart}: {path} leads back to a directory that it is in; replace the link by what it should be"
    )]
    Cycle {
        /// The chart.
        chart: String,
        /// The link.
        path: String,
    },
    /// A chart is too large to be one.
    #[error(
        "load chart {chart}: more than {MAX_FILES} files or {MAX_BYTES} bytes; is this the directory of a chart?"
    )]
    TooLarge {
        /// The chart.
        chart: String,
    },
    /// The chart is not among those that are built in.
    #[error(
        "no chart {chart} is built in; name a directory with charts of Istio: --manifests DIR or --set installPackagePath=DIR"
    )]
    NoChart {
        /// The chart.
        chart: String,
    },
}

/// Bounds of one chart.
const MAX_FILES: usize = 5_000;
const MAX_BYTES: usize = 64 << 20;

const DEFAULT_PROFILE: &str = "default";

const BUILT_IN: [(&str, &str); 10] = [
    ("ambient", include_str!("../profiles/ambient.yaml")),
    ("default", include_str!("../profiles/default.yaml")),
    ("demo", include_str!("../profiles/demo.yaml")),
    ("empty", include_str!("../profiles/empty.yaml")),
    ("minimal", include_str!("../profiles/minimal.yaml")),
    ("openshift", include_str!("../profiles/openshift.yaml")),
    ("openshift-ambient", include_str!("../profiles/openshift-ambient.yaml")),
    ("preview", include_str!("../profiles/preview.yaml")),
    ("remote", include_str!("../profiles/remote.yaml")),
    ("stable", include_str!("../profiles/stable.yaml")),
];

impl Package {
    /// The package in a directory with `charts` and `profiles`.
    pub fn open(directory: impl Into<PathBuf>) -> Self {
        Self { directory: Some(directory.into()) }
    }

    /// The profiles and charts that are built in.
    pub fn built_in() -> Self {
        Self::default()
    }

    /// The names of the profiles.
    pub fn profiles(&self) -> Vec<String> {
        let Some(directory) = &self.directory else {
            return BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
        };
        let entries = fs::read_dir(directory.join("profiles")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".yaml")?.to_owned()))
            .collect();
        names.sort();
        names
    }

    /// A profile over the default one.
    pub(crate) fn profile(&self, name: &str) -> Result<Tree, PackageError> {
        let name = if name.is_empty() { DEFAULT_PROFILE } else { name };
        let mut base = self.read_profile(DEFAULT_PROFILE)?;
        if name != DEFAULT_PROFILE {
            tree::merge(&mut base, self.read_profile(name)?);
        }
        Ok(base)
    }

    fn read_profile(&self, name: &str) -> Result<Tree, PackageError> {
        let unknown =
            || PackageError::UnknownProfile { name: name.to_owned(), known: self.profiles().join(", ") };
        // The name comes from users and must not lead out of the directory.
        if name.contains(['/', '\\']) || name.starts_with('.') {
            return Err(unknown());
        }
        let text = match &self.directory {
            None => {
                let found = BUILT_IN.iter().find(|(known, _)| *known == name);
                found.map(|(_, text)| (*text).to_owned()).ok_or_else(unknown)?
            }
            Some(directory) => {
                fs::read_to_string(directory.join(format!("profiles/{name}.yaml"))).map_err(|_| unknown())?
            }
        };
        let refused = |reason: String| PackageError::Profile { name: name.to_owned(), reason };
        let document =
            yaml::parse_one(&text, &Limits::default()).map_err(|error| refused(error.to_string()))?;
        match document.to_json() {
            Json::Object(tree) => Ok(tree),
            other => Err(refused(format!("expected a map, found a {}", tree::kind(&other)))),
        }
    }

    /// A chart by its path below `charts`.
    pub fn chart(&self, name: &str) -> Result<Chart, PackageError> {
        match &self.directory {
            Some(directory) => load_chart(&directory.join("charts").join(name)),
            None => built_in_chart(name),
        }
    }

    /// The values as the chart of a component takes them.
    pub(crate) fn values_for(&self, component: &Component, values: Json) -> Json {
        match component.key {
            _ if self.directory.is_some() => values,
            _ if component.is_gateway() => own_charts::gateway_values(component, values),
            "cni" => own_charts::flat_values(component, values),
            _ => values,
        }
    }
}

fn built_in_chart(name: &str) -> Result<Chart, PackageError> {
    let files = own_charts::files(name);
    if files.is_empty() {
        return Err(PackageError::NoChart { chart: name.to_owned() });
    }
    Chart::from_files(files).map_err(|error| PackageError::Chart { chart: name.to_owned(), error })
}

/// Reads a chart from its directory.
pub fn load_chart(directory: &Path) -> Result<Chart, PackageError> {
    let chart = directory.display().to_string();
    let mut files = BTreeMap::new();
    let mut bytes = 0;
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        let read = |error| PackageError::Read { path: folder.display().to_string(), error };
        for entry in fs::read_dir(&folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.is_dir() {
                let real = |path: &Path| {
                    let unread = |error| PackageError::Read { path: path.display().to_string(), error };
                    fs::canonicalize(path).map_err(unread)
                };
                if real(&folder)?.starts_with(real(&path)?) {
                    return Err(PackageError::Cycle { chart, path: path.display().to_string() });
                }
                folders.push(path);
                continue;
            }
            let content = fs::read(&path)
                .map_err(|error| PackageError::Read { path: path.display().to_string(), error })?;
            bytes += content.len();
            if files.len() >= MAX_FILES || bytes > MAX_BYTES {
                return Err(PackageError::TooLarge { chart });
            }
            let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            files.insert(name, content);
        }
    }
    Chart::from_files(files).map_err(|error| PackageError::Chart { chart, error })
}

/// The release that a chart is rendered for.
#[derive(Clone, Debug)]
pub struct ChartRelease {
    /// The name of the release.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
    /// The version of the cluster: `1.32.0`.
    pub kubernetes_version: String,
    /// Whether it replaces an earlier revision.
    pub is_upgrade: bool,
}

/// The oldest Kubernetes that is supported; charts are rendered for it unless a cluster says otherwise.
pub(crate) const OLDEST_KUBERNETES: &str = "1.32.0";

impl ChartRelease {
    /// The first revision of a release, on the oldest cluster that is supported.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            kubernetes_version: OLDEST_KUBERNETES.to_owned(),
            is_upgrade: false,
        }
    }

    /// Renders a chart, and gives the texts of its files by their paths, in order; notes are among them.
    pub fn render(&self, chart: &Chart, values: &Json) -> Result<Vec<(String, String)>, chart::Error> {
        let mut release = Release::new(&self.name, &self.namespace);
        release.is_upgrade = self.is_upgrade;
        release.capabilities = Capabilities::for_kubernetes(&self.kubernetes_version);
        let mut files = chart::render_files(chart, &Value::from(values.clone()), &release)?;
        files.sort();
        Ok(files)
    }
}
