//! Filter chains that match the same connections, which Envoy would refuse with their whole listener.
//!
//! Istio sends them all the same, so a proxy that does not say what it was built with still gets them.

use std::collections::BTreeSet;

use super::draft::Match;
use crate::audience::Build;

/// Filter chains of which no two match the same connections: the first stays.
pub(crate) struct DistinctChains {
    /// What the chains so far match; `None` if they need not differ.
    seen: Option<BTreeSet<Vec<u8>>>,
}

impl DistinctChains {
    /// Starts without chains.
    pub(crate) fn new(build: &Build) -> Self {
        Self { seen: build.is_known().then(BTreeSet::new) }
    }

    /// Whether a chain that matches these connections can be one of them.
    pub(crate) fn admits(&mut self, matched: Option<&Match<'_>>) -> bool {
        let matched = || matched.map(Match::encode).unwrap_or_default();
        self.seen.as_mut().is_none_or(|seen| seen.insert(matched()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_chains_with_equal_matches_stays() {
        let admitted = |mut chains: DistinctChains| {
            [1, 2, 1].map(|port| chains.admits(Some(&Match { port, ..Default::default() })))
        };
        assert_eq!(admitted(DistinctChains { seen: Some(BTreeSet::new()) }), [true, true, false]);
        assert_eq!(admitted(DistinctChains { seen: None }), [true; 3]);
    }
}
