//! Provenance: which reads a value depends on, and which queries depend on an input.
//!
//! Both follow the edges that evaluation recorded. Nothing is kept for this purpose, and nothing is listed by hand.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::Input;
use crate::evaluation::{Query, QueryNode, Stage};
use crate::ids::{NodeId, RootId};
use crate::node::{AllKeysNode, BucketNode, InputNode, Subject, SubjectKind};

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadKind {
    /// An input that is set.
    Value,
    /// An input that is not set.
    Absent,
    /// The members of a bucket, or all keys of a family.
    Members,
    /// Another query, whose own reads follow.
    Query,
}

/// One read in the provenance of a query.
#[derive(Clone, Debug)]
pub struct Read {
    /// The input or query that was read.
    pub subject: Subject,
    /// What the read found.
    pub kind: ReadKind,
    /// Distance from the query asked about. Its own reads have 1.
    pub depth: usize,
    /// The position, in the same answer, of the query that made this read. `None` if `depth` is 1.
    pub via: Option<usize>,
}

/// One query that depends on an input.
#[derive(Clone, Debug)]
pub struct Dependent {
    /// The query.
    pub subject: Subject,
    /// The root by which the memo is watched, if it is.
    pub root: Option<RootId>,
    /// Distance from the input. A query that reads the input itself has 1.
    pub depth: usize,
    /// Whether it depends on the value. Otherwise it depends only on the presence of the key in a bucket.
    pub value: bool,
}

/// See `Snapshot::provenance`.
pub(crate) fn provenance<Q: Query>(stage: &Stage, key: &Q::Key) -> Vec<Read> {
    let query = stage.interner.intern::<QueryNode<Q>>(key);
    let mut reads: Vec<Read> = Vec::new();
    let mut visited = FxHashSet::default();
    let mut unvisited = VecDeque::from([(query, None, 1)]);
    while let Some((query, via, depth)) = unvisited.pop_front() {
        // Evaluates a query whose memo was evicted since it was read.
        stage.get(&query);
        for subject in direct_reads(stage, &query) {
            if !visited.insert(subject.id()) {
                continue;
            }
            if subject.kind() == SubjectKind::Query {
                unvisited.push_back((subject.clone(), Some(reads.len()), depth + 1));
            }
            reads.push(Read { kind: read_kind(stage, &subject), subject, depth, via });
        }
    }
    reads
}

/// See `Snapshot::dependents`.
pub(crate) fn dependents<I: Input>(stage: &Stage, key: &I::Key) -> Vec<Dependent> {
    let by_value = readers_above(stage, stage.interner.find::<InputNode<I>>(key));
    let value = stage.read::<I>(key);
    let indexes = value.as_deref().map(|value| I::index(key, value)).unwrap_or_default();
    let buckets = indexes.iter().filter_map(|index| stage.interner.find::<BucketNode<I>>(index));
    let all_keys = value.and_then(|_| stage.interner.find::<AllKeysNode<I>>(&()));
    let mut nearest = readers_above(stage, buckets.chain(all_keys));
    for (id, depth) in &by_value {
        let known = nearest.entry(*id).or_insert(*depth);
        *known = (*known).min(*depth);
    }
    let mut found: Vec<Dependent> = nearest
        .into_iter()
        .filter_map(|(id, depth)| {
            let node = stage.graph.node(id)?;
            let (root, value) = (stage.graph.root(id), by_value.contains_key(&id));
            Some(Dependent { subject: node.subject.clone(), root, depth, value })
        })
        .collect();
    found.sort_by_cached_key(|dependent| (dependent.depth, dependent.subject.to_string()));
    found
}

fn direct_reads(stage: &Stage, query: &Subject) -> Vec<Subject> {
    if let Some(memo) = stage.graph.memo(query.id()) {
        return memo.reads.iter().filter_map(|id| stage.subject(*id)).collect();
    }
    let job = stage.finished_job(query.id());
    job.and_then(|job| job.result()?.reads.as_deref().map(<[Subject]>::to_vec)).unwrap_or_default()
}

fn read_kind(stage: &Stage, subject: &Subject) -> ReadKind {
    match subject.kind() {
        SubjectKind::Input if stage.graph.input(subject.id()).is_some() => ReadKind::Value,
        SubjectKind::Input => ReadKind::Absent,
        SubjectKind::Members | SubjectKind::Keys => ReadKind::Members,
        SubjectKind::Query => ReadKind::Query,
    }
}

/// The memos above some subjects, with their smallest distance.
fn readers_above(stage: &Stage, subjects: impl IntoIterator<Item = Subject>) -> FxHashMap<NodeId, usize> {
    let mut distances = FxHashMap::default();
    let mut unvisited: VecDeque<(NodeId, usize)> =
        subjects.into_iter().map(|subject| (subject.id(), 0)).collect();
    while let Some((id, distance)) = unvisited.pop_front() {
        for reader in stage.graph.readers(id) {
            distances.entry(reader).or_insert_with(|| {
                unvisited.push_back((reader, distance + 1));
                distance + 1
            });
        }
    }
    distances
}
