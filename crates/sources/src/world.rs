//! The input world: the objects of all sources, and which of them count.
//!
//! Each source's objects are held apart. Where several sources of one cluster have the same object, the one of the lowest
//! rank counts and the others wait behind it: when it goes, the next one is there at once. Every such conflict is reported.
//!
//! A source that is lost keeps all it had. Objects go only when their source says so: one by one, or by a listing that was
//! complete and did not name them.

mod object_store;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::{Kind, Object, ObjectKey};

use crate::change::{Batch, Change, ProblemScope, Saved, SourceInfo, SourcePart};
use crate::status::{Notice, PartStatus, Phase, SourceStatus};
use object_store::ObjectStore;

/// Most objects and files of one source whose problems are kept, so that a cluster full of invalid objects does not fill the
/// memory.
const MAX_PROBLEMS: usize = 1000;

/// What changed in the world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// The present object by cluster and key; `None` if it is gone.
    pub changes: BTreeMap<(Arc<str>, ObjectKey), Option<Object>>,
    /// Messages for the operator.
    pub notices: Vec<Notice>,
    /// Whether the state of a source changed.
    pub status: bool,
}

/// The objects of every source, by cluster and rank.
#[derive(Debug, Default)]
pub struct World {
    sources: Vec<Source>,
    /// The sources of each cluster, whose object counts first.
    clusters: BTreeMap<Arc<str>, Vec<usize>>,
    /// Objects that several sources of one cluster have.
    conflicts: BTreeSet<(Arc<str>, ObjectKey)>,
}

/// The objects of one source and their state.
#[derive(Clone, Copy, Debug)]
pub struct Holdings<'a> {
    source: &'a Source,
}

impl Holdings<'_> {
    /// The source.
    pub fn source(&self) -> &Arc<SourceInfo> {
        &self.source.info
    }

    /// Number of changes of the objects so far.
    pub fn revision(&self) -> u64 {
        self.source.revision
    }

    /// Whether every part of the source is known, from a listing or a snapshot.
    pub fn is_known(&self) -> bool {
        self.source.parts.values().all(Phase::is_known)
    }

    /// Whether every part was listed by this process, or cannot be listed now: none is known from a snapshot alone.
    pub fn is_settled(&self) -> bool {
        self.is_known() && !self.source.parts.values().any(|phase| *phase == Phase::Restored)
    }

    /// The kinds that are followed and known; `None` if the source is not followed kind by kind.
    pub fn kinds(&self) -> Option<BTreeSet<Kind>> {
        let kinds = self.source.parts.iter().filter(|(_, phase)| phase.is_known());
        let kinds: BTreeSet<Kind> = kinds.filter_map(|(part, _)| part.kind()).collect();
        (!kinds.is_empty()).then_some(kinds)
    }

    /// The source's objects, ordered by kind, namespace and name.
    pub fn objects(&self) -> Vec<Object> {
        self.source.store.objects()
    }
}

#[derive(Debug)]
struct Source {
    info: Arc<SourceInfo>,
    store: ObjectStore,
    /// Counts the changes of the store.
    revision: u64,
    /// Counts the listings that were begun.
    epoch: u32,
    /// Listings that have not ended, and when they began.
    listings: BTreeMap<SourcePart, u32>,
    parts: BTreeMap<SourcePart, Phase>,
    problems: BTreeMap<ProblemScope, Vec<String>>,
    /// The snapshot of the source that was read at the start.
    restored: Restored,
}

/// How much of a source a snapshot covers.
#[derive(Debug)]
enum Restored {
    /// There was no snapshot.
    Nothing,
    /// All objects of all kinds.
    Everything,
    /// All objects of these kinds. A kind that is not among them has to be listed first.
    Kinds(BTreeSet<Kind>),
}

impl Restored {
    fn covers(&self, part: SourcePart) -> bool {
        match (self, part) {
            (Self::Nothing, _) => false,
            (Self::Kinds(kinds), SourcePart::Kind(kind)) => kinds.contains(&kind),
            (Self::Everything | Self::Kinds(_), _) => true,
        }
    }
}

impl World {
    /// Registers a source without objects. One that is registered already stays as it is.
    pub fn add(&mut self, info: Arc<SourceInfo>) {
        self.index_of(&info);
    }

    /// Restores the objects of a source from a snapshot, to be served until it has been listed.
    pub fn restore(&mut self, info: &Arc<SourceInfo>, saved: Saved, update: &mut Update) {
        let Saved { objects, kinds, unreadable } = saved;
        let index = self.index_of(info);
        let source = &mut self.sources[index];
        source.restored = kinds.map_or(Restored::Everything, Restored::Kinds);
        let notices = unreadable.into_iter().take(MAX_PROBLEMS);
        update.notices.extend(notices.map(|reason| {
            Notice::warning(info.name.clone(), format!("snapshot: left out until it is listed: {reason}"))
        }));
        for phase in source.parts.values_mut() {
            *phase = Phase::Restored;
        }
        update.status = true;
        for object in objects {
            self.set(index, object, update);
        }
    }

