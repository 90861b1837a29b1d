use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::*;

/// A lock in memory that can be cut off from its candidates.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    record: Option<Record>,
    version: u64,
    /// The identity of the candidate that cannot reach the lock.
    cut_off: Option<&'static str>,
}

struct Handle(Shared, &'static str);

impl Handle {
    fn check(&self) -> Result<(), String> {
        let is_cut_off = self.0.0.lock().cut_off == Some(self.1);
        if is_cut_off { Err("unreachable".to_owned()) } else { Ok(()) }
    }

    fn write(&self, expected: Option<&Value>, record: &Record) -> bool {
        let mut stored = self.0.0.lock();
        let is_same = match expected {
            Some(version) => *version == json!(stored.version),
            None => stored.record.is_none(),
        };
        if is_same {
            stored.record = Some(record.clone());
            stored.version += 1;
        }
        is_same
    }
}

impl Lock for Handle {
    fn name(&self) -> String {
        "lock".to_owned()
    }

    async fn load(&self) -> Result<Option<StoredLock>, String> {
        self.check()?;
        let stored = self.0.0.lock();
        let object = json!(stored.version);
        Ok(stored.record.clone().map(|record| StoredLock { record, object }))
    }

    async fn create(&self, record: &Record) -> Result<bool, String> {
        self.check()?;
        Ok(self.write(None, record))
    }

    async fn replace(&self, held: &StoredLock, record: &Record) -> Result<bool, String> {
        self.check()?;
        Ok(self.write(Some(&held.object), record))
    }
}

fn join(lock: &Shared, identity: &'static str) -> (Leadership, oneshot::Sender<()>) {
    let (mut election, leadership) =
        Election::new(Handle(lock.clone(), identity), Candidate::new(identity, "default"));
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(async move {
        let stop = async {
            let _ = stopped.await;
        };
        election.run(|| None, stop).await;
    });
    (leadership, stop)
}

#[tokio::test(start_paused = true)]
async fn lock_changes_hands_at_once_when_it_is_given_back() {
    let lock = Shared::default();
    let (mut first, stop) = join(&lock, "a");
    first.acquired().await;
    let (mut second, _stay) = join(&lock, "b");
    sleep(TERM * 3).await;
    assert!(first.holds() && !second.holds());
    let start = Instant::now();
    stop.send(()).unwrap();
    second.acquired().await;
    assert!(!first.holds());
    assert!(start.elapsed() <= RETRY_PERIOD, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn two_never_lead_at_once_when_the_leader_is_cut_off() {
    let lock = Shared::default();
    let (mut first, _stay) = join(&lock, "a");
    first.acquired().await;
    let (second, _too) = join(&lock, "b");
    sleep(RETRY_PERIOD * 2).await;
    lock.0.lock().cut_off = Some("a");
    let (mut both, mut neither) = (0, 0);
    let start = Instant::now();
    while !second.holds() {
        assert!(start.elapsed() < TERM * 2, "nobody leads");
        both += u32::from(first.holds() && second.holds());
        neither += u32::from(!first.holds() && !second.holds());
        sleep(Duration::from_millis(100)).await;
    }
    assert!(!first.holds());
    assert_eq!(both, 0);
    // At least the time that a write of the old leader may still take.
    assert!(neither > 100, "{neither}");
    lock.0.lock().cut_off = None;
    sleep(TERM).await;
    assert!(!first.holds() && second.holds());
}

#[tokio::test(start_paused = true)]
async fn leadership_ends_by_itself_when_the_election_is_gone() {
    let lock = Shared::default();
    let (mut first, stop) = join(&lock, "a");
    first.acquired().await;
    lock.0.lock().cut_off = Some("a");
    let start = Instant::now();
    first.lost().await;
    assert!(start.elapsed() <= RENEW_DEADLINE);
    drop(stop);
}

#[tokio::test(start_paused = true)]
async fn unconditional_leadership_is_never_lost() {
    let mut leadership = Leadership::unconditional();
    leadership.acquired().await;
    assert!(timeout(TERM * 100, leadership.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn locks_tell_who_holds_them() {
    let lock = Shared::default();
    let leaders = Leaders::default();
    let (mut first, _stay) = join(&lock, "a");
    first.acquired().await;
    let (election, _second) = Election::new(Handle(lock.clone(), "b"), Candidate::new("b", "canary"));
    let mut election = election.telling(leaders.clone());
    tokio::spawn(async move { election.run(|| None, std::future::pending()).await });
    sleep(RETRY_PERIOD).await;
    let all = leaders.all();
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].holder.as_str(), all[0].holder_revision.as_str(), all[0].leading),
        ("a", "default", false)
    );
    lock.0.lock().cut_off = Some("b");
    sleep(RETRY_PERIOD * 2).await;
    assert!(leaders.all()[0].trouble.is_some(), "{:?}", leaders.all());
}
