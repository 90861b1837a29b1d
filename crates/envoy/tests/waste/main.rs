//! Generators run about once for each distinct resource, whatever the proxies of a fleet are.
//!
//! A small fleet is built as real ones are: Deployments with sidecars on nodes in three zones, ingress gateways, waypoints and a
//! namespace that a Sidecar narrows. For connecting and for each kind of change the pools tell how many resources were generated
//! and how many of them nobody had; the ratio may not exceed [`MOST`] in any family.
//!
//! `CANOPUS_FLEET=full cargo test --release -p canopus-envoy --test waste -- --nocapture` does the same with a thousand proxies.
#![expect(clippy::print_stdout, reason = "figures for who runs it with --nocapture")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fleet;
mod objects;
mod proxies;

use std::collections::BTreeMap;

use canopus_envoy::pool::{self, Counts};
use parking_lot::{Mutex, MutexGuard};

use fleet::Fleet;
use objects::Mesh;

/// The most runs of a generator for each distinct resource.
const MOST: f64 = 1.1;

/// The pools are those of the process, so only one test at a time may look at them.
static POOLS: Mutex<()> = Mutex::new(());

/// Runs and distinct results of each family.
type Runs = BTreeMap<&'static str, (u64, u64)>;

fn counts() -> Runs {
    let runs = |Counts { family, generated, distinct, .. }| (family, (generated, distinct));
    pool::counts().into_iter().map(runs).collect()
}

/// Counts what the generators do from now on.
struct Measure {
    before: Runs,
}

impl Measure {
    fn start() -> Self {
        Self { before: counts() }
    }

    /// Runs and distinct results since the start.
    fn runs(&self) -> Runs {
        let since = |(family, (runs, distinct))| {
            let (runs_before, distinct_before) = self.before[family];
            (family, (runs - runs_before, distinct - distinct_before))
        };
        counts().into_iter().map(since).collect()
    }

    /// Fails if a family generated what somebody had already. Returns the runs of each family.
    fn assert_little_waste(&self, what: &str) -> BTreeMap<&'static str, u64> {
        let all = self.runs();
        println!("{what}: runs and distinct results: {all:?}");
        for (family, (runs, distinct)) in &all {
            assert!(
                *runs as f64 <= MOST * *distinct as f64,
                "{what}: {family} were generated {runs} times for {distinct} distinct ones"
            );
        }
        all.into_iter().map(|(family, (runs, _))| (family, runs)).collect()
    }
}

/// A fleet that nobody else's counts get mixed up with.
fn connected() -> (Fleet, MutexGuard<'static, ()>) {
    let alone = POOLS.lock();
    (Fleet::connected(Mesh::from_environment()), alone)
}

#[test]
fn connecting_generates_each_resource_once() {
    let _alone = POOLS.lock();
    let measure = Measure::start();
    let fleet = Fleet::connected(Mesh::from_environment());
    let runs = measure.assert_little_waste("connecting");
    assert!(runs["clusters"] >= fleet.mesh.services as u64, "{runs:?}");
    assert!(runs["routes"] >= fleet.mesh.namespaces as u64, "{runs:?}");
}

#[test]
fn endpoint_change_generates_the_endpoints_of_its_service_once() {
    let (mut fleet, _alone) = connected();
    for service in [0, 1, 3, fleet.mesh.workloads, fleet.mesh.services - 1] {
        let measure = Measure::start();
        fleet.set(&fleet.mesh.slice(service, &fleet.mesh.pods_of(service)[1..]));
        let runs = measure.assert_little_waste("an endpoint goes");
        assert!(runs["endpoints"] >= 1 && runs["clusters"] + runs["listeners"] + runs["routes"] == 0);
    }
}

