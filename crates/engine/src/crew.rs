//! Evaluating many queries at once, with the help of other cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};

use crate::Subject;
use crate::eval::{Asker, Resolved};
use crate::stage::Stage;

/// Evaluations that make up for starting a thread.
const PER_THREAD: usize = if cfg!(test) { 1 } else { 16 };

/// Threads that may be started beside those that ask. Who finds none left goes on alone.
pub(crate) struct Crew {
    idle: AtomicUsize,
}

impl Crew {
    pub(crate) fn new(threads: usize) -> Self {
        Self { idle: AtomicUsize::new(threads) }
    }

    /// Takes up to so many threads, and says how many.
    fn hire(&self, wanted: usize) -> usize {
        let take = |idle: usize| (idle > 0 && wanted > 0).then(|| idle - idle.min(wanted));
        let before = self.idle.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.map_or(0, |idle| idle.min(wanted))
    }
}

/// Helpers, and the queries they go through, from the last one on.
pub(crate) struct Team {
    queries: Arc<[Subject]>,
    /// How many of the queries nobody of the team has come to.
    rest: AtomicUsize,
    crew: Arc<Crew>,
    threads: usize,
}

impl Team {
    fn next(&self) -> Option<&Subject> {
        let less = |rest: usize| rest.checked_sub(1);
        let rest = self.rest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        self.queries.get(rest - 1)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.crew.idle.fetch_add(self.threads, Ordering::Relaxed);
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
            None => self.on_site(|site| self.resolve(query.id(), query, Asker::Outside(site))),
        }
    }

    /// The results of queries asked for from outside any query, evaluated in parallel if there are many.
    pub(crate) fn get_all(&self, queries: &[Subject]) -> Vec<Resolved> {
        self.on_site(|site| {
            let resolve = |query: &Subject| self.resolve(query.id(), query, Asker::Outside(site));
            self.helped(queries, site, || queries.iter().map(resolve).collect())
        })
    }

    /// Does work that asks for all of these queries in their order, while helpers evaluate them from the last one on.
    pub(crate) fn helped<T>(&self, queries: &[Subject], site: &dyn Site, work: impl FnOnce() -> T) -> T {
        let threads = self.crew.hire(self.count_open(queries) / PER_THREAD);
        if threads == 0 {
            return work();
        }
        let rest = AtomicUsize::new(queries.len());
        let team = Arc::new(Team { queries: queries.into(), rest, crew: Arc::clone(&self.crew), threads });
        for _ in 0..threads {
            site.start(Arc::clone(&team));
        }
        let _whistle = Whistle(&team);
        work()
    }

    fn on_site<T>(&self, work: impl FnOnce(&dyn Site) -> T) -> T {
        thread::scope(|scope| work(&Ground { stage: self, scope }))
    }

    fn help(&self, team: &Team) {
        while let Some(query) = team.next() {
            // What somebody is at is not waited for: there is other work.
            if self.jobs.find(query.id()).is_none() {
                self.get(query);
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
