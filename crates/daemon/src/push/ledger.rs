//! The ledger: the latest pushes, each with its cause, its recipients and what became of it at each of them.
//!
//! A push has converged when every recipient has acknowledged everything it was sent, or is gone. `/debug/ledger`
//! and the metrics of convergence read it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use canopus_base::FastMap;
use canopus_mesh::world::Origin;
use canopus_xds::SessionEvent;
use parking_lot::Mutex;

use super::cause::Cause;
use super::connections::{Connection, ConnectionId};
use super::observer::{AppliedBatch, Observer, Observers};
use super::stamp::Stamp;

/// Pushes that are kept.
const KEPT: usize = 256;

/// Objects whose costs are kept beyond the pushes that are; of more, the cheaper half is forgotten.
const MAX_COSTS: usize = 20_000;

/// Recipients that are kept of a push once all of them have settled it.
const KEPT_RECIPIENTS: usize = 32;

/// One batch of changes and its way to the proxies.
#[derive(Clone, Debug)]
pub struct Push {
    /// The revision of the world the batch led to.
    pub revision: u64,
    /// What changed.
    pub cause: Cause,
    /// When the batch was applied and the sessions were woken.
    pub applied: Stamp,
    /// How long the engine took.
    pub took: Duration,
    /// How many watched results have another value now.
    pub roots: usize,
    /// How many sessions were woken.
    pub woken: usize,
    /// How many of those have not settled it yet.
    pub pending: usize,
    /// How many of those have rejected something of it.
    pub rejected: usize,
    /// What was sent, by type.
    pub types: BTreeMap<Arc<str>, TypeTotal>,
    /// When the first message was sent.
    pub first_sent: Option<Stamp>,
    /// When the last session settled it.
    pub converged: Option<Stamp>,
    /// The sessions that were woken, ascending; of a push that has converged, only some.
    pub recipients: Vec<(ConnectionId, Recipient)>,
}

/// What was sent of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeTotal {
    /// Messages.
    pub messages: u64,
    /// Resources in them.
    pub resources: u64,
    /// Removed names in them.
    pub removed: u64,
    /// Size of the resources.
    pub bytes: u64,
}

/// A session a push concerns.
#[derive(Clone, Debug)]
pub struct Recipient {
    /// Messages it was sent.
    pub messages: u32,
    /// Size of the resources in them.
    pub bytes: u64,
    /// When the last of them was sent.
    pub sent: Option<Stamp>,
    /// What became of them.
    pub fate: Fate,
}

/// What became of a push at one session.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// Not known yet.
    Pending,
    /// The session has everything; that includes having had it before.
    Settled(Stamp),
    /// The session rejected a response.
    Rejected(Stamp),
    /// The session ended.
    Gone(Stamp),
}

/// What changes of an object have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Pushes that it was part of.
    pub pushes: u64,
    /// Sessions that these concerned, counted for each push.
    pub recipients: u64,
    /// Messages.
    pub messages: u64,
    /// Size of the resources in them.
    pub bytes: u64,
}

