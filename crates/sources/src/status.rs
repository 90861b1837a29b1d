//! How sources are doing, and what people are told about it.

use std::fmt;
use std::sync::Arc;

use crate::change::{SourceInfo, SourcePart};

/// How far a part of a source can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is known yet, for this reason if there is one.
    Waiting {
        /// What the last attempt said.
        reason: Option<String>,
    },
    /// What is known comes from a snapshot.
    Restored,
    /// What is known is up to date.
    Live,
    /// The part does not exist, and the mesh can do without it.
    Absent {
        /// Why.
        reason: String,
    },
    /// What is known was up to date once; the source cannot be reached.
    Stale {
        /// Why.
        reason: String,
    },
}

impl Phase {
    /// Whether anything is known, be it that there is nothing.
    pub const fn is_known(&self) -> bool {
        !matches!(self, Self::Waiting { .. })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { reason: None } => f.write_str("waiting"),
            Self::Waiting { reason: Some(reason) } => write!(f, "waiting: {reason}"),
            Self::Restored => f.write_str("restored from the snapshot"),
            Self::Live => f.write_str("live"),
            Self::Absent { reason } => write!(f, "absent: {reason}"),
            Self::Stale { reason } => write!(f, "stale: {reason}"),
        }
    }
}

/// How one part of a source is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartStatus {
    /// The part.
    pub part: SourcePart,
    /// How far it can be trusted.
    pub phase: Phase,
}

/// How a source is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// The source.
    pub source: Arc<SourceInfo>,
    /// State of each part of the source.
    pub parts: Vec<PartStatus>,
    /// What is wrong with what it says.
    pub problems: Vec<String>,
}

impl SourceStatus {
    /// Whether something is known of every part.
    pub fn is_known(&self) -> bool {
        self.parts.iter().all(|part| part.phase.is_known())
    }

    /// Whether every part that exists is up to date.
    pub fn is_live(&self) -> bool {
        self.parts.iter().all(|part| matches!(part.phase, Phase::Live | Phase::Absent { .. }))
    }
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Good to know.
    Info,
    /// The operator should look.
    Warning,
}

/// A message for the operator, reported once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub severity: Severity,
    /// The source it is about.
    pub source: Box<str>,
    /// What it is.
    pub text: String,
}

impl Notice {
    pub(crate) fn info(source: Box<str>, text: String) -> Self {
        Self { severity: Severity::Info, source, text }
    }

    pub(crate) fn warning(source: Box<str>, text: String) -> Self {
        Self { severity: Severity::Warning, source, text }
    }
}
