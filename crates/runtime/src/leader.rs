//! Leader election as seen by those who need a leader. Who wins is decided elsewhere, by a lease for example.
//!
//! Some controllers must run once per mesh however many replicas there are. Each names a lock, and [`while_leader`]
//! runs its work for as long as this replica holds the lock.

use std::convert::Infallible;
use std::future::Future;

use tokio::sync::watch;

/// Where this replica stands with regard to one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Another replica leads, or no election has ended yet.
    Follower {
        /// The leader's identity, if known.
        leader: Option<String>,
    },
    /// This replica leads.
    Leader,
}

/// Takes part in elections.
pub trait Elections: Send + Sync {
    /// Stands for a lock, for as long as the receiver is kept; the receiver always has the present standing.
    ///
    /// Dropping the receiver gives the lock up.
    fn stand(&self, lock: &str) -> watch::Receiver<Standing>;
}

/// For a process that has no other replicas: leads whatever it stands for.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysLeader;

impl Elections for AlwaysLeader {
    fn stand(&self, _lock: &str) -> watch::Receiver<Standing> {
        watch::Sender::new(Standing::Leader).subscribe()
    }
}

/// Runs work each time this replica becomes the leader, and drops it when it is the leader no more.
///
/// Work that ends is not begun again before the next term. Never returns; drop the future to give up.
pub async fn while_leader<Work>(
    elections: &dyn Elections,
    lock: &str,
    mut work: impl FnMut() -> Work,
) -> Infallible
where
    Work: Future<Output = ()>,
{
    let mut standing = elections.stand(lock);
    loop {
        until(&mut standing, leads).await;
        tracing::info!(lock, "this replica leads");
        tokio::select! {
            () = until(&mut standing, follows) => {}
            () = work() => until(&mut standing, follows).await,
        }
        tracing::info!(lock, "this replica leads no more");
    }
}

fn leads(standing: &Standing) -> bool {
    *standing == Standing::Leader
}

fn follows(standing: &Standing) -> bool {
    !leads(standing)
}

async fn until(standing: &mut watch::Receiver<Standing>, wanted: fn(&Standing) -> bool) {
    if standing.wait_for(wanted).await.is_err() {
        // The election is gone, so the present standing is the last.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::yield_now;

    use super::*;

    struct Decided(watch::Sender<Standing>);

    impl Elections for Decided {
        fn stand(&self, _lock: &str) -> watch::Receiver<Standing> {
            self.0.subscribe()
        }
    }

    /// Counts how often it was begun, and how many are running.
    #[derive(Clone, Default)]
    struct Work {
        begun: Arc<AtomicUsize>,
        running: Arc<()>,
    }

    impl Work {
        async fn run(self, forever: bool) {
            self.begun.fetch_add(1, Ordering::Relaxed);
            if forever {
                std::future::pending::<()>().await;
            }
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::Relaxed)
        }
    }

    async fn settle() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    fn follower() -> Standing {
        Standing::Follower { leader: None }
    }

    #[tokio::test]
    async fn works_only_during_terms() {
        let decide = watch::Sender::new(follower());
        let work = Work::default();
        let elections = Decided(decide.clone());
        let handed = work.clone();
        let task =
            tokio::spawn(async move { while_leader(&elections, "lock", || handed.clone().run(true)).await });
        settle().await;
        assert_eq!(work.begun(), 0);

        decide.send(Standing::Leader).unwrap();
        settle().await;
        assert_eq!(work.begun(), 1);
        // The test, the task and the work each hold one.
        assert_eq!(Arc::strong_count(&work.running), 3);

        decide.send(follower()).unwrap();
        settle().await;
        assert_eq!(Arc::strong_count(&work.running), 2);

        decide.send(Standing::Leader).unwrap();
        settle().await;
        assert_eq!(work.begun(), 2);
        task.abort();
    }

    #[tokio::test]
    async fn finished_work_waits_for_the_next_term() {
        let decide = watch::Sender::new(Standing::Leader);
        let work = Work::default();
        let elections = Decided(decide.clone());
        let handed = work.clone();
        let task =
            tokio::spawn(async move { while_leader(&elections, "lock", || handed.clone().run(false)).await });
        settle().await;
        assert_eq!(work.begun(), 1);
        decide.send(follower()).unwrap();
        settle().await;
        decide.send(Standing::Leader).unwrap();
        settle().await;
        assert_eq!(work.begun(), 2);
        task.abort();
    }

    #[tokio::test]
    async fn single_replica_leads() {
        let work = Work::default();
        let handed = work.clone();
        let task =
            tokio::spawn(
                async move { while_leader(&AlwaysLeader, "lock", || handed.clone().run(true)).await },
            );
        settle().await;
        assert_eq!(work.begun(), 1);
        task.abort();
    }
}