impl Cost {
    fn add(&mut self, other: &Self) {
        self.pushes += other.pushes;
        self.recipients += other.recipients;
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// How far a change of an object has come.
#[derive(Clone, Debug)]
pub struct ObjectState {
    /// The object.
    pub object: Origin,
    /// The revision it last changed at.
    pub revision: u64,
    /// The sessions that this concerns and that have not settled it.
    pub pending: Vec<ConnectionId>,
    /// The sessions that rejected what follows from it, or from what changed with it.
    pub rejected: Vec<ConnectionId>,
}

impl Push {
    /// What it has cost so far.
    pub fn cost(&self) -> Cost {
        let mut cost = Cost { pushes: 1, recipients: self.woken as u64, ..Cost::default() };
        for total in self.types.values() {
            cost.messages += total.messages;
            cost.bytes += total.bytes;
        }
        cost
    }

    /// A push that its recipients have not answered yet.
    fn new(batch: &AppliedBatch) -> Self {
        let new = || Recipient { messages: 0, bytes: 0, sent: None, fate: Fate::Pending };
        let woken = batch.woken.len();
        Self {
            revision: batch.revision,
            cause: batch.cause.clone(),
            applied: batch.applied,
            took: batch.took,
            roots: batch.changed_results,
            woken,
            pending: woken,
            rejected: 0,
            types: BTreeMap::new(),
            first_sent: None,
            converged: None,
            recipients: batch.woken.iter().map(|id| (*id, new())).collect(),
        }
    }

    /// What was sent, all types together.
    pub fn total(&self) -> TypeTotal {
        self.types.values().fold(TypeTotal::default(), |sum, one| TypeTotal {
            messages: sum.messages + one.messages,
            resources: sum.resources + one.resources,
            removed: sum.removed + one.removed,
            bytes: sum.bytes + one.bytes,
        })
    }

    /// From the time the change was seen to the time the last session settled it.
    pub fn change_to_ack(&self) -> Option<Duration> {
        self.converged.map(|converged| converged.since(self.cause.seen))
    }

    /// The sessions that have not settled it.
    pub fn waiting_for(&self) -> impl Iterator<Item = ConnectionId> {
        self.recipients
            .iter()
            .filter(|(_, recipient)| matches!(recipient.fate, Fate::Pending))
            .map(|(id, _)| *id)
    }

    /// Decides what became of it at one session; whether that was the last to wait for.
    fn decide(&mut self, id: ConnectionId, fate: Fate) -> bool {
        let Some(recipient) = self.recipient(id) else { return false };
        // A session that rejected something settles it later without having it.
        let decided = matches!(recipient.fate, Fate::Pending);
        if decided {
            recipient.fate = fate;
            self.pending -= 1;
            self.rejected += usize::from(matches!(fate, Fate::Rejected(_)));
        }
        decided && self.pending == 0
    }

    fn recipient(&mut self, id: ConnectionId) -> Option<&mut Recipient> {
        let at = self.recipients.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&mut self.recipients[at].1)
    }

    /// The last session has settled it. Those that rejected something are kept, and some of the others.
    fn converge(&mut self, at: Stamp) {
        self.converged = Some(at);
        let rejected = |recipient: &Recipient| matches!(recipient.fate, Fate::Rejected(_));
        let rejections = self.recipients.iter().filter(|(_, recipient)| rejected(recipient)).count();
        let mut room = KEPT_RECIPIENTS.saturating_sub(rejections);
        self.recipients.retain(|(_, recipient)| {
            let is_kept = rejected(recipient) || room > 0;
            room -= usize::from(is_kept && !rejected(recipient));
            is_kept
        });
        self.recipients.shrink_to_fit();
    }
}

/// The latest pushes, the oldest of them forgotten as new ones come.
///
/// Observes the dispatcher and the sessions, and tells its own observers which pushes converged.
#[derive(Default)]
pub struct Ledger {
    state: Mutex<State>,
    observers: Observers,
}

#[derive(Default)]
struct State {
    pushes: VecDeque<Push>,
    /// The revision each object of those last changed at.
    objects: FastMap<Origin, u64>,
    /// What pushes that are no longer kept have cost, by object.
    costs: FastMap<Origin, Cost>,
}

impl State {
    /// Adds up what a push has cost that is not kept any longer.
    fn retire(&mut self, push: &Push) {
        let cost = push.cost();
        for object in push.cause.objects.iter() {
            if self.objects.get(object) == Some(&push.revision) {
                self.objects.remove(object);
            }
            if cost.recipients > 0 {
                self.costs.entry(object.clone()).or_default().add(&cost);
            }
        }
        if self.costs.len() > MAX_COSTS {
            let mut bytes: Vec<u64> = self.costs.values().map(|cost| cost.bytes).collect();
            bytes.sort_unstable();
            let median = bytes[bytes.len() / 2];
            self.costs.retain(|_, cost| cost.bytes > median);
        }
    }

    fn push(&mut self, revision: u64) -> Option<&mut Push> {
        let at = self.pushes.binary_search_by_key(&revision, |push| push.revision).ok()?;
        self.pushes.get_mut(at)
    }