    /// Applies a batch of a source and adds what changed to `update`.
    pub fn take(&mut self, batch: Batch, update: &mut Update) {
        let index = self.index_of(&batch.source);
        for event in batch.events {
            self.take_event(index, event, update);
        }
    }

    /// Removes a source with all its objects.
    pub fn forget(&mut self, name: &str, update: &mut Update) {
        let Some(index) = self.sources.iter().position(|source| *source.info.name == *name) else { return };
        for key in self.sources[index].store.keys(|_, _, _| true) {
            self.remove(index, &key, update);
        }
        self.sources.remove(index);
        self.rank();
        update.status = true;
    }

    /// Whether every part of every source is known, so that no object is missing from what is served.
    pub fn is_whole(&self) -> bool {
        self.sources.iter().all(|source| source.parts.values().all(Phase::is_known))
    }

    /// State of each source.
    pub fn status(&self) -> Vec<SourceStatus> {
        self.sources.iter().map(|source| self.status_of(source)).collect()
    }

    /// The object of this key that counts.
    pub fn get(&self, cluster: &str, key: &ObjectKey) -> Option<&Object> {
        self.clusters.get(cluster)?.iter().find_map(|&index| self.sources[index].store.get(key))
    }

    /// The objects of each source, whether they count or not.
    pub fn holdings(&self) -> impl Iterator<Item = Holdings<'_>> {
        self.sources.iter().map(|source| Holdings { source })
    }

    fn index_of(&mut self, info: &Arc<SourceInfo>) -> usize {
        let known = self.sources.iter().position(|source| source.info.name == info.name);
        known.unwrap_or_else(|| {
            self.sources.push(Source {
                info: Arc::clone(info),
                store: ObjectStore::default(),
                revision: 0,
                epoch: 0,
                listings: BTreeMap::new(),
                parts: BTreeMap::from([(SourcePart::Whole, Phase::Waiting { reason: None })]),
                problems: BTreeMap::new(),
                restored: Restored::Nothing,
            });
            self.rank();
            self.sources.len() - 1
        })
    }

    fn rank(&mut self) {
        self.clusters.clear();
        for (index, source) in self.sources.iter().enumerate() {
            self.clusters.entry(Arc::clone(&source.info.cluster)).or_default().push(index);
        }
        for indices in self.clusters.values_mut() {
            indices.sort_by_key(|&index| (self.sources[index].info.rank, &self.sources[index].info.name));
        }
    }

    fn take_event(&mut self, index: usize, event: Change, update: &mut Update) {
        match event {
            Change::Set(object) => self.set(index, object, update),
            Change::Remove(key) => self.remove(index, &key, update),
            Change::Keep(key) => {
                let source = &mut self.sources[index];
                source.store.touch(&key, source.epoch);
            }
            Change::Begin(part) => self.sources[index].begin(part),
            Change::End(part) => {
                for key in self.sources[index].end(part) {
                    self.remove(index, &key, update);
                }
                self.enter(index, part, Phase::Live, update);
            }
            Change::Expect(part) => {
                if !self.sources[index].parts.contains_key(&part) {
                    let restored = self.sources[index].restored.covers(part);
                    let phase = if restored { Phase::Restored } else { Phase::Waiting { reason: None } };
                    self.enter(index, part, phase, update);
                }
            }
            Change::Live(part) => self.enter(index, part, Phase::Live, update),
            Change::Lost(part, reason) => {
                let phase = match self.sources[index].parts.get(&part) {
                    Some(phase) if phase.is_known() => Phase::Stale { reason },
                    _ => Phase::Waiting { reason: Some(reason) },
                };
                self.enter(index, part, phase, update);
            }
            Change::Absent(part, reason) => {
                let phase = match self.sources[index].parts.get(&part) {
                    None | Some(Phase::Waiting { .. } | Phase::Absent { .. }) => Phase::Absent { reason },
                    Some(_) => Phase::Stale { reason },
                };
                self.enter(index, part, phase, update);
            }
            Change::Withdraw(kind) => {
                for key in self.sources[index].store.keys(|of, _, _| of == kind) {
                    self.remove(index, &key, update);
                }
                let source = &mut self.sources[index];
                source.listings.remove(&SourcePart::Kind(kind));
                source.problems.remove(&ProblemScope::Part(SourcePart::Kind(kind)));
                update.status |= source.parts.remove(&SourcePart::Kind(kind)).is_some();
            }
            Change::Deselect(namespace) => {
                for key in
                    self.sources[index].store.keys(|_, object, _| *object.meta().namespace == *namespace)
                {
                    self.remove(index, &key, update);
                }
            }
            Change::Problems(place, problems) => self.sources[index].complain(place, problems, update),
        }
    }

    fn set(&mut self, index: usize, object: Object, update: &mut Update) {
        let source = &mut self.sources[index];
        if !source.problems.is_empty() {
            update.status |= source.problems.remove(&ProblemScope::Object(object.key())).is_some();
        }
        if source.store.put(object.clone(), source.epoch) {
            source.revision += 1;
            self.settle(index, object.key(), update);
        }
    }

    fn remove(&mut self, index: usize, key: &ObjectKey, update: &mut Update) {
        let source = &mut self.sources[index];
        if !source.problems.is_empty() {
            update.status |= source.problems.remove(&ProblemScope::Object(key.clone())).is_some();
        }
        if source.store.remove(key) {
            source.revision += 1;
            self.settle(index, key.clone(), update);
        }
    }

    /// Decides which object of a key counts after a source changed its own.
    fn settle(&mut self, index: usize, key: ObjectKey, update: &mut Update) {
        let cluster = &self.sources[index].info.cluster;
        let ranked = self.clusters.get(cluster).map(Vec::as_slice).unwrap_or_default();
        let place = (Arc::clone(cluster), key);
        let mut holders = ranked.iter().filter(|&&holder| self.sources[holder].store.get(&place.1).is_some());
        let (winner, second) = (holders.next().copied(), holders.next().copied());
        match (winner, second) {
            (Some(winner), Some(second)) => {
                if self.conflicts.insert(place.clone()) {
                    let (winner, second) = (&self.sources[winner].info.name, &self.sources[second].info.name);
                    update.notices.push(Notice::warning(
                        second.clone(),
                        format!("{} is also in {winner}, which counts", place.1),
                    ));
                    update.status = true;
                }
            }
            _ => update.status |= self.conflicts.remove(&place),
        }
        // A source behind the winner changes nothing that counts, unless it was the winner until now.
        let behind = winner.is_some_and(|winner| position(ranked, winner) < position(ranked, index));
        if !behind {
            let object = winner.and_then(|winner| self.sources[winner].store.get(&place.1)).cloned();
            update.changes.insert(place, object);
        }
    }

    fn enter(&mut self, index: usize, part: SourcePart, phase: Phase, update: &mut Update) {
        let source = &mut self.sources[index];
        let before = source.parts.insert(part, phase.clone());
        if before.as_ref() == Some(&phase) {
            return;
        }
        update.status = true;
        let name = source.info.name.clone();
        match (before, phase) {
            (Some(Phase::Stale { .. }), Phase::Live) => {
                update.notices.push(Notice::info(name, format!("{part}: up to date again")));
            }
            (Some(Phase::Stale { .. }), Phase::Stale { .. }) => {}
            (_, Phase::Stale { reason }) => {
                let text = format!("{part}: cannot be followed, the last known state is served: {reason}");
                update.notices.push(Notice::warning(name, text));
            }
            (_, Phase::Absent { reason }) => {
                update.notices.push(Notice::info(name, format!("{part}: not read: {reason}")));
            }
            (_, Phase::Waiting { reason: Some(reason) }) => {
                update.notices.push(Notice::warning(name, format!("{part}: cannot be read yet: {reason}")));
            }
            _ => {}
        }
    }

    fn status_of(&self, source: &Source) -> SourceStatus {
        let mut problems: Vec<String> = source.problems.values().flatten().cloned().collect();
        let rivals = self
            .conflicts
            .iter()
            .filter(|(cluster, key)| *cluster == source.info.cluster && source.store.get(key).is_some());
        for (cluster, key) in rivals {
            let winner = self.clusters[cluster].iter().map(|&index| &self.sources[index]);
            let winner = winner.into_iter().find(|other| other.store.get(key).is_some());
            if let Some(winner) = winner.filter(|winner| winner.info.name != source.info.name) {
                problems.push(format!("{key} is also in {}, which counts", winner.info.name));
            }
        }
        let parts = source.parts.iter().map(|(part, phase)| PartStatus { part: *part, phase: phase.clone() });
        SourceStatus { source: Arc::clone(&source.info), parts: parts.collect(), problems }
    }
}

