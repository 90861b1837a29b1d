//! Evaluating many queries at once with the help of other threads.
//!
//! Whoever asks for many queries resolves them in order. Helper threads go through the same list from its end, so the two
//! meet in the middle and neither waits for the other but at the last query. The number of threads that evaluate at once is
//! bounded for the whole engine by permits. A helper is started only if it gets a permit right away: one that had to wait for
//! its turn would be waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread::{self, Scope};

use super::eval::{Requester, Resolved};
use super::stage::Stage;
use crate::node::Subject;

/// Below this many evaluations a helper thread costs more than it saves.
const EVALUATIONS_PER_HELPER: usize = if cfg!(test) { 1 } else { 128 };

/// Bounds how many threads evaluate at once.
pub(crate) struct WorkerPool {
    /// Permits left. Negative if more threads came from outside than there are permits: callers are never turned away.
    free: AtomicIsize,
}

impl WorkerPool {
    pub(crate) fn new(threads: usize) -> Self {
        Self { free: AtomicIsize::new(threads.cast_signed()) }
    }

    /// A permit for the calling thread, be there one left or not.
    fn enter(&self) -> WorkerPermits<'_> {
        self.free.fetch_sub(1, Ordering::Relaxed);
        WorkerPermits { pool: self, count: 1 }
    }

    /// Up to `wanted` permits for helpers, as many as are left.
    fn acquire(&self, wanted: usize) -> WorkerPermits<'_> {
        let wanted = wanted.cast_signed();
        let take = |free: isize| (free > 0 && wanted > 0).then(|| free - free.min(wanted));
        let before = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        WorkerPermits { pool: self, count: before.map_or(0, |free| free.min(wanted)) }
    }
}

/// Permits of a pool, returned when dropped.
struct WorkerPermits<'a> {
    pool: &'a WorkerPool,
    count: isize,
}

impl Drop for WorkerPermits<'_> {
    fn drop(&mut self) {
        self.pool.free.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// The queries that helpers go through, last one first.
pub(crate) struct WorkQueue {
    queries: Arc<[Subject]>,
    /// How many queries from the start no helper has taken yet.
    remaining: AtomicUsize,
}

impl WorkQueue {
    fn take_last(&self) -> Option<&Subject> {
        let less = |remaining: usize| remaining.checked_sub(1);
        let before = self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        self.queries.get(before - 1)
    }
}

/// Empties a queue when dropped, so that helpers stop even if the caller's work ends in a panic.
struct StopOnDrop<'a>(&'a WorkQueue);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.remaining.store(0, Ordering::Relaxed);
    }
}

/// Starts helper threads.
///
/// All helpers end before the call from outside that they help returns. They may outlive the query that started them: if
/// that query fails early, a helper may still be waiting for it.
pub(crate) trait HelperSpawner: Sync {
    /// Starts a helper. If no thread can be had, the work is done without it.
    fn spawn(&self, queue: Arc<WorkQueue>);
}

struct ScopedSpawner<'scope, 'env> {
    stage: &'env Stage,
    scope: &'scope Scope<'scope, 'env>,
}

impl HelperSpawner for ScopedSpawner<'_, '_> {
    fn spawn(&self, queue: Arc<WorkQueue>) {
        let stage = self.stage;
        let _ = thread::Builder::new().spawn_scoped(self.scope, move || stage.help(&queue));
    }
}

impl Stage {
    /// The result of a query, for a caller outside any query.
    pub(crate) fn get(&self, query: &Subject) -> Resolved {
        match self.clean_memo(query.id()) {
            Some(resolved) => resolved,
            None => {
                let _permit = self.workers.enter();
                self.resolve_from_outside(query)
            }
        }
    }

    /// The results of queries in their order, for a caller outside any query. Evaluated in parallel if there are many.
    pub(crate) fn get_all(&self, queries: &[Subject]) -> Vec<Resolved> {
        let _permit = self.workers.enter();
        self.with_spawner(|spawner| {
            let resolve = |query: &Subject| self.resolve(query, Requester::Outside(spawner));
            self.with_helpers(queries, spawner, || queries.iter().map(resolve).collect())
        })
    }

    /// Runs `work`, which resolves all of these queries in order, while helpers resolve them from the last one on.
    pub(crate) fn with_helpers<T>(
        &self,
        queries: &[Subject],
        spawner: &dyn HelperSpawner,
        work: impl FnOnce() -> T,
    ) -> T {
        let permits = self.workers.acquire(self.count_unresolved(queries) / EVALUATIONS_PER_HELPER);
        if permits.count == 0 {
            return work();
        }
        let queue =
            Arc::new(WorkQueue { queries: queries.into(), remaining: AtomicUsize::new(queries.len()) });
        for _ in 0..permits.count {
            spawner.spawn(Arc::clone(&queue));
        }
        let _stop = StopOnDrop(&queue);
        work()
    }

    fn with_spawner<T>(&self, work: impl FnOnce(&dyn HelperSpawner) -> T) -> T {
        thread::scope(|scope| work(&ScopedSpawner { stage: self, scope }))
    }

    fn resolve_from_outside(&self, query: &Subject) -> Resolved {
        self.with_spawner(|spawner| self.resolve(query, Requester::Outside(spawner)))
    }

    fn help(&self, queue: &WorkQueue) {
        while let Some(query) = queue.take_last() {
            // A query that another thread has claimed is not waited for: there is other work.
            if self.jobs.find(query.id()).is_none() {
                self.resolve_from_outside(query);
            }
        }
    }

    /// How many queries have no clean memo. Zero if the list is too short for helpers to matter.
    fn count_unresolved(&self, queries: &[Subject]) -> usize {
        if queries.len() < EVALUATIONS_PER_HELPER {
            return 0;
        }
        queries.iter().filter(|query| self.clean_memo(query.id()).is_none()).count()
    }
}