    fn object_state(&self, object: &Origin, revision: u64) -> ObjectState {
        let mut state =
            ObjectState { object: object.clone(), revision, pending: Vec::new(), rejected: Vec::new() };
        let at = self.pushes.binary_search_by_key(&revision, |push| push.revision).ok();
        for (id, recipient) in at.into_iter().flat_map(|at| &self.pushes[at].recipients) {
            match recipient.fate {
                Fate::Pending => state.pending.push(*id),
                Fate::Rejected(_) => state.rejected.push(*id),
                Fate::Settled(_) | Fate::Gone(_) => {}
            }
        }
        state
    }
}

impl Ledger {
    /// An empty ledger that tells `observers` of pushes that converged.
    pub fn new(observers: Observers) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), observers })
    }

    /// All pushes that are kept, the newest first.
    pub fn pushes(&self) -> Vec<Push> {
        self.state.lock().pushes.iter().rev().cloned().collect()
    }

    /// Whether there were pushes that are no longer kept.
    pub fn has_forgotten(&self) -> bool {
        self.state.lock().pushes.len() >= KEPT
    }

    /// The push that led to a revision, if it is still kept.
    pub fn push(&self, revision: u64) -> Option<Push> {
        self.state.lock().push(revision).cloned()
    }

    /// The pushes an object was part of, the newest first.
    pub fn pushes_with(&self, object: &Origin) -> Vec<Push> {
        let state = self.state.lock();
        let with_object = state.pushes.iter().rev().filter(|push| push.cause.objects.contains(object));
        with_object.cloned().collect()
    }

    /// How far the last change of an object has come; `None` if that is too long ago to be kept.
    pub fn object(&self, object: &Origin) -> Option<ObjectState> {
        let state = self.state.lock();
        let revision = *state.objects.get(object)?;
        Some(state.object_state(object, revision))
    }

    /// What changes of objects have cost since the process started, the costliest first. A push of several objects counts for
    /// each: nobody can say which of them a message is for.
    pub fn costs(&self) -> Vec<(Origin, Cost)> {
        let state = self.state.lock();
        let mut costs = state.costs.clone();
        for push in state.pushes.iter().filter(|push| push.woken > 0) {
            let cost = push.cost();
            for object in push.cause.objects.iter() {
                costs.entry(object.clone()).or_default().add(&cost);
            }
        }
        drop(state);
        let mut costs: Vec<(Origin, Cost)> = costs.into_iter().collect();
        costs.sort_by(|(a, left), (b, right)| {
            (right.bytes, right.pushes).cmp(&(left.bytes, left.pushes)).then_with(|| a.cmp(b))
        });
        costs
    }

    /// The objects whose last change some session has not settled, or has rejected, in order.
    pub fn unconverged(&self) -> Vec<ObjectState> {
        let state = self.state.lock();
        let open = state.pushes.iter().filter(|push| push.pending + push.rejected > 0);
        let objects = open.flat_map(|push| push.cause.objects.iter().map(|object| (object, push.revision)));
        let last = objects.filter(|(object, revision)| state.objects.get(object) == Some(revision));
        let mut found: Vec<ObjectState> =
            last.map(|(object, revision)| state.object_state(object, revision)).collect();
        found.sort_by(|a, b| a.object.cmp(&b.object));
        found
    }

    /// Records a push. Returns it if it woke no session and is therefore complete.
    fn record(&self, mut push: Push) -> Option<Push> {
        let mut state = self.state.lock();
        if state.pushes.len() >= KEPT
            && let Some(old) = state.pushes.pop_front()
        {
            state.retire(&old);
        }
        for object in push.cause.objects.iter() {
            state.objects.insert(object.clone(), push.revision);
        }
        let over = push.woken == 0;
        if over {
            push.converge(push.applied);
        }
        state.pushes.push_back(push);
        state.pushes.back().filter(|_| over).cloned()
    }

    /// A session was sent something that follows from a revision.
    fn sent(&self, id: ConnectionId, revision: u64, type_url: &Arc<str>, sent: TypeTotal, at: Stamp) {
        let mut state = self.state.lock();
        let Some(push) = state.push(revision) else { return };
        push.first_sent.get_or_insert(at);
        let total = push.types.entry(Arc::clone(type_url)).or_default();
        total.messages += sent.messages;
        total.resources += sent.resources;
        total.removed += sent.removed;
        total.bytes += sent.bytes;
        if let Some(recipient) = push.recipient(id) {
            recipient.messages += 1;
            recipient.bytes += sent.bytes;
            recipient.sent = Some(at);
        }
    }

    /// Records how a session settled these pushes; returns those that waited for no other session.
    fn decide(&self, id: ConnectionId, revisions: &[u64], fate: Fate, at: Stamp) -> Vec<Push> {
        let mut state = self.state.lock();
        let mut over = Vec::new();
        for revision in revisions {
            if let Some(push) = state.push(*revision)
                && push.decide(id, fate)
            {
                push.converge(at);
                over.push(push.clone());
            }
        }
        over
    }
}

impl Ledger {
    fn announce(&self, converged: impl IntoIterator<Item = Push>) {
        for push in converged {
            self.observers.tell(|observer| observer.converged(&push));
        }
    }
}

impl Observer for Ledger {
    fn applied(&self, batch: &AppliedBatch) {
        self.announce(self.record(Push::new(batch)));
    }

    fn happened(&self, connection: &Connection, event: &SessionEvent, at: Stamp) {
        match event {
            SessionEvent::Sent { type_url, revision, pushed: true, resources, removed, bytes, .. } => {
                let total = TypeTotal {
                    messages: 1,
                    resources: *resources as u64,
                    removed: *removed as u64,
                    bytes: *bytes as u64,
                };
                self.sent(connection.id, *revision, type_url, total, at);
            }
            SessionEvent::Nacked { nonce, type_url, .. } => {
                let sent = connection.status(type_url).and_then(|status| status.sent);
                if let Some(sent) = sent.filter(|sent| *sent.nonce == **nonce) {
                    self.announce(self.decide(connection.id, &[sent.revision], Fate::Rejected(at), at));
                }
            }
            _ => {}
        }
    }

    fn settled(&self, connection: &Connection, revisions: &[u64], at: Stamp) {
        self.announce(self.decide(connection.id, revisions, Fate::Settled(at), at));
    }

    fn disconnected(&self, connection: &Connection, outstanding: &[u64]) {
        let now = Stamp::now();
        self.announce(self.decide(connection.id, outstanding, Fate::Gone(now), now));
    }
}
