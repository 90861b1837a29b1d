//! Evaluating many queries at once, with the help of other cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread::{self, Scope};

use crate::Subject;
use crate::eval::{Asker, Resolved};
use crate::stage::Stage;

/// Evaluations that make up for starting a thread.
const PER_THREAD: usize = if cfg!(test) { 1 } else { 128 };

/// The threads that evaluate. Helpers are started only as long as there are fewer than there should be: one that has to
/// wait for its turn would be waited for.
pub(crate) struct Crew {
    /// How many more there may be; negative if more have come from outside.
    free: AtomicIsize,
}

impl Crew {
    pub(crate) fn new(threads: usize) -> Self {
        Self { free: AtomicIsize::new(threads.cast_signed()) }
    }

    /// A thread that comes from outside, whether or not there is room for it.
    fn join(&self) -> Places<'_> {
        self.free.fetch_sub(1, Ordering::Relaxed);
        Places { crew: self, count: 1 }
    }

    /// Places for up to so many helpers.
    fn hire(&self, wanted: usize) -> Places<'_> {
        let wanted = wanted.cast_signed();
        let take = |free: isize| (free > 0 && wanted > 0).then(|| free - free.min(wanted));
        let before = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        Places { crew: self, count: before.map_or(0, |free| free.min(wanted)) }
    }
}

/// Places of a crew that are taken, until this is dropped.
struct Places<'a> {
    crew: &'a Crew,
    count: isize,
}

impl Drop for Places<'_> {
    fn drop(&mut self) {
        self.crew.free.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// Helpers, and the queries they go through, from the last one on.
pub(crate) struct Team {
    queries: Arc<[Subject]>,
    /// How many of the queries nobody of the team has come to.
    rest: AtomicUsize,
}

impl Team {
    fn next(&self) -> Option<&Subject> {
        let less = |rest: usize| rest.checked_sub(1);
        let rest = self.rest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        self.queries.get(rest - 1)
    }
}

/// Sends helpers home, also when the work they help with ends in a panic.
struct Whistle<'a>(&'a Team);

impl Drop for Whistle<'_> {
    fn drop(&mut self) {
        self.0.rest.store(0, Ordering::Relaxed);
    }
}

/// Where helpers can be started.
///
/// They end before whatever was asked from outside returns, and not before a query that they help ends: if that fails
/// early, one of them may still be waiting for it.
pub(crate) trait Site: Sync {
    /// Starts one of a team. Without it the work is done all the same.
    fn start(&self, team: Arc<Team>);
}

struct Ground<'scope, 'env> {
    stage: &'env Stage,
    scope: &'scope Scope<'scope, 'env>,
}

impl Site for Ground<'_, '_> {
    fn start(&self, team: Arc<Team>) {
        let stage = self.stage;
        let _ = thread::Builder::new().spawn_scoped(self.scope, move || stage.help(&team));
    }
}

impl Stage {
    /// The result of a query asked for from outside any query.
    pub(crate) fn get(&self, query: &Subject) -> Resolved {
        match self.settled(query.id()) {
            Some(resolved) => resolved,
            None => {
                let _place = self.crew.join();
                self.evaluate_outside(query)
            }
        }
    }

    /// The results of queries asked for from outside any query, evaluated in parallel if there are many.
    pub(crate) fn get_all(&self, queries: &[Subject]) -> Vec<Resolved> {
        let _place = self.crew.join();
        self.on_site(|site| {
            let resolve = |query: &Subject| self.resolve(query, Asker::Outside(site));
            self.helped(queries, site, || queries.iter().map(resolve).collect())
        })
    }

    /// Does work that asks for all of these queries in their order, while helpers evaluate them from the last one on.
    pub(crate) fn helped<T>(&self, queries: &[Subject], site: &dyn Site, work: impl FnOnce() -> T) -> T {
        let places = self.crew.hire(self.count_open(queries) / PER_THREAD);
        if places.count == 0 {
            return work();
        }
        let team = Arc::new(Team { queries: queries.into(), rest: AtomicUsize::new(queries.len()) });
        for _ in 0..places.count {
            site.start(Arc::clone(&team));
        }
        let _whistle = Whistle(&team);
        work()
    }

    fn on_site<T>(&self, work: impl FnOnce(&dyn Site) -> T) -> T {
        thread::scope(|scope| work(&Ground { stage: self, scope }))
    }

    fn evaluate_outside(&self, query: &Subject) -> Resolved {
        self.on_site(|site| self.resolve(query, Asker::Outside(site)))
    }

    fn help(&self, team: &Team) {
        while let Some(query) = team.next() {
            // What somebody is at is not waited for: there is other work.
            if self.jobs.find(query.id()).is_none() {
                self.evaluate_outside(query);
            }
        }
    }

    /// How many of these have to be looked at; none where there are too few for it to matter.
    fn count_open(&self, queries: &[Subject]) -> usize {
        if queries.len() < PER_THREAD {
            return 0;
        }
        queries.iter().filter(|query| self.settled(query.id()).is_none()).count()
    }
}
