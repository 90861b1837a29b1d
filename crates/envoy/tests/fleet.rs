//! What a change costs does not depend on how many proxies are connected, unless it changes what they are sent. Work is
//! counted, not timed.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its world has failed")]

#[path = "../benches/fleet/world.rs"]
mod world;

use canopus_engine::{Batch, Stats};

use world::{Fleet, Size, decode, kube_node, set};

const SMALL: Size = Size { services: 40, proxies: 50 };
const LARGE: Size = Size { proxies: 500, ..SMALL };

/// Memos marked and queries run by a change, and watched results it changed.
fn work(fleet: &Fleet, batch: Batch) -> (u64, u64, usize) {
    let before: Stats = fleet.engine.stats();
    let changed = fleet.engine.apply(batch).changed.len();
    let after = fleet.engine.stats();
    (after.marks - before.marks, after.evaluations - before.evaluations, changed)
}

#[test]
fn change_that_nobody_reads_costs_the_same_whatever_the_fleet() {
    let no_ops = |size: Size| {
        vec![
            ("annotation of a Service", set(&size.service(7, ", annotations: {example.com/note: x}"))),
            (
                "managed fields of a Service",
                set(&size.service(7, ", managedFields: [{manager: kubectl}], resourceVersion: '7'")),
            ),
            ("resource version of a VirtualService", set(&size.route(10, ", resourceVersion: '7'", 5))),
            ("label of a VirtualService", set(&size.route(10, ", labels: {team: x}", 5))),
            ("heartbeat of a Node", set(&kube_node(3, 7))),
            ("status of a Pod", set(&size.pod(3, "", 7))),
            ("annotation of a Pod", set(&size.pod(3, ", annotations: {example.com/note: x}", 7))),
        ]
    };
    let (small, large) = (Fleet::new(SMALL), Fleet::new(LARGE));
    for ((name, in_small), (_, in_large)) in no_ops(SMALL).into_iter().zip(no_ops(LARGE)) {
        let (marks, runs, changed) = work(&large, in_large);
        assert_eq!(changed, 0, "{name}");
        assert!(marks <= 32 && runs <= 4, "{name}: {marks} marked, {runs} run");
        assert_eq!(work(&small, in_small).0, marks, "{name}");
    }
}

#[test]
fn service_that_comes_does_not_touch_the_audiences_of_proxies() {
    let fleet = Fleet::new(LARGE);
    for (name, count) in fleet.watched() {
        assert!(count > 0, "no {name} are watched");
    }
    let (origin, object) = decode(&LARGE.service(LARGE.services + 3, ""));
    let before = fleet.engine.evaluations();
    let mut batch = Batch::new();
    batch.set::<canopus_mesh::world::Objects>(origin, object);
    assert!(!fleet.engine.apply(batch).changed.is_empty());
    let after = fleet.engine.evaluations();
    assert_eq!(after["audiences_of"], before["audiences_of"]);
}
