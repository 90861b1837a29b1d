//! The values that objects had: what `canopus diff` shows between two moments.
//!
//! An [`Observer`] of the push path. It holds the present value of every object of configuration, which is the engine's own
//! allocation, and when one changes it keeps the value from before with the time of the change. The value after a change is
//! the one before the next, or the present one.
//!
//! Sizing a value costs as much as writing it down, so the push path only leaves a note, and notes are worked off once a second
//! or when somebody asks.
//!
//! Bounded in changes and in bytes; what is forgotten is told ([`ObjectHistory::begins`]). Endpoints, pods and other objects
//! that change by themselves all the time are only counted, and nothing of a Secret is kept but that it changed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use canopus_api::registry::Category;
use canopus_api::{Kind, Object};
use canopus_base::FastMap;
use canopus_engine::Engine;
use canopus_mesh::world::{Objects, Origin};
use parking_lot::{Mutex, MutexGuard};

use crate::push::{AppliedBatch, Observer};

/// Changes that are kept.
const MAX_CHANGES: usize = 16_384;

/// The size of the values that are kept, as JSON.
const MAX_BYTES: usize = 32 << 20;

/// How long notes may wait.
const PAUSE: Duration = Duration::from_secs(1);

/// The values that objects had.
#[derive(Default)]
pub struct ObjectHistory {
    engine: Option<Engine>,
    notes: Mutex<Vec<Note>>,
    state: Mutex<State>,
}

/// A change that is not recorded yet: when, of what, and the value since.
type Note = (Moment, Origin, Option<Arc<Object>>);

#[derive(Default)]
struct State {
    present: FastMap<Origin, Arc<Object>>,
    changes: VecDeque<Change>,
    bytes: usize,
    /// The last change that is forgotten.
    forgotten: Option<Moment>,
}

/// A change of an object.
#[derive(Clone, Debug)]
struct Change {
    moment: Moment,
    origin: Origin,
    before: Value,
    /// The size of the value before.
    bytes: usize,
}

/// The value of an object at some moment.
#[derive(Clone, Debug)]
pub enum Value {
    /// The object did not exist.
    Absent,
    /// This.
    Known(Arc<Object>),
    /// Values of this kind are not kept.
    NotKept,
}

/// When something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The revision of the world that the change led to.
    pub revision: u64,
    /// When that was applied.
    pub time: SystemTime,
}

/// A point between two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// After this revision of the world.
    Revision(u64),
    /// At this time.
    Time(SystemTime),
}

impl At {
    /// Whether a change had been made by then.
    fn has(self, moment: Moment) -> bool {
        match self {
            Self::Revision(revision) => moment.revision <= revision,
            Self::Time(time) => moment.time <= time,
        }
    }
}

/// How an object differs between two moments.
#[derive(Clone, Debug)]
pub struct ObjectDifference {
    /// The object.
    pub origin: Origin,
    /// Its value at the first moment.
    pub before: Value,
    /// Its value at the second.
    pub after: Value,
    /// How often it changed between them.
    pub times: usize,
    /// When it last did.
    pub last: Moment,
}

impl ObjectHistory {
    /// A history of the objects of this engine, from now on.
    pub fn new(engine: Engine) -> Arc<Self> {
        Arc::new(Self { engine: Some(engine), ..Self::default() })
    }

    /// Works off notes for as long as the process runs.
    pub(crate) async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PAUSE).await;
            tokio::task::block_in_place(|| drop(self.settled()));
        }
    }

    /// The state with all notes in it.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        // Taken under the lock of the state, so that two who do this keep the order.
        let notes = std::mem::take(&mut *self.notes.lock());
        for (moment, origin, now) in notes {
            state.record(moment, &origin, now);
        }
        state
    }

    /// The earliest moment that can be asked for; `None` if nothing was forgotten.
    pub fn begins(&self) -> Option<Moment> {
        self.settled().forgotten
    }

    /// The objects that changed between two moments, in order.
    pub fn between(&self, from: At, to: At) -> Vec<ObjectDifference> {
        let state = self.settled();
        let mut found: BTreeMap<&Origin, ObjectDifference> = BTreeMap::new();
        let mut later: FastMap<&Origin, &Value> = FastMap::default();
        for change in state.changes.iter().filter(|change| !from.has(change.moment)) {
            if !to.has(change.moment) {
                later.entry(&change.origin).or_insert(&change.before);
                continue;
            }
            let difference = found.entry(&change.origin).or_insert_with(|| ObjectDifference {
                origin: change.origin.clone(),
                before: change.before.clone(),
                after: Value::Absent,
                times: 0,
                last: change.moment,
            });
            difference.times += 1;
            difference.last = change.moment;
        }
        let mut all: Vec<ObjectDifference> = found.into_values().collect();
        for difference in &mut all {
            let present = || match state.present.get(&difference.origin) {
                _ if !is_kept(difference.origin.key.kind) => Value::NotKept,
                Some(object) => Value::Known(Arc::clone(object)),
                None => Value::Absent,
            };
            difference.after = later.get(&difference.origin).map_or_else(present, |value| (*value).clone());
        }
        all
    }
}

