//! Adoption: carrying results from the stage they were evaluated on into a draft of a later graph.
//!
//! Readers evaluate without the writer's lock, so a batch may be applied while they do. Their results are adopted only if
//! every read gives the same answer in the draft as on the stage. Queries are pure, so a query whose reads give the same
//! answers would give the same result again.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::draft::Draft;
use crate::evaluation::{Job, Stage};
use crate::graph::Node;
use crate::ids::NodeId;
use crate::idset::IdSet;
use crate::node::Outcome;
use crate::{Subject, SubjectKind};

/// Records in a draft those results of a stage that hold there too.
pub(crate) struct Adoption<'a> {
    draft: &'a mut Draft,
    stage: &'a Stage,
    /// Queries whose results do not hold in the draft.
    rejected: FxHashSet<NodeId>,
    adopted: Vec<Subject>,
}

/// Whether a result holds in the draft.
enum Validity {
    Valid,
    Invalid,
    /// Unknown until a query that it read is adopted or rejected.
    DependsOn(Candidate),
}

impl<'a> Adoption<'a> {
    pub(crate) fn new(draft: &'a mut Draft, stage: &'a Stage) -> Self {
        Self { draft, stage, rejected: FxHashSet::default(), adopted: Vec::new() }
    }

    /// The adopted queries, each after those it read.
    pub(crate) fn adopted(self) -> Vec<Subject> {
        self.adopted
    }

    /// Adopts the result of a query, and before it the missing results that it read.
    pub(crate) fn adopt(&mut self, query: &Subject) {
        // A work list instead of recursion: queries may be nested deeper than the stack allows.
        let mut pending: Vec<Candidate> = self.candidate(query).into_iter().collect();
        while let Some(mut candidate) = pending.pop() {
            match self.check(&mut candidate) {
                Validity::Valid => {
                    candidate.install(self.draft, self.stage);
                    self.adopted.push(candidate.query);
                }
                Validity::Invalid => {
                    self.rejected.insert(candidate.query.id());
                }
                Validity::DependsOn(dependency) => pending.extend([candidate, dependency]),
            }
        }
    }

    /// The stage's result of a query, unless the draft has a memo or the result was rejected.
    fn candidate(&self, query: &Subject) -> Option<Candidate> {
        let is_decided = self.draft.graph.memo(query.id()).is_some() || self.rejected.contains(&query.id());
        if is_decided { None } else { Candidate::find(self.stage, query) }
    }

    /// Checks the reads of a candidate from where the last check stopped.
    fn check(&self, candidate: &mut Candidate) -> Validity {
        while let Some(read) = candidate.next_read(self.stage) {
            match self.gives_same_answer(read) {
                Some(true) => candidate.checked += 1,
                Some(false) => return Validity::Invalid,
                None => return self.candidate(read).map_or(Validity::Invalid, Validity::DependsOn),
            }
        }
        Validity::Valid
    }

    /// Whether a read gives the same answer in the draft as on the stage. `None` for a query the draft has no memo of.
    fn gives_same_answer(&self, subject: &Subject) -> Option<bool> {
        let id = subject.id();
        let (then, now) = (&self.stage.graph, &self.draft.graph);
        match subject.kind() {
            SubjectKind::Query if now.memo(id).is_none() => return None,
            // Queries are pure: with the same inputs every evaluation gives the same result.
            _ if then.revision == now.revision => return Some(true),
            _ => {}
        }
        if then.node(id).zip(now.node(id)).is_some_and(|(then, now)| Arc::ptr_eq(then, now)) {
            return Some(true);
        }
        Some(match subject.kind() {
            SubjectKind::Input => match (then.input(id), now.input(id)) {
                (Some(then), Some(now)) => Arc::ptr_eq(then, now),
                (then, now) => then.is_none() && now.is_none(),
            },
            SubjectKind::Members | SubjectKind::Keys => {
                let empty = IdSet::default();
                let then = then.bucket(id).map_or(&empty, |bucket| &bucket.ids);
                then == now.bucket(id).map_or(&empty, |bucket| &bucket.ids)
            }
            SubjectKind::Query => {
                let then = Candidate::find(self.stage, subject).map(|candidate| candidate.outcome());
                then.zip(now.memo(id)).is_some_and(|(then, now)| then.ptr_eq(&now.outcome))
            }
        })
    }
}

/// A result of the stage that may be adopted.
struct Candidate {
    query: Subject,
    source: Source,
    /// How many of its reads are known to give the same answer.
    checked: usize,
}

/// Where the stage has the result.
enum Source {
    Memo(Arc<Node>),
    /// A finished job that ran the query.
    Job(Arc<Job>),
}

impl Candidate {
    fn find(stage: &Stage, query: &Subject) -> Option<Self> {
        let memo = stage.graph.node(query.id()).cloned().map(Source::Memo);
        let source = memo.or_else(|| stage.finished_job(query.id()).map(Source::Job))?;
        Some(Self { query: query.clone(), source, checked: 0 })
    }

    fn outcome(&self) -> Outcome {
        match &self.source {
            Source::Memo(node) => node.memo().map(|memo| memo.outcome.clone()),
            Source::Job(job) => job.result().map(|result| result.outcome.clone()),
        }
        .expect("a source has a result")
    }

    /// The next read to check.
    fn next_read<'a>(&'a self, stage: &'a Stage) -> Option<&'a Subject> {
        match &self.source {
            Source::Memo(node) => {
                let read = *node.memo()?.reads.get(self.checked)?;
                stage.graph.node(read).map(|node| &node.subject)
            }
            Source::Job(job) => job.result()?.reads.as_ref()?.get(self.checked),
        }
    }

    /// Records the result in a draft.
    fn install(&self, draft: &mut Draft, stage: &Stage) {
        let outcome = self.outcome();
        match &self.source {
            Source::Memo(node) => {
                let reads = node.memo().into_iter().flat_map(|memo| memo.reads.iter());
                let reads: Vec<Subject> = reads.filter_map(|id| stage.subject(*id)).collect();
                draft.install(&self.query, outcome, &reads);
            }
            Source::Job(job) => {
                let reads = job.result().and_then(|result| result.reads.as_deref()).unwrap_or_default();
                draft.install(&self.query, outcome, reads);
            }
        }
    }
}
