//! A rejection under investigation, and what the answers of its judges say.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::Object;
use canopus_mesh::world::{Objects, Origin};
use tokio::time::Instant;

use super::super::history::{History, may_be_held};
use super::super::suspects::{Question, Served};
use super::super::trial::Trial;
use super::super::{Grounds, MOST_HELD, Members, Quarantine};
use crate::push::{Connection, Dispatcher};

pub(super) struct Case {
    /// Names it; never used twice.
    pub(super) id: u64,
    pub(super) trial: Trial,
    /// Whether the judge has accepted nothing yet.
    pub(super) is_first: bool,
    /// The revision that the suspects were looked for at: who changed later is none of them.
    pub(super) opened: u64,
    pub(super) disturbed: usize,
    pub(super) suspects: BTreeMap<Origin, Suspect>,
    /// The siblings that reject. They are the judges, and nobody else is served what is tried out.
    pub(super) members: Members,
    pub(super) grounds: Arc<Grounds>,
    /// The revision that shows the present arrangement.
    pub(super) revision: u64,
    pub(super) deadline: Instant,
}

pub(super) struct Suspect {
    pub(super) wanted: Arc<Object>,
    pub(super) served: Served,
}

/// What the answers of the judges say about the suspects.
pub(super) enum Verdict {
    /// Whether what the case is about is accepted, by all of them.
    Of(bool),
    /// Nothing: it is rejected, and these objects, which changed since the case was opened, may be why.
    Disturbed(BTreeMap<Origin, Suspect>),
    /// Some accept and some reject it. Whoever is alone with it, nobody else has to bear it.
    Divided,
}

impl Case {
    /// The judges that are still connected.
    pub(super) fn judges(&self, dispatcher: &Dispatcher) -> Vec<Arc<Connection>> {
        let judges = self.members.connections.iter();
        judges.filter_map(|id| dispatcher.connections().get(*id)).collect()
    }

    /// Begins again with these beside the suspects there are.
    pub(super) fn take_in(&mut self, newcomers: BTreeMap<Origin, Suspect>) {
        self.disturbed += 1;
        let names = newcomers.keys().chain(self.suspects.keys()).cloned().collect();
        self.trial = if self.is_first { Trial::by_hold(names) } else { Trial::by_release(names) };
        self.suspects.extend(newcomers);
    }

    /// What the judges say together.
    pub(super) fn verdict(
        &self,
        dispatcher: &Dispatcher,
        quarantine: &Quarantine,
        history: &History,
        judges: &[Arc<Connection>],
    ) -> Verdict {
        let rejecting: Vec<_> = judges.iter().filter(|judge| self.rejects(quarantine, judge)).collect();
        if rejecting.is_empty() {
            return Verdict::Of(true);
        }
        if rejecting.len() < judges.len() {
            return Verdict::Divided;
        }
        let mut newcomers = BTreeMap::new();
        for judge in rejecting {
            newcomers.extend(self.newcomers(dispatcher, quarantine, history, judge));
        }
        let all = quarantine.len() + newcomers.len();
        if newcomers.is_empty() || all > MOST_HELD {
            Verdict::Of(false)
        } else {
            Verdict::Disturbed(newcomers)
        }
    }

    /// Whether a judge rejects what the case is about. One that names other resources has taken these; the others are a case
    /// of their own.
    fn rejects(&self, quarantine: &Quarantine, judge: &Connection) -> bool {
        let Grounds { nack, resources, .. } = &*self.grounds;
        let last = quarantine.rejection(judge.id, &nack.type_url);
        let is_own = |name: &Arc<str>| resources.iter().any(|own| own.name == *name);
        last.is_some_and(|last| {
            judge.id != nack.connection || last.resources.iter().any(|one| is_own(&one.name))
        })
    }

    /// Objects that changed since the case was opened and may be why a judge rejects.
    fn newcomers(
        &self,
        dispatcher: &Dispatcher,
        quarantine: &Quarantine,
        history: &History,
        judge: &Connection,
    ) -> BTreeMap<Origin, Suspect> {
        let type_url = &*self.grounds.nack.type_url;
        let Some(last) = quarantine.rejection(judge.id, type_url) else {
            return BTreeMap::new();
        };
        let mut later = history.since(self.opened);
        later.retain(|origin, _| may_be_held(origin.key.kind) && !self.suspects.contains_key(origin));
        let question = |resources| Question { dispatcher, quarantine, client: judge, type_url, resources };
        let rejected = question(&last.resources).as_they_are();
        let found = question(&rejected).among(later).into_iter().filter_map(|(origin, served)| {
            let wanted = dispatcher.engine().read::<Objects>(&origin)?;
            Some((origin, Suspect { wanted, served }))
        });
        found.collect()
    }
}
