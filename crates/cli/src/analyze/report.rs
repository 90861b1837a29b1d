//! What an analysis came to.

use canopus_analysis::Outcome;

/// A file of which something could not be read.
#[derive(Debug)]
pub(super) struct FileError {
    pub(super) file: String,
    /// The numbers of documents, from 0, with what is wrong with them.
    pub(super) documents: Vec<(usize, String)>,
}

/// What an analysis came to.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The namespace that was analyzed; empty for all.
    pub(super) namespace: String,
    /// The files that were read.
    pub(super) files: Vec<String>,
    /// What people should know before.
    pub(super) notes: Vec<String>,
    pub(super) errors: Vec<FileError>,
    pub(super) outcome: Outcome,
    /// Whether messages say which cluster they are about.
    pub(super) with_clusters: bool,
}

impl Report {
    /// What was analyzed.
    pub(super) fn target(&self) -> String {
        if self.namespace.is_empty() {
            "all namespaces".to_owned()
        } else {
            format!("namespace: {}", self.namespace)
        }
    }
}
