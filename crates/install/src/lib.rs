//! Installation: from charts, profiles and IstioOperator files to the objects of a mesh.
//!
//! ```text
//!  profile ◄─ user's files ◄─ --set         (inputs)     one IstioOperator
//!      └─► values of each component         (values)     typed values are checked (schema)
//!            └─► charts rendered            (package)    Helm's engine, from `gotemplate`
//!                  └─► patched objects      (post_process, path_patch)
//! ```
//!
//! Start with [`generate`]. Everything up to there is a pure function of texts, except [`Package::open`], which reads a
//! directory. [`cluster`] brings a cluster to what was generated: plan, apply, wait, prune, remove.

pub mod cluster;
mod component;
mod inputs;
mod manifest;
mod operator;
mod own_charts;
mod package;
pub mod path;
mod path_patch;
mod post_process;
mod render;
mod schema;
#[cfg(test)]
mod tests;
mod translate;
pub mod tree;
mod validate;

pub use component::Component;
pub use inputs::{Input, merge_for_install, merge_inputs};
pub use manifest::{Manifest, to_yaml};
pub use operator::Operator;
pub use package::{ChartRelease, Package, PackageError, load_chart};
pub use render::{Generated, generate};
pub use schema::type_at;
pub use translate::{Translated, translate};

/// Why an installation cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Charts or profiles are missing or broken.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A file is no YAML.
    #[error("{file}: {error}")]
    Syntax {
        /// The file.
        file: String,
        /// What is wrong.
        error: canopus_base::yaml::Error,
    },
    /// A file is YAML, but no IstioOperator.
    #[error("{file}: {reason}")]
    Input {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A `--set` flag cannot be applied.
    #[error("--set {flag}: {reason}")]
    Set {
        /// The flag.
        flag: String,
        /// What is wrong.
        reason: String,
    },
    /// The configuration says what cannot be; never empty.
    #[error("{}", .0.join(", "))]
    Invalid(Vec<String>),
    /// A component is not what it should be.
    #[error("get component {component}: {reason}")]
    Component {
        /// The component.
        component: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A chart could not be rendered.
    #[error("helm render: render chart {chart}: {error}")]
    Chart {
        /// The chart.
        chart: String,
        /// What is wrong.
        error: Box<canopus_gotemplate::chart::Error>,
    },
    /// A rendered object could not be patched.
    #[error("post processing: {object}: {reason}")]
    Patch {
        /// The object.
        object: String,
        /// What is wrong.
        reason: String,
    },
}
