//! What the control plane counts, under Istio's names.
//!
//! [`Metrics`] is told what happens on the push path; [`collect_model`] looks at the mesh whenever somebody asks.

mod admission;
mod calls;
mod certificate;
mod clients;
mod events;
mod issuing;
mod labels;
mod mishaps;
mod model;
mod remote;
mod sends;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use canopus_runtime::metrics::catalogue::{
    CANOPUS_CHANGE_TO_ACK_SECONDS, CANOPUS_PUSH_RECIPIENTS_TOTAL, CANOPUS_PUSHES_TOTAL,
    CONTROLLER_SYNC_ERRORS_TOTAL, PILOT_DEBOUNCE_TIME, PILOT_INBOUND_UPDATES, PILOT_K8S_CFG_EVENTS,
    PILOT_K8S_ENDPOINTS_WITH_NO_PODS, PILOT_K8S_REG_EVENTS, PILOT_PROXY_CONVERGENCE_TIME,
    PILOT_PROXY_QUEUE_TIME, PILOT_PUSH_TRIGGERS, PILOT_PUSHCONTEXT_INIT_SECONDS,
    PILOT_TOTAL_XDS_INTERNAL_ERRORS, PILOT_TOTAL_XDS_REJECTS, PILOT_XDS, PILOT_XDS_CDS_REJECT,
    PILOT_XDS_EDS_REJECT, PILOT_XDS_EXPIRED_NONCE, PILOT_XDS_LDS_REJECT, PILOT_XDS_RDS_REJECT,
    PILOT_XDS_SEND_TIME,
};
use canopus_runtime::metrics::{Counter, Family, Gauge, Histogram, Registry};
use canopus_xds::{Code, SessionEvent, types};
use parking_lot::Mutex;

pub use admission::AdmissionMetrics;
pub(crate) use calls::Call;
pub use calls::CallMetrics;
pub use issuing::IssuingMetrics;
pub use model::collect_model;
pub(crate) use remote::collect_remote_clusters;

use calls::code_name;
use sends::{Sends, label};

use crate::push::{AppliedBatch, Connection, Observer, Push, Stamp};

/// Batches of which it is remembered when they came.
const REMEMBERED: usize = 256;