#[test]
fn virtual_service_change_generates_each_route_table_once() {
    let (mut fleet, _alone) = connected();
    let measure = Measure::start();
    fleet.set(&fleet.mesh.virtual_service(10, 7));
    let runs = measure.assert_little_waste("a VirtualService changes");
    assert!(runs["routes"] >= fleet.mesh.namespaces as u64 && runs["clusters"] + runs["endpoints"] == 0);
    let measure = Measure::start();
    fleet.set(&fleet.mesh.ingress_route(5, 7));
    let runs = measure.assert_little_waste("a route of one gateway changes");
    assert_eq!(runs["routes"], 1);
}

#[test]
fn new_service_generates_its_resources_once() {
    let (mut fleet, _alone) = connected();
    let measure = Measure::start();
    let service = fleet.mesh.services;
    fleet.set(&fleet.mesh.service(service));
    fleet.set(&fleet.mesh.slice(service, &fleet.mesh.plain_pods(service)));
    let runs = measure.assert_little_waste("a service is added");
    assert!(runs["clusters"] >= 1 && runs["routes"] >= fleet.mesh.namespaces as u64);
}

#[test]
fn new_selector_generates_for_those_it_selects() {
    let (mut fleet, _alone) = connected();
    for (what, object) in [
        ("an EnvoyFilter for one label", fleet.mesh.envoy_filter()),
        ("an AuthorizationPolicy for one workload", fleet.mesh.authorization_policy(3)),
        ("a VirtualService for callers of one label", fleet.mesh.route_by_source_labels(4)),
        ("a Telemetry for one workload", fleet.mesh.telemetry(1)),
    ] {
        let measure = Measure::start();
        fleet.set(&object);
        measure.assert_little_waste(what);
    }
}

#[test]
fn rule_for_one_workload_generates_for_that_workload_alone() {
    let (mut fleet, _alone) = connected();
    let measure = Measure::start();
    fleet.set(&fleet.mesh.destination_rule_for_workload(2, 7));
    let runs = measure.runs();
    println!("a DestinationRule for one workload: runs and distinct results: {runs:?}");
    assert_eq!(runs["clusters"], (1, 1));
    // Whether the rule hashes requests or fails over is known only once its routes and endpoints are generated.
    assert!(runs["routes"].0 <= 1 && runs["endpoints"].0 <= 1 && runs["listeners"].0 <= 1, "{runs:?}");
}

#[test]
fn rolling_restart_generates_the_endpoints_of_the_workload() {
    let (mut fleet, _alone) = connected();
    let workload = 1;
    let mut pods = fleet.mesh.pods_of(workload);
    let measure = Measure::start();
    for at in 0..pods.len() {
        let old = pods[at].clone();
        pods[at] = old.restarted();
        fleet.set(&pods[at].object());
        fleet.connect(pods[at].clone());
        fleet.set(&fleet.mesh.slice(workload, &pods));
        fleet.disconnect(&old);
        fleet.remove(&old.object());
    }
    let runs = measure.assert_little_waste("a rolling restart");
    assert!(runs["endpoints"] >= pods.len() as u64);
    assert_eq!((runs["clusters"], runs["listeners"], runs["routes"]), (0, 0, 0), "nothing else changed");
}

#[test]
fn services_that_look_at_positions_are_generated_for_each_position_alone() {
    let (mut fleet, _alone) = connected();
    for (what, object) in [
        ("a node-local service", fleet.mesh.node_local_service(6)),
        ("a service of one's zone", fleet.mesh.zonal_service(7)),
        ("a rule that fails over by zone", fleet.mesh.destination_rule_with_failover(8)),
    ] {
        let measure = Measure::start();
        fleet.set(&object);
        // Two runs give what everybody had before: one for those the order makes no difference to, and one before audiences
        // have positions in them. Clusters say nothing of positions.
        let (runs, distinct) = measure.runs()["endpoints"];
        println!("{what}: endpoints: {runs} runs, {distinct} distinct");
        assert!(runs >= 1 && runs <= distinct + 2, "{what}: {runs} runs, {distinct} distinct");
    }
}
