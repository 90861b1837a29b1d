//! What an expression has cost so far.

use super::error::{EvalError, Result};

/// What reading one character of a text costs.
const PER_CHARACTER: f64 = 0.1;
/// What one character of a regular expression costs for each unit of the text it runs over.
const PER_PATTERN_CHARACTER: f64 = 0.25;

/// Counts the cost of an expression in the API server's units, and stops it at its limit.
#[derive(Clone, Debug)]
pub(in crate::crd) struct Meter {
    used: u64,
    limit: u64,
}

impl Meter {
    pub(in crate::crd) const fn new(limit: u64) -> Self {
        Self { used: 0, limit }
    }

    pub(in crate::crd) const fn used(&self) -> u64 {
        self.used
    }

    pub(super) const fn charge(&mut self, cost: u64) -> Result<()> {
        self.used = self.used.saturating_add(cost);
        if self.used > self.limit { Err(EvalError::TooCostly) } else { Ok(()) }
    }

    /// Reading so many characters.
    pub(super) fn charge_text(&mut self, characters: usize) -> Result<()> {
        self.charge(text(characters))
    }

    /// Looking for one text in another.
    pub(super) fn charge_search(&mut self, characters: usize, wanted: usize) -> Result<()> {
        self.charge(text(characters).saturating_mul(text(wanted)))
    }

    /// Running a regular expression over a text.
    pub(super) fn charge_regex(&mut self, characters: usize, pattern: usize) -> Result<()> {
        let states = (pattern as f64 * PER_PATTERN_CHARACTER).ceil() as u64;
        self.charge(text(characters.saturating_add(1)).saturating_mul(states))
    }
}

fn text(characters: usize) -> u64 {
    (characters as f64 * PER_CHARACTER).ceil() as u64
}