/// Counts what happens.
pub struct Metrics {
    clients: Family<Gauge, 1>,
    sends: Sends,
    rejects: Family<Counter, 1>,
    rejects_of: [(&'static str, Family<Gauge, 2>); 4],
    expired: Family<Counter, 1>,
    triggers: Family<Counter, 1>,
    debounce: Histogram,
    apply_time: Histogram,
    queue_time: Histogram,
    convergence_time: Histogram,
    send_time: Histogram,
    internal_errors: Family<Counter, 0>,
    endpoints_before_pods: Family<Counter, 0>,
    updates: Family<Counter, 1>,
    registry_events: Family<Counter, 2>,
    configuration_events: Family<Counter, 2>,
    sync_errors: Family<Counter, 1>,
    change_to_ack: Histogram,
    batches: Family<Counter, 1>,
    recipients: Family<Counter, 1>,
    memory: Mutex<Memory>,
}

/// Versions of clients that keep a series after the last client of the version has left.
const MAX_VERSIONS: usize = 32;

/// When what came.
#[derive(Default)]
struct Memory {
    batches: VecDeque<Batch>,
    /// How many clients are connected.
    clients: usize,
    /// How many of each version.
    versions: BTreeMap<Box<str>, usize>,
}

#[derive(Clone, Copy)]
struct Batch {
    revision: u64,
    seen: Stamp,
    applied: Stamp,
}

impl Memory {
    fn batch(&self, revision: u64) -> Option<Batch> {
        self.batches.iter().rfind(|batch| batch.revision == revision).copied()
    }
}

impl Metrics {
    /// Counts in this registry.
    pub fn new(registry: &Registry) -> Self {
        Self {
            clients: registry.family(PILOT_XDS),
            sends: Sends::new(registry),
            rejects: registry.family(PILOT_TOTAL_XDS_REJECTS),
            rejects_of: [
                (types::CLUSTER, registry.family(PILOT_XDS_CDS_REJECT)),
                (types::ENDPOINT, registry.family(PILOT_XDS_EDS_REJECT)),
                (types::LISTENER, registry.family(PILOT_XDS_LDS_REJECT)),
                (types::ROUTE, registry.family(PILOT_XDS_RDS_REJECT)),
            ],
            expired: registry.family(PILOT_XDS_EXPIRED_NONCE),
            triggers: registry.family(PILOT_PUSH_TRIGGERS),
            debounce: registry.value(PILOT_DEBOUNCE_TIME),
            apply_time: registry.value(PILOT_PUSHCONTEXT_INIT_SECONDS),
            queue_time: registry.value(PILOT_PROXY_QUEUE_TIME),
            convergence_time: registry.value(PILOT_PROXY_CONVERGENCE_TIME),
            send_time: registry.value(PILOT_XDS_SEND_TIME),
            internal_errors: registry.family(PILOT_TOTAL_XDS_INTERNAL_ERRORS),
            endpoints_before_pods: registry.family(PILOT_K8S_ENDPOINTS_WITH_NO_PODS),
            updates: registry.family(PILOT_INBOUND_UPDATES),
            registry_events: registry.family(PILOT_K8S_REG_EVENTS),
            configuration_events: registry.family(PILOT_K8S_CFG_EVENTS),
            sync_errors: registry.family(CONTROLLER_SYNC_ERRORS_TOTAL),
            change_to_ack: registry.value(CANOPUS_CHANGE_TO_ACK_SECONDS),
            batches: registry.family(CANOPUS_PUSHES_TOTAL),
            recipients: registry.family(CANOPUS_PUSH_RECIPIENTS_TOTAL),
            memory: Mutex::default(),
        }
    }

    fn responded(&self, type_url: &str, bytes: usize) {
        self.sends.response(type_url, |responses| {
            responses.count.inc();
            responses.size.observe(bytes as f64);
        });
    }

    fn pushed(&self, connection: &Connection, type_url: &str, revision: u64, bytes: usize, at: Stamp) {
        let is_first = connection.begin(revision);
        let waited = self.memory.lock().batch(revision).map(|batch| at.since(batch.applied));
        self.sends.push(type_url, |pushes| {
            pushes.bytes.inc_by(bytes as u64);
            waited.into_iter().for_each(|waited| pushes.time.observe_duration(waited));
        });
        if let Some(waited) = waited.filter(|_| is_first) {
            self.queue_time.observe_duration(waited);
        }
    }

    /// The batch a client was sent something of and has everything of now; `None` if it was sent nothing.
    fn settled(&self, connection: &Connection, revision: u64) -> Option<Batch> {
        let sent = connection.finish()?;
        self.memory.lock().batch(sent).filter(|batch| batch.revision <= revision)
    }

    fn rejected(&self, connection: &Connection, type_url: &str, code: i32) {
        self.rejects.with([label(type_url)]).inc();
        let family = self.rejects_of.iter().find(|(own, _)| *own == type_url);
        if let Some((_, family)) = family {
            family.with([code_name(Code::from(code)), labels::proxy(&connection.proxy.id.id)]).add(1.0);
        }
    }
}

impl Observer for Metrics {
    fn applied(&self, batch: &AppliedBatch) {
        let woken = batch.woken.len();
        let mut memory = self.memory.lock();
        // A batch that concerns none of those who are connected is no push.
        if woken > 0 || memory.clients == 0 {
            self.debounce.observe_duration(batch.applied.since(batch.cause.seen));
            self.apply_time.observe_duration(batch.took);
        }
        for (reason, times) in &batch.cause.reasons {
            self.batches.with([reason.label()]).inc();
            self.recipients.with([reason.label()]).inc_by(woken as u64);
            if woken > 0 {
                self.triggers.with([reason.label()]).inc_by((woken * times) as u64);
            }
        }
        if memory.batches.len() >= REMEMBERED {
            memory.batches.pop_front();
        }
        let (revision, seen, applied) = (batch.revision, batch.cause.seen, batch.applied);
        memory.batches.push_back(Batch { revision, seen, applied });
    }

    fn converged(&self, push: &Push) {
        if let Some(took) = push.change_to_ack().filter(|_| push.woken > 0) {
            self.change_to_ack.observe_duration(took);
        }
    }

    fn connected(&self, connection: &Connection) {
        let mut memory = self.memory.lock();
        memory.clients += 1;
        *memory.versions.entry(version(connection).into()).or_default() += 1;
        self.clients.with([version(connection)]).add(1.0);
    }

    fn happened(&self, connection: &Connection, event: &SessionEvent, at: Stamp) {
        match event {
            SessionEvent::Sent { type_url, revision, pushed, bytes, .. } => {
                self.responded(type_url, *bytes);
                if *pushed {
                    self.pushed(connection, type_url, *revision, *bytes, at);
                }
            }
            SessionEvent::Nacked { type_url, code, .. } => self.rejected(connection, type_url, *code),
            SessionEvent::Expired { type_url, .. } => self.expired.with([label(type_url)]).inc(),
            SessionEvent::Settled { revision } => {
                if let Some(batch) = self.settled(connection, *revision) {
                    self.convergence_time.observe_duration(at.since(batch.seen));
                }
            }
            SessionEvent::Subscribed { .. }
            | SessionEvent::Current { .. }
            | SessionEvent::Acked { .. }
            | SessionEvent::Reported { .. } => {}
        }
    }

    fn handed_over(&self, took: Duration) {
        self.send_time.observe_duration(took);
    }

    fn failed(&self) {
        self.internal_errors.with([]).inc();
    }

    fn disconnected(&self, connection: &Connection, _: &[u64]) {
        let mut memory = self.memory.lock();
        memory.clients = memory.clients.saturating_sub(1);
        let version = version(connection);
        self.clients.with([version]).add(-1.0);
        if let Some(count) = memory.versions.get_mut(version) {
            *count -= 1;
            // Parity: a version whose last client left stays at zero. Clients choose their version, so only a few may stay.
            if *count == 0 && memory.versions.len() > MAX_VERSIONS {
                memory.versions.remove(version);
                self.clients.remove([version]);
            }
        }
        drop(memory);
        for (_, family) in &self.rejects_of {
            for code in 0..=Code::Unauthenticated as i32 {
                family.remove([code_name(Code::from(code)), labels::proxy(&connection.proxy.id.id)]);
            }
        }
    }
}

/// The version of a client, as Istio labels it.
fn version(connection: &Connection) -> &str {
    labels::version(&connection.proxy.metadata.istio_version)
}