impl State {
    fn record(&mut self, moment: Moment, origin: &Origin, now: Option<Arc<Object>>) {
        let (before, bytes) = if is_kept(origin.key.kind) {
            let before = match &now {
                Some(now) => self.present.insert(origin.clone(), Arc::clone(now)),
                None => self.present.remove(origin),
            };
            let bytes = before.as_ref().map_or(0, |object| object.to_node().to_json().to_string().len());
            (before.map_or(Value::Absent, Value::Known), bytes)
        } else {
            (Value::NotKept, 0)
        };
        self.bytes += bytes;
        self.changes.push_back(Change { moment, origin: origin.clone(), before, bytes });
        while self.changes.len() > MAX_CHANGES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.forgotten = Some(oldest.moment);
        }
    }
}

impl Observer for ObjectHistory {
    fn applied(&self, batch: &AppliedBatch) {
        let Some(engine) = &self.engine else { return };
        let moment = Moment { revision: batch.revision, time: batch.applied.time };
        let notes = batch.cause.objects.iter().map(|origin| {
            let now = if is_kept(origin.key.kind) { engine.read::<Objects>(origin) } else { None };
            (moment, origin.clone(), now)
        });
        // Read before the lock: whoever works notes off holds it for a moment only, but the engine may take longer.
        let notes: Vec<Note> = notes.collect();
        self.notes.lock().extend(notes);
    }
}

/// Whether values of a kind are kept: those that somebody has written.
fn is_kept(kind: Kind) -> bool {
    kind == Kind::Service || kind == Kind::Namespace || kind.info().category != Category::Kubernetes
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use canopus_api::{Options, decode_documents};
    use canopus_base::tree::Limits;

    use super::*;

    fn moment(revision: u64) -> Moment {
        Moment { revision, time: UNIX_EPOCH + Duration::from_secs(revision * 10) }
    }

    fn host(name: &str) -> Arc<Object> {
        let text = format!(
            "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: a, namespace: b}}, \
             spec: {{host: {name}}}}}"
        );
        let mut outcomes = decode_documents(text, &Limits::default(), Options::strict());
        Arc::new(outcomes.remove(0).unwrap().value)
    }

    fn shown(value: &Value) -> String {
        match value {
            Value::Absent => "absent".to_owned(),
            Value::NotKept => "not kept".to_owned(),
            Value::Known(object) => {
                let node = object.to_node();
                node.pointer("/spec/host").and_then(|host| host.as_str()).unwrap_or_default().to_owned()
            }
        }
    }

    /// A rule that was made at 10 s, changed at 20 s and 30 s, and deleted at 40 s.
    fn history() -> (ObjectHistory, Origin) {
        let history = ObjectHistory::default();
        let origin = Origin::new("Kubernetes", host("one").key());
        {
            let mut state = history.state.lock();
            for (revision, value) in [(1, Some("one")), (2, Some("two")), (3, Some("three")), (4, None)] {
                state.record(moment(revision), &origin, value.map(host));
            }
        }
        (history, origin)
    }

    #[test]
    fn values_are_those_of_the_two_moments() {
        let (history, _) = history();
        let between = |from, to| {
            let found = history.between(At::Revision(from), At::Revision(to));
            found.first().map(|one| (shown(&one.before), shown(&one.after), one.times))
        };
        let told = |before: &str, after: &str, times| Some((before.to_owned(), after.to_owned(), times));
        assert_eq!(between(0, 1), told("absent", "one", 1));
        assert_eq!(between(1, 3), told("one", "three", 2));
        assert_eq!(between(0, 9), told("absent", "absent", 4));
        assert_eq!(between(3, 9), told("three", "absent", 1));
        assert_eq!(between(4, 9), None);
        let time = |seconds| At::Time(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(shown(&history.between(time(15), time(25))[0].after), "two");
    }

    #[test]
    fn what_is_forgotten_is_told() {
        let (history, origin) = history();
        assert_eq!(history.begins(), None);
        {
            let mut state = history.state.lock();
            for revision in 5..=5 + MAX_CHANGES as u64 {
                state.record(moment(revision), &origin, Some(host("one")));
            }
        }
        assert_eq!(history.begins().map(|begins| begins.revision), Some(5));
        assert!(history.state.lock().changes.len() <= MAX_CHANGES);
    }

    #[test]
    fn values_of_secrets_are_not_kept() {
        let key = canopus_api::ObjectKey::new(Kind::Secret, "shop", "key");
        let (history, origin) = (ObjectHistory::default(), Origin::new("Kubernetes", key));
        history.state.lock().record(moment(1), &origin, Some(host("one")));
        let found = history.between(At::Revision(0), At::Revision(1));
        assert_eq!(
            (shown(&found[0].before), shown(&found[0].after)),
            ("not kept".to_owned(), "not kept".to_owned())
        );
        assert!(history.state.lock().present.is_empty());
    }
}
