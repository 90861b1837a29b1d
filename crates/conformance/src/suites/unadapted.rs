//! Suites that nothing runs: those that have no adapter yet, and those that are inputs only.

use super::{NO_ADAPTER, Suite};
use crate::case::{Case, Outcome};
use crate::dump::Dump;

/// A suite with cases and nothing to run them.
pub(super) struct Unadapted {
    pub(super) name: String,
}

impl Suite for Unadapted {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, _: &Case, _: &Dump) -> Outcome {
        Outcome::Skipped(NO_ADAPTER)
    }
}

/// Data without expected outcome, which other suites and checks feed on.
pub(super) struct Inputs {
    pub(super) name: String,
    pub(super) files: usize,
}

impl Suite for Inputs {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, _: &Case, _: &Dump) -> Outcome {
        Outcome::Skipped("inputs without expected outcome")
    }

    fn note(&self) -> String {
        format!("inputs: {} files", self.files)
    }
}
