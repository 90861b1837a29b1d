//! Fleets in random worlds: what audiences leave out makes no difference.

use std::collections::BTreeMap;
use std::env;

use canopus_engine::{Batch, Engine};
use canopus_envoy::audience::{Audiences, AudiencesOf};
use canopus_envoy::bundle::Bundle;
use canopus_mesh::audience::Unreduced;
use canopus_mesh::proxy::Proxy;
use canopus_proto::envoy::config::core::v3::{Locality, Node};
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_proto::resource::Resource;
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::change::{World, changes};
use crate::subject::engine;

/// Worlds of a test run; each has a fleet, whose pairs make ten thousand together.
const WORLDS: u32 = 40;
/// The variable that asks for more of them.
const MORE_WORLDS: &str = "CANOPUS_AUDIENCE_WORLDS";
const FLEET: usize = 24;

/// One pod of a fleet: each differs from the others in something, as real pods do.
fn pod(at: usize) -> Proxy {
    let pick = |values: &'static [&'static str], by: usize| values[(at / by) % values.len()];
    let kind = if at % 8 == 7 { "router" } else { "sidecar" };
    let (space, app) = (pick(&["a", "b"], 1), pick(&["x", "w", "z"], 2));
    let (version, zone, node) =
        (pick(&["v1", "v2"], 3), pick(&["z1", "z2", "z3"], 1), pick(&["n1", "n2"], 5));
    let labels = [
        ("app", app),
        ("version", version),
        ("pod-template-hash", pick(&["f", "g", "h"], 1)),
        ("service.istio.io/canonical-name", app),
        ("istio", "gw"),
    ];
    let structure = |fields: &[(&str, &str)]| -> Value {
        let fields: BTreeMap<_, _> =
            fields.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
        Value::from(Struct::from(fields))
    };
    let (ip, name) = (format!("10.0.9.{at}"), format!("{app}-{at}"));
    let metadata = BTreeMap::from([
        ("NAMESPACE".to_owned(), Value::from(space)),
        ("NAME".to_owned(), Value::from(name.as_str())),
        ("CLUSTER_ID".to_owned(), Value::from("Kubernetes")),
        ("WORKLOAD_NAME".to_owned(), Value::from(app)),
        ("NODE_NAME".to_owned(), Value::from(node)),
        ("INSTANCE_IPS".to_owned(), Value::from(ip.as_str())),
        ("ISTIO_VERSION".to_owned(), Value::from(pick(&["1.32.0", "1.31.2"], 7))),
        ("FLAVOUR".to_owned(), Value::from(pick(&["sweet", "sour"], 11))),
        ("LABELS".to_owned(), structure(&labels)),
        ("ANNOTATIONS".to_owned(), structure(&[("kubernetes.io/config.seen", &ip)])),
    ]);
    let node = Node {
        id: format!("{kind}~{ip}~{name}.{space}~{space}.svc.cluster.local"),
        cluster: format!("{app}.{space}"),
        metadata: Some(Struct::from(metadata)),
        locality: Some(Locality { region: "r".into(), zone: zone.into(), ..Default::default() }),
        ..Default::default()
    };
    Proxy::new(&node, None).unwrap()
}

/// What a proxy gets, family by family.
fn families(bundle: &Bundle) -> [(&'static str, &[Resource]); 6] {
    [
        ("clusters", &bundle.clusters),
        ("endpoints", &bundle.endpoints),
        ("listeners", &bundle.listeners),
        ("routes", &bundle.routes),
        ("names", &bundle.names),
        ("extensions", &bundle.extensions),
    ]
}

/// A member of a fleet: its audiences and what it gets.
struct Member {
    audiences: Audiences,
    bundle: Bundle,
}

fn member(engine: &Engine, proxy: &Proxy) -> Member {
    let world = engine.snapshot();
    Member {
        audiences: world.get::<AudiencesOf>(proxy).unwrap().as_ref().clone(),
        bundle: Bundle::generate(&world, proxy).unwrap(),
    }
}

/// Whether two proxies share the audience of what they ask for by name.
fn shared(one: &Audiences, other: &Audiences) -> [(&'static str, bool); 3] {
    [
        ("endpoints", one.endpoints == other.endpoints),
        ("routes", one.routes == other.routes),
        ("names", one.names == other.names),
    ]
}

/// Whether both have the same resource wherever both have one of a name.
fn agree(one: &[Resource], other: &[Resource]) -> bool {
    let by_name: BTreeMap<_, _> = other.iter().map(|resource| (&resource.name, resource)).collect();
    one.iter().all(|resource| by_name.get(&resource.name).is_none_or(|same| *same == resource))
}

fn worlds() -> u32 {
    #[expect(clippy::disallowed_methods, reason = "how many worlds a test plays is no flag of the product")]
    let more = env::var(MORE_WORLDS);
    more.ok().map_or(WORLDS, |text| text.parse().unwrap())
}

proptest! {
    #![proptest_config(Config { cases: worlds(), failure_persistence: None, ..Config::default() })]

    #[test]
    fn what_audiences_leave_out_makes_no_difference(changes in changes(20..=90)) {
        let (reduced, whole) = (engine(), engine());
        reduced.apply(World::default().change(&changes));
        whole.apply(World::default().change(&changes));
        whole.apply(std::mem::take(Batch::new().set::<Unreduced>((), ())));
        let fleet: Vec<Proxy> = (0..FLEET).map(pod).collect();
        let members: Vec<Member> = fleet.iter().map(|proxy| member(&reduced, proxy)).collect();
        for (proxy, member) in fleet.iter().zip(&members) {
            let oracle = Bundle::generate(&whole.snapshot(), proxy).unwrap();
            for ((family, reduced), (_, whole)) in families(&member.bundle).into_iter().zip(families(&oracle)) {
                prop_assert!(reduced == whole, "{} of {:?} depend on what was left out", family, proxy);
            }
        }
        for (at, one) in members.iter().enumerate() {
            for other in &members[at + 1..] {
                let pairs = families(&one.bundle).into_iter().zip(families(&other.bundle));
                let shared: BTreeMap<_, _> = shared(&one.audiences, &other.audiences).into();
                for ((family, first), (_, second)) in pairs {
                    let is_shared = shared.get(family).copied().unwrap_or_default();
                    prop_assert!(!is_shared || agree(first, second), "{} of one audience differ", family);
                }
            }
        }
    }
}
