//! One case of a suite, and what became of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use canopus_base::tree::Node;

use crate::compare::Difference;
use crate::corpus::Corpus;

/// An input with an expected outcome.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Unique within its suite.
    pub(crate) id: String,
    pub(crate) corpus: Corpus,
    /// The directory its file names are relative to, itself relative to the root of the corpus.
    pub(crate) directory: Arc<Path>,
    /// The file it stands in, relative to `directory`.
    pub(crate) file: Arc<Path>,
    /// The case's entry in that file; null if the whole file is the case.
    pub(crate) entry: Node,
    /// What the entries of that file have in common, such as defaults.
    pub(crate) shared: Arc<Node>,
}

impl Case {
    /// A file of the suite, relative to the root of the corpus.
    pub(crate) fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.directory.join(file)
    }

    /// A text field of the entry.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.entry.get(key)?.as_str()
    }
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Pass,
    Fail(Vec<Difference>),
    /// Differs, as the recording is stale and we send the truth; why.
    Better(&'static str),
    /// Not run, which counts as not passed.
    Skipped(&'static str),
    /// Not run, as a real component is not installed here. The ratchet does not hold it against anybody.
    Missing(&'static str),
}

impl Outcome {
    /// A failure that is not a difference of values.
    pub(crate) fn error(message: impl fmt::Display) -> Self {
        Self::Fail(vec![Difference::new("", "no error", message)])
    }

    pub(crate) fn is_pass(&self) -> bool {
        matches!(self, Self::Pass)
    }

    pub(crate) fn is_better(&self) -> bool {
        matches!(self, Self::Better(_))
    }
}

impl From<Vec<Difference>> for Outcome {
    fn from(differences: Vec<Difference>) -> Self {
        if differences.is_empty() { Self::Pass } else { Self::Fail(differences) }
    }
}

impl From<anyhow::Result<Vec<Difference>>> for Outcome {
    fn from(result: anyhow::Result<Vec<Difference>>) -> Self {
        match result {
            Ok(differences) => differences.into(),
            Err(error) => Self::error(format_args!("{error:#}")),
        }
    }
}