fn position(ranked: &[usize], index: usize) -> Option<usize> {
    ranked.iter().position(|&ranked| ranked == index)
}

impl Source {
    fn begin(&mut self, part: SourcePart) {
        self.epoch += 1;
        self.listings.insert(part, self.epoch);
    }

    /// Ends a listing; returns the objects that it did not name, which are gone.
    fn end(&mut self, part: SourcePart) -> Vec<ObjectKey> {
        match self.listings.remove(&part) {
            Some(begun) => self.store.keys(|kind, _, epoch| part.covers(kind) && epoch < begun),
            None => Vec::new(),
        }
    }

    fn complain(&mut self, place: ProblemScope, problems: Vec<String>, update: &mut Update) {
        if problems.is_empty() {
            update.status |= self.problems.remove(&place).is_some();
            return;
        }
        let known = self.problems.get(&place).map(Vec::as_slice).unwrap_or_default();
        if known == problems {
            return;
        }
        if self.problems.len() >= MAX_PROBLEMS && !self.problems.contains_key(&place) {
            return;
        }
        let name = &self.info.name;
        let new = problems.iter().filter(|problem| !known.contains(problem));
        update.notices.extend(new.map(|problem| Notice::warning(name.clone(), problem.clone())));
        update.status = true;
        self.problems.insert(place, problems);
    }
}

#[cfg(test)]
mod tests;
