//! The invariants of every published graph.

use std::collections::BTreeSet;

use crate::Engine;
use crate::graph::{Content, Graph, Node, Totals};
use crate::ids::NodeId;

/// Fails unless every edge is recorded at both ends and in the right layer, nothing unheld is left, and totals are right.
pub(super) fn check(engine: &Engine) {
    let _ = engine.stats();
    let stage = engine.core.current();
    let graph = &stage.graph;
    let mut totals = Totals::default();
    let mut idle = 0;
    graph.nodes.for_each(|node| {
        let id = node.subject.id();
        assert!(
            graph.node(id).is_some_and(|found| found.subject == node.subject),
            "{} has its own id",
            node.subject
        );
        check_edges(graph, node);
        totals.bytes += node.footprint();
        match &node.content {
            Content::Input(value) => totals.inputs += usize::from(value.is_some()),
            Content::Bucket(_) => {}
            Content::Memo(memo) => {
                totals.memos += 1;
                totals.roots += usize::from(graph.root(id).is_some());
                totals.edges += memo.reads.len();
                idle += usize::from(graph.is_unheld(node));
            }
        }
        assert!(node.memo().is_some() || !graph.is_unheld(node), "{} is garbage", node.subject);
    });
    assert_eq!(totals, graph.totals);
    assert!(idle <= engine.core.options.idle, "{idle} idle memos");
}

fn check_edges(graph: &Graph, node: &Node) {
    let id = node.subject.id();
    if let Some(memo) = node.memo() {
        let distinct: BTreeSet<NodeId> = memo.reads.iter().copied().collect();
        assert_eq!(distinct.len(), memo.reads.len(), "{} reads something twice", node.subject);
        for read in memo.reads.iter() {
            let read = graph.node(*read).expect("a read node exists");
            let read_by_it = graph.readers(read.subject.id()).any(|reader| reader == id);
            assert!(read_by_it, "{} misses {}", read.subject, node.subject);
        }
    }
    for reader in graph.readers(id) {
        let memo = graph.memo(reader).expect("readers are memos");
        assert!(memo.reads.contains(&id), "a reader does not read {}", node.subject);
    }
    let is_eager = |id: NodeId| graph.node(id).is_some_and(|reader| reader.subject.is_eager());
    assert!(graph.eager_readers(id).all(is_eager), "a lazy reader of {} is listed as eager", node.subject);
    assert!(!graph.lazy_readers(id).any(is_eager), "an eager reader of {} is listed as lazy", node.subject);
    if node.subject.is_eager() {
        let reads = node.memo().into_iter().flat_map(|memo| memo.reads.iter());
        let closed = reads
            .filter_map(|read| graph.node(*read))
            .all(|read| read.memo().is_none() || read.subject.is_eager());
        assert!(closed, "{} reads a lazy query", node.subject);
    }
}
