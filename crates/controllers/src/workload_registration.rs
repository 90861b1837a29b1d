//! WorkloadEntries of machines that register themselves when they connect.
//!
//! Each replica writes for the machines that are, or were, connected to it. An entry says by annotations whose it is:
//!
//! ```text
//!   connects:      istio.io/workloadController: <replica>, istio.io/connectedAt: <time>    (created if it is not there)
//!   disconnects:   connectedAt goes, istio.io/disconnectedAt: <time> comes; somebody cleans up after a grace period
//! ```
//!
//! Of several replicas the one with the latest `connectedAt` has the entry: a machine that moves is taken over by the new
//! replica, and what the old one still knows of it counts no more. Every write tests the resource version it was computed from,
//! so two replicas that act at once do not overwrite each other.
//!
//! A machine may also say that it is an entry which somebody wrote. Such an entry is never created, and annotated only if its health
//! is watched.
//!
//! What a machine reports of its health becomes the condition `Healthy` of its entry, by whoever has the entry.

use std::sync::Arc;

use canopus_api::istio::{WorkloadEntry, WorkloadGroup};
use canopus_api::{Kind, Meta, Object, ObjectKey, annotations};
use canopus_engine::{Input, QueryError, Snapshot};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::registration;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_runtime::flags::{
    ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY, PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::{Change, Controller, Plan, Write};
use crate::status_write::{present, status_write};

/// The condition that says whether a machine is well.
pub(crate) const HEALTHY: &str = "Healthy";

/// The engine input with the machines that are connected to this replica, or were a short while ago, by the WorkloadEntry
/// that each of them is.
pub struct Machines;

impl Input for Machines {
    const NAME: &'static str = "registering_machines";
    type Key = ObjectKey;
    type Value = Machine;
    type Index = ();

    fn index(_: &ObjectKey, _: &Machine) -> Vec<()> {
        vec![()]
    }
}

/// A machine outside the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Who it says it is, and who it proved to be.
    pub proxy: Proxy,
    /// When it connected.
    pub connected: Timestamp,
    /// When its last connection ended, if it has none now.
    pub disconnected: Option<Timestamp>,
    /// What it last reported of itself.
    pub health: Option<Health>,
}

/// What a machine reports of its health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What is wrong, if anything is.
    pub fault: Option<String>,
    /// When it was reported.
    pub time: Timestamp,
}

/// Registers machines.
#[derive(Clone, Debug)]
pub struct WorkloadRegistrationController {
    /// The name of this replica among all.
    pub replica: String,
}

impl WorkloadRegistrationController {
    /// Whether a write of this controller says that a machine is gone.
    pub fn releases(write: &Write) -> bool {
        let gone = pointer(annotations::DISCONNECTED_AT.name);
        let Change::Patch { operations } = &write.change else { return false };
        let operations = operations.as_array().map(Vec::as_slice).unwrap_or_default();
        operations.iter().any(|operation| operation["op"] == "add" && operation["path"] == *gone)
    }
}

impl Controller for WorkloadRegistrationController {
    fn name(&self) -> &'static str {
        "workload-registration"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        let mut plan = Plan::default();
        let Some(settings) = world.read::<Settings>(&()) else { return Ok(plan) };
        for key in world.members::<Machines>(&()).iter() {
            let Some(machine) = world.read::<Machines>(key) else { continue };
            let lookup = |key: ObjectKey| world.read::<Objects>(&Origin::new(settings.cluster.clone(), key));
            let group = ObjectKey::new(Kind::WorkloadGroup, &key.namespace, machine.group());
            let registration = Registration {
                replica: &self.replica,
                settings: &settings,
                key,
                machine: &machine,
                entry: lookup(key.clone()),
                group: lookup(group),
            };
            match registration.pending() {
                Ok(write) => plan.writes.extend(write),
                Err(fault) => _ = plan.faults.insert(key.clone(), fault),
            }
        }
        Ok(plan)
    }
}

impl Machine {
    fn group(&self) -> &str {
        &self.proxy.metadata.auto_register_group
    }

