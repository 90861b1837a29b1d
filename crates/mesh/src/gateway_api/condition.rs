//! Conditions: what is observed of an object, as its status says it.

use std::collections::BTreeMap;

use canopus_api::value::{Condition, ConditionStatus};

use super::fault::Fault;

/// Observations about one thing, by type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conditions(BTreeMap<&'static str, State>);

#[derive(Clone, Debug, PartialEq)]
struct State {
    /// What the condition is when nothing is wrong.
    wanted: bool,
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Conditions {
    /// A condition that is true unless something is found.
    pub(super) fn expect(&mut self, kind: &'static str, reason: &'static str, message: impl Into<String>) {
        self.set(kind, true, reason, message);
    }

    /// A condition, whichever way it is.
    pub(super) fn set(
        &mut self,
        kind: &'static str,
        holds: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.0.insert(kind, State { wanted: holds, holds, reason, message: message.into() });
    }

    /// A condition is not as it should be; the last fault counts.
    pub(super) fn fail(&mut self, kind: &'static str, fault: &Fault) {
        let wanted = self.0.get(kind).is_none_or(|state| state.wanted);
        let state = State { wanted, holds: !wanted, reason: fault.reason, message: fault.message.clone() };
        self.0.insert(kind, state);
    }

    /// The conditions in the places they have in the present status, new ones at the end. One that has not turned keeps the
    /// time at which it did; one that has gets its time from whoever writes it.
    pub(super) fn write(&self, generation: i64, present: &[Condition]) -> Vec<Condition> {
        let mut written = present.to_vec();
        for (kind, state) in &self.0 {
            let status = if state.holds { ConditionStatus::True } else { ConditionStatus::False };
            let mut condition = Condition {
                r#type: (*kind).into(),
                status,
                observed_generation: generation,
                last_transition_time: None,
                reason: state.reason.into(),
                message: state.message.as_str().into(),
            };
            match written.iter_mut().find(|present| *present.r#type == **kind) {
                Some(present) => {
                    if present.status == condition.status {
                        condition.last_transition_time = present.last_transition_time;
                    }
                    *present = condition;
                }
                None => written.push(condition),
            }
        }
        written
    }
}
