//! What holds in every published world.

use std::collections::BTreeSet;

use crate::Engine;
use crate::intern::NodeId;
use crate::world::{Body, Node, Totals, World};

/// Fails unless edges match in both directions, nothing is left over, and totals are right.
pub(super) fn check(engine: &Engine) {
    let _ = engine.stats();
    let stage = engine.core.current();
    let world = &stage.world;
    let mut totals = Totals::default();
    let mut idle = 0;
    world.nodes.for_each(|node| {
        let id = node.subject.id();
        assert!(
            world.node(id).is_some_and(|found| found.subject == node.subject),
            "{} has its own id",
            node.subject
        );
        check_edges(world, node);
        totals.bytes += node.footprint();
        match &node.body {
            Body::Input(value) => totals.inputs += usize::from(value.is_some()),
            Body::Members(_) => {}
            Body::Memo(memo) => {
                totals.memos += 1;
                totals.roots += usize::from(world.root(id).is_some());
                totals.edges += memo.reads.len();
                idle += usize::from(world.is_unheld(node));
            }
        }
        assert!(node.memo().is_some() || !world.is_unheld(node), "{} is garbage", node.subject);
    });
    assert_eq!(totals, world.totals);
    assert!(idle <= engine.core.options.idle, "{idle} idle memos");
}

fn check_edges(world: &World, node: &Node) {
    let id = node.subject.id();
    if let Some(memo) = node.memo() {
        let distinct: BTreeSet<NodeId> = memo.reads.iter().copied().collect();
        assert_eq!(distinct.len(), memo.reads.len(), "{} reads something twice", node.subject);
        for read in memo.reads.iter() {
            let read = world.node(*read).expect("what is read is there");
            let read_by_it = world.readers(read.subject.id()).any(|reader| reader == id);
            assert!(read_by_it, "{} misses {}", read.subject, node.subject);
        }
    }
    for reader in world.readers(id) {
        let memo = world.memo(reader).expect("readers are memos");
        assert!(memo.reads.contains(&id), "a reader does not read {}", node.subject);
    }
}
