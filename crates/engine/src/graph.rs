//! Editing a world: nodes and edges appear and disappear together.

use std::sync::Arc;

use crate::idmap::IdMap;
use crate::idset::IdSet;
use crate::intern::NodeId;
use crate::value::{Erased, Outcome};
use crate::world::{Body, Members, Memo, Node, Watch, World};
use crate::{RootId, Subject, SubjectKind};

/// Memory of an edge: one id in the reads of a memo, one among the dependents of what it read.
pub(crate) const EDGE_BYTES: usize = 2 * size_of::<NodeId>();

/// A world being edited, not yet seen by anyone else.
pub(crate) struct Draft {
    pub(crate) world: World,
    /// Nodes that may have lost what held them; looked at by [`Draft::sweep`].
    loose: Vec<NodeId>,
}

impl Draft {
    pub(crate) fn new(world: World) -> Self {
        Self { world, loose: Vec::new() }
    }

    /// Sets or removes the value of an input.
    pub(crate) fn set_input(&mut self, subject: &Subject, value: Option<Erased>) {
        let node = self.node_for(subject);
        let Body::Input(held) = &mut node.body else { return };
        let (before, after) = (usize::from(held.is_some()), usize::from(value.is_some()));
        *held = value;
        let totals = &mut self.world.totals;
        totals.inputs = totals.inputs + after - before;
        self.loose.push(subject.id());
    }

    /// The members of a bucket, to be changed.
    pub(crate) fn members_mut(&mut self, subject: &Subject) -> Option<&mut Members> {
        self.loose.push(subject.id());
        match &mut self.node_for(subject).body {
            Body::Members(members) => Some(members),
            Body::Input(_) | Body::Memo(_) => None,
        }
    }

    /// Records the result of a query. All queries among its reads must have been recorded.
    pub(crate) fn install(&mut self, subject: &Subject, outcome: Outcome, reads: &[Subject]) {
        let id = subject.id();
        let old = self.world.memo(id).map(|memo| Arc::clone(&memo.reads));
        let same_reads = old.filter(|old| old.iter().copied().eq(reads.iter().map(Subject::id)));
        let reads = same_reads.unwrap_or_else(|| self.rewire(subject, reads));
        match self.node_mut(id) {
            Some(Node { body: Body::Memo(memo), .. }) => {
                memo.outcome = outcome;
                memo.reads = reads;
            }
            _ => {
                self.insert(subject, Body::Memo(Memo { outcome, reads }));
                self.world.totals.memos += 1;
            }
        }
    }

    /// Adds a guard to a query; `root` names it if it has none yet.
    pub(crate) fn watch(&mut self, id: NodeId, root: impl FnOnce() -> RootId) -> RootId {
        let totals = &mut self.world.totals;
        let watch = self.world.watches.get_or_insert_with(id, || {
            totals.roots += 1;
            Watch { root: root(), guards: 0 }
        });
        watch.guards += 1;
        watch.root
    }

    /// Takes a guard from a query; says whether nothing holds its memo any more.
    pub(crate) fn unwatch(&mut self, id: NodeId) -> bool {
        let Some(watch) = self.world.watches.get_mut(id) else { return false };
        watch.guards -= 1;
        if watch.guards > 0 {
            return false;
        }
        self.world.watches.remove(id);
        self.world.totals.roots -= 1;
        !self.world.is_read(id)
    }

    /// Has [`Draft::sweep`] look at a node.
    pub(crate) fn loosen(&mut self, id: NodeId) {
        self.loose.push(id);
    }

    /// Removes every loose node that nothing holds, and what only it held.
    pub(crate) fn sweep(&mut self) {
        while let Some(id) = self.loose.pop() {
            if self.world.node(id).is_some_and(|node| self.world.is_unheld(node)) {
                self.remove(id);
            }
        }
    }

    /// Removes a node and its edges; whoever reads it must be removed too.
    pub(crate) fn remove(&mut self, id: NodeId) {
        let Some(node) = self.world.node(id).cloned() else { return };
        let totals = &mut self.world.totals;
        totals.bytes -= node.footprint();
        for readers in [&mut self.world.readers, &mut self.world.eager_readers] {
            totals.edges -= readers.get(id).map_or(0, IdSet::len);
            readers.remove(id);
        }
        self.world.nodes.remove(id);
        if let Some(memo) = node.memo() {
            totals.memos -= 1;
            for &read in memo.reads.iter() {
                self.disconnect(read, &node.subject);
            }
        }
    }

    /// Replaces the edges of a memo by those to `reads`.
    fn rewire(&mut self, reader: &Subject, reads: &[Subject]) -> Arc<[NodeId]> {
        let new: Arc<[NodeId]> = reads.iter().map(Subject::id).collect();
        let Some(old) = self.world.memo(reader.id()).map(|memo| Arc::clone(&memo.reads)) else {
            reads.iter().for_each(|subject| self.connect(subject, reader));
            return new;
        };
        let (before, after) = (sorted(&old), sorted(&new));
        for subject in reads {
            if before.binary_search(&subject.id()).is_err() {
                self.connect(subject, reader);
            }
        }
        for &read in old.iter() {
            if after.binary_search(&read).is_err() {
                self.disconnect(read, reader);
            }
        }
        new
    }

    fn connect(&mut self, read: &Subject, reader: &Subject) {
        self.make_node(read);
        let readers = self.readers_like(reader).get_or_insert_with(read.id(), IdSet::default);
        let is_new = readers.insert(reader.id());
        self.world.totals.edges += usize::from(is_new);
    }

    fn disconnect(&mut self, read: NodeId, reader: &Subject) {
        let readers = self.readers_like(reader);
        let Some(known) = readers.get_mut(read) else { return };
        let was_known = known.remove(reader.id());
        if known.is_empty() {
            readers.remove(read);
            self.loose.push(read);
        }
        self.world.totals.edges -= usize::from(was_known);
    }

    /// The readers of each node, of the layer that a reader is of.
    fn readers_like(&mut self, reader: &Subject) -> &mut IdMap<IdSet> {
        if reader.is_eager() { &mut self.world.eager_readers } else { &mut self.world.readers }
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.world.nodes.get_mut(id).map(Arc::make_mut)
    }

    fn node_for(&mut self, subject: &Subject) -> &mut Node {
        self.make_node(subject);
        self.node_mut(subject.id()).expect("made if it was missing")
    }

    /// Gives an input or a bucket that has no node one without content.
    fn make_node(&mut self, subject: &Subject) {
        if self.world.node(subject.id()).is_some() {
            return;
        }
        let body = match subject.kind() {
            SubjectKind::Input => Body::Input(None),
            SubjectKind::Members | SubjectKind::Keys => Body::Members(Box::default()),
            SubjectKind::Query => unreachable!("a query is recorded before those that read it"),
        };
        self.insert(subject, body);
    }

    fn insert(&mut self, subject: &Subject, body: Body) {
        let node = Node { subject: subject.clone(), body };
        self.world.totals.bytes += node.footprint();
        self.world.nodes.insert(subject.id(), Arc::new(node));
    }
}

fn sorted(ids: &[NodeId]) -> Vec<NodeId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}
