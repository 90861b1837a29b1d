//! Status conditions.

use std::collections::BTreeMap;

use canopus_api::value::{Condition, ConditionStatus};

use super::fault::Fault;

/// The conditions of one object or listener, by type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conditions(BTreeMap<&'static str, State>);

#[derive(Clone, Debug, PartialEq)]
struct State {
    /// The status of the condition without a fault.
    wanted: bool,
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Conditions {
    /// Sets a condition that is true unless a fault is found.
    pub(super) fn expect(&mut self, kind: &'static str, reason: &'static str, message: impl Into<String>) {
        self.set(kind, true, reason, message);
    }

    /// Sets a condition.
    pub(super) fn set(
        &mut self,
        kind: &'static str,
        holds: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.0.insert(kind, State { wanted: holds, holds, reason, message: message.into() });
    }

    /// Marks a condition as failed. The last fault wins.
    pub(super) fn fail(&mut self, kind: &'static str, fault: &Fault) {
        let wanted = self.0.get(kind).is_none_or(|state| state.wanted);
        let state = State { wanted, holds: !wanted, reason: fault.reason, message: fault.message.clone() };
        self.0.insert(kind, state);
    }

    /// Updates the conditions of the present status and appends new ones. A condition whose status is unchanged keeps its
    /// transition time; the writer of the status sets that of the others.
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
