//! Questions about who read what.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::engine::Snapshot;
use crate::intern::NodeId;
use crate::stage::Stage;
use crate::subject::{All, Bucket, Memo, Value};
use crate::{Input, Query, RootId, Subject, SubjectKind};

/// How a read turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadKind {
    /// An input that was there.
    Value,
    /// An input that was not there.
    Absent,
    /// The members of a bucket, or all keys of a family.
    Members,
    /// Another query, whose own reads follow.
    Query,
}

/// One read in the provenance of a query.
#[derive(Clone, Debug)]
pub struct Read {
    /// What was read.
    pub subject: Subject,
    /// How the read turned out.
    pub kind: ReadKind,
    /// Distance from the query asked about; 1 is a read of its own.
    pub depth: usize,
    /// The earlier entry of the same answer whose query made this read; `None` where `depth` is 1.
    pub via: Option<usize>,
}

/// One query in the blast radius of an input.
#[derive(Clone, Debug)]
pub struct Dependent {
    /// The query that would be checked again.
    pub subject: Subject,
    /// Its root, if it is watched.
    pub root: Option<RootId>,
    /// Distance from the input; 1 reads the input itself.
    pub depth: usize,
    /// Whether the value matters to it; otherwise only the presence of the key does, seen in a bucket.
    pub value: bool,
}

impl Snapshot {
    /// Everything the value of a query rests on: its own reads and, through other queries, theirs, down to inputs.
    ///
    /// Breadth first in the order the queries made their reads, each subject once. A query that is part of a cycle rests
    /// on what all queries of the cycle have read.
    pub fn reads_of<Q: Query>(&self, key: &Q::Key) -> Vec<Read> {
        let stage = &self.stage;
        let query = stage.registry.intern::<Memo<Q>>(key);
        let mut reads: Vec<Read> = Vec::new();
        let mut seen = FxHashSet::default();
        let mut open = VecDeque::from([(query, None, 1)]);
        while let Some((query, via, depth)) = open.pop_front() {
            // Also for a query that was read: its memo may have gone since.
            stage.get(&query);
            for subject in direct_reads(stage, &query) {
                if !seen.insert(subject.id()) {
                    continue;
                }
                if subject.kind() == SubjectKind::Query {
                    open.push_back((subject.clone(), Some(reads.len()), depth + 1));
                }
                reads.push(Read { kind: kind_of(stage, &subject), subject, depth, via });
            }
        }
        reads
    }

    /// Every memoised query that rests on an input, or on the presence of its key in a bucket, nearest first.
    ///
    /// These are the queries that removing the input would have looked at again; changing its value alone would leave
    /// those with `value == false` out, unless it changes buckets.
    pub fn dependents_of<I: Input>(&self, key: &I::Key) -> Vec<Dependent> {
        let stage = &self.stage;
        let by_value = above(stage, stage.registry.find::<Value<I>>(key));
        let value = stage.read::<I>(key);
        let indexes = value.as_deref().map(|value| I::index(key, value)).unwrap_or_default();
        let buckets = indexes.iter().filter_map(|index| stage.registry.find::<Bucket<I>>(index));
        let all = value.and_then(|_| stage.registry.find::<All<I>>(&()));
        let mut nearest = above(stage, buckets.chain(all));
        for (id, depth) in &by_value {
            let known = nearest.entry(*id).or_insert(*depth);
            *known = (*known).min(*depth);
        }
        let mut found: Vec<Dependent> = nearest
            .into_iter()
            .filter_map(|(id, depth)| {
                let node = stage.world.node(id)?;
                let (root, value) = (stage.world.root(id), by_value.contains_key(&id));
                Some(Dependent { subject: node.subject.clone(), root, depth, value })
            })
            .collect();
        found.sort_by_cached_key(|dependent| (dependent.depth, dependent.subject.to_string()));
        found
    }
}

fn direct_reads(stage: &Stage, query: &Subject) -> Vec<Subject> {
    if let Some(memo) = stage.world.memo(query.id()) {
        return memo.reads.iter().filter_map(|id| stage.subject(*id)).collect();
    }
    let job = stage.finished(query.id());
    job.and_then(|job| job.done()?.reads.as_deref().map(<[Subject]>::to_vec)).unwrap_or_default()
}

fn kind_of(stage: &Stage, subject: &Subject) -> ReadKind {
    match subject.kind() {
        SubjectKind::Input if stage.world.input(subject.id()).is_some() => ReadKind::Value,
        SubjectKind::Input => ReadKind::Absent,
        SubjectKind::Members | SubjectKind::Keys => ReadKind::Members,
        SubjectKind::Query => ReadKind::Query,
    }
}

/// The memos above some subjects, with their least distance.
fn above(stage: &Stage, subjects: impl IntoIterator<Item = Subject>) -> FxHashMap<NodeId, usize> {
    let mut distances = FxHashMap::default();
    let mut open: VecDeque<(NodeId, usize)> = subjects.into_iter().map(|subject| (subject.id(), 0)).collect();
    while let Some((id, distance)) = open.pop_front() {
        for reader in stage.world.readers(id) {
            distances.entry(reader).or_insert_with(|| {
                open.push_back((reader, distance + 1));
                distance + 1
            });
        }
    }
    distances
}
