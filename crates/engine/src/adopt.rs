//! Taking over into a draft what was evaluated on a published stage.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::graph::Draft;
use crate::idset::IdSet;
use crate::intern::NodeId;
use crate::job::Job;
use crate::stage::Stage;
use crate::value::Outcome;
use crate::world::Node;
use crate::{Subject, SubjectKind};

/// Records in a draft the results a stage has, as far as they hold in the draft's world.
pub(crate) struct Adoption<'a> {
    draft: &'a mut Draft,
    stage: &'a Stage,
    refused: FxHashSet<NodeId>,
    adopted: Vec<Subject>,
}

enum Verdict {
    Holds,
    Fails,
    /// Depends on a query that is not recorded yet.
    Needs(Candidate),
}

impl<'a> Adoption<'a> {
    pub(crate) fn new(draft: &'a mut Draft, stage: &'a Stage) -> Self {
        Self { draft, stage, refused: FxHashSet::default(), adopted: Vec::new() }
    }

    /// The queries recorded, each after those it read.
    pub(crate) fn adopted(self) -> Vec<Subject> {
        self.adopted
    }

    /// Records a query, and before it those it read that are missing.
    pub(crate) fn adopt(&mut self, query: &Subject) {
        // A list instead of recursion: queries may be nested deeper than a stack allows.
        let mut open: Vec<Candidate> = self.candidate(query).into_iter().collect();
        while let Some(mut candidate) = open.pop() {
            match self.check(&mut candidate) {
                Verdict::Holds => {
                    candidate.install(self.draft, self.stage);
                    self.adopted.push(candidate.query);
                }
                Verdict::Fails => {
                    self.refused.insert(candidate.query.id());
                }
                Verdict::Needs(needed) => open.extend([candidate, needed]),
            }
        }
    }

    /// The result of a query that is neither recorded nor refused.
    fn candidate(&self, query: &Subject) -> Option<Candidate> {
        let settled = self.draft.world.memo(query.id()).is_some() || self.refused.contains(&query.id());
        if settled { None } else { Candidate::find(self.stage, query) }
    }

    /// Goes on checking the reads of a candidate where it was left.
    fn check(&self, candidate: &mut Candidate) -> Verdict {
        while let Some(read) = candidate.read(self.stage) {
            match self.agrees(read) {
                Some(true) => candidate.checked += 1,
                Some(false) => return Verdict::Fails,
                None => return self.candidate(read).map_or(Verdict::Fails, Verdict::Needs),
            }
        }
        Verdict::Holds
    }

    /// Whether a subject is in the draft what a reader on the stage saw; `None` for a query that is not recorded.
    fn agrees(&self, subject: &Subject) -> Option<bool> {
        let id = subject.id();
        let (then, now) = (&self.stage.world, &self.draft.world);
        match subject.kind() {
            SubjectKind::Query if now.memo(id).is_none() => return None,
            // Queries are pure: on the same inputs any evaluation gives the same.
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
                let none = IdSet::default();
                let then = then.members(id).map_or(&none, |members| &members.ids);
                then == now.members(id).map_or(&none, |members| &members.ids)
            }
            SubjectKind::Query => {
                let then = Candidate::find(self.stage, subject).map(|candidate| candidate.outcome());
                then.zip(now.memo(id)).is_some_and(|(then, now)| then.is(&now.outcome))
            }
        })
    }
}

/// A result that may be recorded.
struct Candidate {
    query: Subject,
    source: Source,
    /// How many of its reads are known to hold.
    checked: usize,
}

/// Where a stage has a result.
enum Source {
    /// A node with a memo.
    Memo(Arc<Node>),
    /// A finished job that ran the query.
    Job(Arc<Job>),
}

impl Candidate {
    fn find(stage: &Stage, query: &Subject) -> Option<Self> {
        let memo = stage.world.node(query.id()).cloned().map(Source::Memo);
        let source = memo.or_else(|| stage.finished(query.id()).map(Source::Job))?;
        Some(Self { query: query.clone(), source, checked: 0 })
    }

    fn outcome(&self) -> Outcome {
        match &self.source {
            Source::Memo(node) => node.memo().map(|memo| memo.outcome.clone()),
            Source::Job(job) => job.done().map(|done| done.outcome.clone()),
        }
        .expect("a source has a result")
    }

    /// The next read to be checked.
    fn read<'a>(&'a self, stage: &'a Stage) -> Option<&'a Subject> {
        match &self.source {
            Source::Memo(node) => {
                let read = *node.memo()?.reads.get(self.checked)?;
                stage.world.node(read).map(|node| &node.subject)
            }
            Source::Job(job) => job.done()?.reads.as_ref()?.get(self.checked),
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
                let reads = job.done().and_then(|done| done.reads.as_deref()).unwrap_or_default();
                draft.install(&self.query, outcome, reads);
            }
        }
    }
}