    /// Whether it has proved that it may be this entry; the error says what it lacks.
    fn check(&self, settings: &MeshSettings, namespace: &str, account: &str) -> Result<(), String> {
        if !settings.flags.get(ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY) {
            return Ok(());
        }
        let node = &self.proxy.id.id;
        let Some(identity) = &self.proxy.identity else {
            return Err(format!(
                "{node} has not proved who it is; it must connect with a certificate or a token"
            ));
        };
        let own = (&*identity.namespace, &*identity.service_account);
        if own.0 != namespace || !account.is_empty() && own.1 != account {
            let wanted = if account.is_empty() { "any service account" } else { account };
            return Err(format!(
                "{node} proved to be {}/{} and not {wanted} of namespace {namespace}",
                own.0, own.1
            ));
        }
        Ok(())
    }
}

/// What is known of one machine.
struct Registration<'a> {
    replica: &'a str,
    settings: &'a MeshSettings,
    key: &'a ObjectKey,
    machine: &'a Machine,
    entry: Option<Arc<Object>>,
    group: Option<Arc<Object>>,
}

impl Registration<'_> {
    /// The write that is needed next; the error says why the machine is not registered.
    fn pending(&self) -> Result<Option<Arc<Write>>, String> {
        let Some(object) = &self.entry else {
            return if self.machine.disconnected.is_some() { Ok(None) } else { self.create().map(Some) };
        };
        let Some(entry) = object.get::<WorkloadEntry>() else { return Ok(None) };
        if self.machine.group().is_empty() && !registration::is_health_checked(&entry.meta) {
            return Ok(None);
        }
        self.machine.check(self.settings, &entry.meta.namespace, &entry.spec.service_account)?;
        let lease = Lease::of(&entry.meta);
        if let Some(since) = self.machine.disconnected {
            let is_ours = lease.replica == Some(self.replica)
                && lease.connected.is_some_and(|connected| connected <= self.machine.connected);
            return Ok(is_ours.then(|| self.release(&entry.meta, since)));
        }
        let is_outdated = lease.disconnected.is_some_and(|gone| gone > self.machine.connected)
            || lease.connected.is_some_and(|other| other > self.machine.connected);
        if is_outdated {
            // The machine has moved on to another replica since.
            return Ok(None);
        }
        if lease.replica != Some(self.replica) || lease.connected != Some(self.machine.connected) {
            return Ok(Some(self.take(&entry.meta)));
        }
        Ok(self.health(object, entry))
    }

    fn create(&self) -> Result<Arc<Write>, String> {
        let node = &self.machine.proxy.id.id;
        if self.machine.group().is_empty() {
            let ObjectKey { namespace, name, .. } = self.key;
            return Err(format!(
                "{node} is WorkloadEntry {namespace}/{name}, which does not exist; create it"
            ));
        }
        let group = self.group.as_deref().and_then(Object::get::<WorkloadGroup>).ok_or_else(|| {
            let (namespace, name) = (&self.key.namespace, self.machine.group());
            format!(
                "{node} wants to register with WorkloadGroup {namespace}/{name}, which does not exist; create it"
            )
        })?;
        let entry = registration::entry(&self.settings.flags, &self.machine.proxy, group)
            .ok_or_else(|| "the proxy has no address to register".to_owned())?;
        self.machine.check(self.settings, &entry.meta.namespace, &entry.spec.service_account)?;
        let mut object = Object::WorkloadEntry(Arc::new(entry)).to_node().to_json();
        let annotations = &mut object["metadata"]["annotations"];
        annotations[annotations::WORKLOAD_CONTROLLER.name] = self.replica.into();
        annotations[annotations::CONNECTED_AT.name] = self.machine.connected.to_string().into();
        if !group.meta.uid.is_empty() {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": Kind::WorkloadGroup.info().api_version(),
                "kind": "WorkloadGroup",
                "name": group.meta.name,
                "uid": group.meta.uid,
                "controller": true,
            }]);
        }
        Ok(self.write(Change::Create { object }))
    }

    /// Makes the entry ours.
    fn take(&self, meta: &Meta) -> Arc<Write> {
        let connected = self.machine.connected.to_string();
        let mut operations = vec![unchanged(meta)];
        if meta.annotations.is_empty() {
            operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
        }
        operations.push(annotate(annotations::WORKLOAD_CONTROLLER.name, self.replica));
        operations.push(annotate(annotations::CONNECTED_AT.name, &connected));
        operations.extend(forget(meta, annotations::DISCONNECTED_AT.name));
        self.write(Change::Patch { operations: operations.into() })
    }

    /// Says that the machine is gone. The replica stays in the entry, so that it is known who cleans up.
    fn release(&self, meta: &Meta, since: Timestamp) -> Arc<Write> {
        let mut operations = vec![unchanged(meta)];
        operations.extend(forget(meta, annotations::CONNECTED_AT.name));
        operations.push(annotate(annotations::DISCONNECTED_AT.name, &since.to_string()));
        self.write(Change::Patch { operations: operations.into() })
    }

    /// Writes what the machine reports into the status of an entry whose health is watched.
    fn health(&self, object: &Arc<Object>, entry: &WorkloadEntry) -> Option<Arc<Write>> {
        let health = self.machine.health.as_ref()?;
        let is_watched = registration::is_health_checked(&entry.meta)
            && self.settings.flags.get(PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS);
        if !is_watched {
            return None;
        }
        let mut status = present(object);
        if !status.is_object() {
            status = json!({});
        }
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let at = conditions.iter().position(|condition| condition["type"] == HEALTHY);
        let before = at.map(|at| conditions.remove(at)).unwrap_or_default();
        let word = if health.fault.is_none() { "True" } else { "False" };
        let time = json!(health.time.to_string());
        let is_newer = |field: &str| {
            let written = before[field].as_str().and_then(|text| text.parse::<Timestamp>().ok());
            written.is_some_and(|written| written >= health.time)
        };
        if is_newer("lastProbeTime") {
            return None;
        }
        let stays = before["status"] == word && before["lastTransitionTime"].is_string();
        let mut condition = json!({
            "type": HEALTHY,
            "status": word,
            "lastProbeTime": time,
            "lastTransitionTime": if stays { &before["lastTransitionTime"] } else { &time },
        });
        if let Some(fault) = &health.fault {
            condition["message"] = fault.as_str().into();
        }
        conditions.insert(at.unwrap_or(conditions.len()), condition);
        status["conditions"] = conditions.into();
        let origin = Origin::new(self.settings.cluster.clone(), self.key.clone());
        status_write(&origin, Arc::clone(object), status)
    }

    fn write(&self, change: Change) -> Arc<Write> {
        Arc::new(Write { target: self.key.clone(), change })
    }
}

/// Whose an entry is.
struct Lease<'a> {
    replica: Option<&'a str>,
    connected: Option<Timestamp>,
    disconnected: Option<Timestamp>,
}

impl<'a> Lease<'a> {
    fn of(meta: &'a Meta) -> Self {
        // A time that cannot be read is long ago: whoever has a better one may have the entry.
        let time = |name| meta.annotation(name).and_then(|text| text.parse().ok());
        Self {
            replica: meta.annotation(annotations::WORKLOAD_CONTROLLER.name),
            connected: time(annotations::CONNECTED_AT.name),
            disconnected: time(annotations::DISCONNECTED_AT.name),
        }
    }
}

fn unchanged(meta: &Meta) -> Value {
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version})
}

fn annotate(name: &str, value: &str) -> Value {
    json!({"op": "add", "path": pointer(name), "value": value})
}

fn forget(meta: &Meta, name: &str) -> Option<Value> {
    meta.annotation(name).map(|_| json!({"op": "remove", "path": pointer(name)}))
}

/// Where an annotation is, as JSON pointers have it.
fn pointer(annotation: &str) -> String {
    format!("/metadata/annotations/{}", annotation.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests;
