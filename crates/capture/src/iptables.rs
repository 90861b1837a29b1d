//! iptables programs: ordered rules per family, and the texts that commands take them in.
//!
//! A [`RuleSet`] holds the rules of one family in the order they are made. The kernel's order follows from it: appended
//! rules go to the end of their chain, inserted ones to a position. From the same list come the input of
//! `iptables-restore`, the single commands, the checks whether the rules are there, and the commands that take them away.

mod ambient;
mod rule;
mod sidecar;
mod state;

pub use ambient::{ambient_host, ambient_pod};
pub use rule::{Arguments, Rule, RuleSet};
pub(crate) use sidecar::OUTBOUND_MARK;
pub use sidecar::{sidecar, superseded};
pub use state::{Leftovers, SavedState};

use crate::config::Family;

/// Chains with this prefix are ours, in every table.
const OWN_PREFIX: &str = "ISTIO_";

/// Whether a chain is one that capture makes.
pub(crate) fn is_own_chain(chain: &str) -> bool {
    chain.starts_with(OWN_PREFIX)
}

/// The rules of both families.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleProgram {
    /// The rules for IPv4.
    pub v4: RuleSet,
    /// The rules for IPv6; `None` if it is not captured.
    pub v6: Option<RuleSet>,
}

impl RuleProgram {
    pub(crate) fn build(families: &[Family], rules: impl Fn(Family) -> RuleSet) -> Self {
        Self { v4: rules(Family::V4), v6: families.contains(&Family::V6).then(|| rules(Family::V6)) }
    }

    /// The rules of a family, if it is captured.
    pub fn rules(&self, family: Family) -> Option<&RuleSet> {
        match family {
            Family::V4 => Some(&self.v4),
            Family::V6 => self.v6.as_ref(),
        }
    }
}

/// Rules that stop all TCP and UDP, for the moments in which old rules are gone and new ones are not there yet.
pub(crate) fn guardrails() -> RuleSet {
    let mut rules = RuleSet::default();
    for chain in ["INPUT", "FORWARD", "OUTPUT"] {
        for protocol in ["tcp", "udp"] {
            rules.insert("filter", chain, 1, format!("-p {protocol} -j DROP"));
        }
    }
    rules
}
