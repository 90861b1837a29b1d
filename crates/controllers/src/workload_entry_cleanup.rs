//! WorkloadEntries of machines that went away: those that registered themselves go, of others nothing is known any more.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::istio::WorkloadEntry;
use canopus_api::{Kind, Meta, Object, annotations};
use canopus_engine::{Ctx, Engine, Query, QueryError, Snapshot};
use canopus_mesh::registration::is_health_checked;
use canopus_mesh::world::{ObjectIndex, Objects, Origin, Settings, settings};
use canopus_runtime::flags::PILOT_WORKLOAD_ENTRY_GRACE_PERIOD;
use jiff::Timestamp;

use crate::controller::{Basis, Change, Controller, Plan, Write};
use crate::status_write::{present, status_write};
use crate::workload_registration::HEALTHY;

/// Deletes registered WorkloadEntries some time after their machine disconnected. Entries that somebody wrote lose what their
/// machine reported of its health.
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
        for (origin, object) in world.get::<MachineEntries>(&())?.iter() {
            let Some(entry) = object.get::<WorkloadEntry>() else { continue };
            let Some(end) = self.end(entry, grace) else { continue };
            match Duration::try_from(end.duration_since(now)) {
                Ok(left) if !left.is_zero() => {
                    plan.again_in = Some(plan.again_in.map_or(left, |earlier| earlier.min(left)));
                }
                _ => {
                    plan.writes.extend(clean_up(origin, entry, object));
                }
            }
        }
        Ok(plan)
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Some(Basis::result::<MachineEntries>(world, &())?.and_input::<Settings>(world, &()))
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<MachineEntries>(())))
    }
}

/// The WorkloadEntries of machines that registered themselves, and those that carry a machine's report of its health.
struct MachineEntries;

impl Query for MachineEntries {
    const NAME: &'static str = "machine_entries";
    type Key = ();
    type Value = Vec<(Origin, Arc<Object>)>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        let origins = ctx.members::<Objects>(&ObjectIndex::Kind(Kind::WorkloadEntry));
        let own = origins.iter().filter(|origin| origin.cluster == settings.cluster);
        let objects = own.filter_map(|origin| Some((origin.clone(), ctx.read::<Objects>(origin)?)));
        let is_of_machine = |object: &Object| {
            object.get::<WorkloadEntry>().is_some_and(|entry| {
                is_registered(entry) || is_health_checked(&entry.meta) && says_health(entry)
            })
        };
        objects.filter(|(_, object)| is_of_machine(object)).collect()
    }
}

/// The value of an annotation that is not empty.
fn annotation<'a>(meta: &'a Meta, name: &str) -> Option<&'a str> {
    meta.annotation(name).filter(|value| !value.is_empty())
}

impl WorkloadEntryCleanupController {
    /// When an entry is to be cleaned up; `None` if it stays as it is.
    fn end(&self, entry: &WorkloadEntry, grace: Duration) -> Option<Timestamp> {
        let annotation = |name: &str| annotation(&entry.meta, name);
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

fn is_registered(entry: &WorkloadEntry) -> bool {
    annotation(&entry.meta, annotations::AUTO_REGISTRATION_GROUP.name).is_some()
}

fn says_health(entry: &WorkloadEntry) -> bool {
    entry.status.conditions.iter().any(|condition| condition.r#type == HEALTHY)
}

fn clean_up(origin: &Origin, entry: &WorkloadEntry, object: &Arc<Object>) -> Option<Arc<Write>> {
    if is_registered(entry) {
        let change = Change::Delete { version: entry.meta.resource_version.clone() };
        return Some(Arc::new(Write { target: origin.key.clone(), change }));
    }
    let mut status = present(object);
    let conditions = status["conditions"].as_array_mut()?;
    conditions.retain(|condition| condition["type"] != HEALTHY);
    status_write(origin, object.clone(), status)
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
