//! WorkloadEntries of machines that registered themselves and went away.

use std::sync::Arc;
use std::time::Duration;

use canopus_api::istio::WorkloadEntry;
use canopus_api::{Kind, Object, annotations};
use canopus_engine::{QueryError, Snapshot};
use canopus_mesh::world::{ObjectIndex, Objects, Settings};
use canopus_runtime::flags::PILOT_WORKLOAD_ENTRY_GRACE_PERIOD;
use jiff::Timestamp;

use crate::controller::{Change, Controller, Plan, Write};

/// Deletes registered WorkloadEntries some time after their machine disconnected.
///
/// An entry that says it is connected is left alone, unless its connection would have ended by itself by now: the control
/// plane and the machine went away at once, and nobody wrote that.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadEntryCleanupController {
    /// How long a connection lasts at most; none if it has no end.
    pub longest_connection: Option<Duration>,
}

impl Controller for WorkloadEntryCleanupController {
    fn name(&self) -> &'static str {
        "workload-entry-cleanup"
    }

    fn plan(&self, world: &Snapshot, now: Timestamp) -> Result<Plan, QueryError> {
        let mut plan = Plan::default();
        let Some(settings) = world.read::<Settings>(&()) else { return Ok(plan) };
        let grace = settings.flags.get(PILOT_WORKLOAD_ENTRY_GRACE_PERIOD);
        for origin in world.members::<Objects>(&ObjectIndex::Kind(Kind::WorkloadEntry)).iter() {
            let object = world.read::<Objects>(origin).filter(|_| origin.cluster == settings.cluster);
            let Some(entry) = object.as_deref().and_then(Object::get::<WorkloadEntry>) else { continue };
            let Some(end) = self.end(entry, grace) else { continue };
            match Duration::try_from(end.duration_since(now)) {
                Ok(left) if !left.is_zero() => {
                    plan.again_in = Some(plan.again_in.map_or(left, |earlier| earlier.min(left)));
                }
                _ => {
                    let change = Change::Delete { version: entry.meta.resource_version.clone() };
                    plan.writes.push(Arc::new(Write { target: origin.key.clone(), change }));
                }
            }
        }
        Ok(plan)
    }
}

impl WorkloadEntryCleanupController {
    /// When an entry is to be deleted; `None` if it stays.
    fn end(&self, entry: &WorkloadEntry, grace: Duration) -> Option<Timestamp> {
        let annotation = |name: &str| entry.meta.annotation(name).filter(|value| !value.is_empty());
        annotation(annotations::AUTO_REGISTRATION_GROUP.name)?;
        if let Some(connected) = annotation(annotations::CONNECTED_AT.name) {
            return connected.parse::<Timestamp>().ok()?.checked_add(self.longest_connection?).ok();
        }
        let disconnected = annotation(annotations::DISCONNECTED_AT.name)?;
        match disconnected.parse::<Timestamp>() {
            Ok(since) => since.checked_add(grace).ok(),
            // Parity: a time that cannot be read is long ago.
            Err(_) => Some(Timestamp::UNIX_EPOCH),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::world;

    fn planned(annotations: &str) -> Plan {
        let entry = format!(
            "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{name: vm, namespace: shop, \
             resourceVersion: '7', annotations: {{{annotations}}}}}\nspec: {{address: 192.0.2.1}}\n"
        );
        let controller =
            WorkloadEntryCleanupController { longest_connection: Some(Duration::from_secs(3600)) };
        controller.plan(&world(&entry).snapshot(), "2026-01-01T12:00:00Z".parse().unwrap()).unwrap()
    }

    #[test]
    fn entry_goes_when_its_machine_was_away_for_the_grace_period() {
        let group = "istio.io/autoRegistrationGroup: wg";
        let gone = planned(&format!("{group}, istio.io/disconnectedAt: '2026-01-01T11:59:00Z'"));
        assert!(gone.writes[0].change == Change::Delete { version: "7".into() }, "{gone:?}");
        let just_gone = planned(&format!("{group}, istio.io/disconnectedAt: '2026-01-01T11:59:57Z'"));
        assert_eq!((just_gone.writes.len(), just_gone.again_in), (0, Some(Duration::from_secs(7))));
        assert_eq!(
            planned("istio.io/disconnectedAt: '2026-01-01T11:00:00Z'").writes,
            [],
            "somebody wrote it by hand"
        );
    }

    #[test]
    fn connected_entry_stays_until_its_connection_must_have_ended() {
        let connected = |at: &str| {
            planned(&format!(
                "istio.io/autoRegistrationGroup: wg, istio.io/connectedAt: '2026-01-01T{at}:00Z'"
            ))
            .writes
            .len()
        };
        assert_eq!((connected("11:30"), connected("10:30")), (0, 1));
    }
}
