//! Rows of a report.

use crate::figure::Unit;
use crate::scenario::Scenario;

/// A figure of both subjects, over all rounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The scenario.
    pub(crate) scenario: Scenario,
    /// What was measured.
    pub(crate) name: String,
    /// The median of ours.
    pub(crate) value: Option<f64>,
    /// What it counts in.
    pub(crate) unit: Unit,
    /// The median of ours, as people read it.
    pub(crate) ours: Option<String>,
    /// The median of the peer's, as people read it.
    pub(crate) theirs: Option<String>,
    /// How many times ours the peer's is, by the median of rounds.
    pub(crate) ratio: Option<f64>,
}
