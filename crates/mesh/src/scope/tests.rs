use std::collections::BTreeMap;

use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};

use super::host_filter::one_namespace_per_host;
use super::*;
use crate::audience::Caller;
use crate::audience::View;
use crate::proxy::Proxy;
use crate::service::ServicesVisibleTo;
use crate::testing;
use crate::world::MeshSettings;

const SERVICES: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: own}
spec:
  hosts: [a.com]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: http2, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: b, namespace: other}
spec:
  hosts: [b.com]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: hidden, namespace: other}
spec:
  hosts: [hidden.com]
  exportTo: [.]
  ports: [{number: 80, name: http, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: to-b, namespace: own}
spec:
  hosts: [a.com]
  http: [{route: [{destination: {host: b.com, port: {number: 443}}}]}]
---
";

struct Probe;

impl Query for Probe {
    const NAME: &'static str = "probe";
    type Key = Proxy;
    type Value = Arc<Scope>;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Arc<Scope> {
        super::scope(ctx, &Caller::new(ctx, &View::new(ctx, proxy)).scope)
    }
}

/// The scope of a sidecar in namespace `own` with label `app: client`.
fn scope(objects: &str) -> Arc<Scope> {
    let engine = testing::world(MeshSettings::default(), &format!("{SERVICES}{objects}"));
    let labels = Struct::from(BTreeMap::from([("app".to_owned(), Value::from("client"))]));
    let metadata = Struct::from(BTreeMap::from([
        ("NAMESPACE".to_owned(), Value::from("own")),
        ("LABELS".to_owned(), Value::from(labels)),
    ]));
    let id = "sidecar~10.0.0.1~client.own~own.svc.cluster.local".to_owned();
    let proxy = Proxy::new(&Node { id, metadata: Some(metadata), ..Default::default() }, None).unwrap();
    engine.snapshot().get::<Probe>(&proxy).unwrap().as_ref().clone()
}

/// Hosts with their ports.
fn shown(services: &List<Service>) -> Vec<String> {
    let ports =
        |service: &Service| service.ports.iter().map(|port| port.number.to_string()).collect::<Vec<_>>();
    services.iter().map(|service| format!("{} {}", service.host, ports(service).join(","))).collect()
}

#[test]
fn everything_visible_is_known_when_no_sidecar_says_otherwise() {
    let scope = scope("");
    assert_eq!(shown(scope.services()), ["a.com 80,81", "b.com 80,443"]);
    assert_eq!(scope.listeners[0].virtual_services.len(), 1);
    assert!(scope.allows_any());
    assert!(scope.service("b.com").is_some() && scope.service("hidden.com").is_none());
}

#[test]
fn routes_bring_in_the_ports_they_lead_to() {
    let scope = scope(
        "
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: own}
spec:
  egress: [{hosts: [./*]}]
  outboundTrafficPolicy: {mode: REGISTRY_ONLY}
",
    );
    assert_eq!(shown(&scope.listeners[0].services), ["a.com 80,81"]);
    assert_eq!(shown(scope.services()), ["a.com 80,81", "b.com 443"]);
    assert!(!scope.allows_any());
}

#[test]
fn routes_bring_in_the_ports_of_each_when_several_lead_to_what_is_exported_to_nobody() {
    let scope = scope(
        "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: private, namespace: own}
spec:
  hosts: [private.com]
  exportTo: ['~']
  ports: [{number: 80, name: a, protocol: HTTP}, {number: 81, name: b, protocol: HTTP}, {number: 82, name: c, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: first, namespace: own}
spec: {hosts: [one.com], http: [{route: [{destination: {host: private.com, port: {number: 81}}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: second, namespace: own}
spec: {hosts: [two.com], http: [{route: [{destination: {host: private.com, port: {number: 80}}}]}]}
",
    );
    assert_eq!(shown(scope.services()), ["a.com 80,81", "b.com 80,443", "private.com 81,80"]);
}

#[test]
fn listener_of_a_port_sees_that_port_alone_and_parts_come_together() {
    let scope = scope(
        "
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: own}
spec:
  egress:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: [own/a.com]}
  - {port: {number: 81, name: http2, protocol: HTTP}, hosts: [own/a.com]}
  - {port: {number: 9000, name: proxy, protocol: HTTP_PROXY}, hosts: ['other/*']}
",
    );
    let of = |port| shown(&scope.listener_for(port, "").unwrap().services);
    assert_eq!(of(80), ["a.com 80"]);
    assert_eq!(of(81), ["a.com 81"]);
    assert_eq!(of(9000), ["b.com 80,443"]);
    assert!(scope.listener_for(443, "").is_none());
    assert_eq!(shown(scope.services()), ["a.com 80,81", "b.com 80,443"]);
}

#[test]
fn sidecar_that_selects_the_workload_goes_before_older_ones_and_the_root_namespace_comes_last() {
    let sidecar = |namespace: &str, name: &str, year: u32, selector: &str| {
        format!(
            "
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z'}}
spec: {{{selector}}}
"
        )
    };
    let name = |objects: &str| scope(objects).sidecar.as_ref().map(|sidecar| sidecar.meta.name.to_string());
    let root = sidecar("istio-system", "root", 2020, "");
    let all = sidecar("own", "all", 2021, "");
    let selecting = sidecar("own", "selecting", 2022, "workloadSelector: {labels: {app: client}}");
    let others = sidecar("own", "others", 2020, "workloadSelector: {labels: {app: server}}");
    assert_eq!(name(&root).as_deref(), Some("root"));
    assert_eq!(name(&format!("{root}{others}")).as_deref(), Some("root"));
    assert_eq!(name(&format!("{root}{all}{others}")).as_deref(), Some("all"));
    assert_eq!(name(&format!("{root}{all}{selecting}{others}")).as_deref(), Some("selecting"));
}

#[test]
fn own_definition_of_a_host_counts_when_others_define_it_too() {
    let of_own = |kind: &str| {
        let entry = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own-b, namespace: NAMESPACE}
spec:
  hosts: [b.com]
  ports: [{number: 90, name: http, protocol: HTTP}]
";
        shown(scope(&entry.replace("NAMESPACE", kind)).services())
    };
    assert_eq!(of_own("own"), ["a.com 80,81", "b.com 90"]);
    assert_eq!(of_own("third"), ["a.com 80,81", "b.com 80,443"]);
}

#[test]
fn routes_to_what_is_not_there_bring_in_nothing() {
    let scope = scope(
        "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: lost, namespace: third}
spec:
  hosts: [lost.com]
  http: [{route: [{destination: {host: hidden.com}}, {destination: {host: nowhere.com}}]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: own-lost, namespace: own}
spec:
  hosts: [own.com]
  exportTo: [.]
  http: [{route: [{destination: {host: a.com}}]}]
",
    );
    assert_eq!(shown(scope.services()), ["a.com 80,81", "b.com 80,443"]);
    let routes: Vec<&str> = scope.listeners[0].virtual_services.iter().map(|route| route.name()).collect();
    assert_eq!(routes, ["own-lost", "lost", "to-b"]);
}

/// What is seen of a world, as it is kept and as it is gathered from the whole mesh.
struct Gathered;

impl Query for Gathered {
    const NAME: &'static str = "gathered";
    type Key = ScopeKey;
    type Value = [Vec<Arc<Service>>; 4];

    fn run(ctx: &Ctx<'_>, key: &ScopeKey) -> Self::Value {
        let terms = ctx.get::<ScopeSettingsFor>(key);
        let namespace = key.namespace();
        let visible = ctx.get::<ServicesVisibleTo>(namespace).to_vec();
        let (imported, gathered) = match &terms.visibility_key {
            VisibilityKey::Unlimited(import) => {
                (ctx.get::<ImportedServices>(import).to_vec(), one_namespace_per_host(visible, namespace))
            }
            _ => (visible.clone(), visible),
        };
        let seen = ctx.get::<VisibleServicesFor>(&terms.visibility_key).services.to_vec();
        [imported, gathered, seen, visible_services::collect_services(ctx, &terms.visibility_key)]
    }
}

/// Some ServiceEntries, Services and routes in three namespaces with few hosts, picked by the bits of a number.
fn some_objects(mut bits: u64) -> String {
    let mut pick = |from: u64| {
        // Knuth's multiplier: the high bits look random.
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 33) % from
    };
    let mut objects = String::new();
    for name in 0..6 {
        let namespace = ["own", "a", "b"][pick(3) as usize];
        let host = ["x.com", "y.com", "s.own.svc.cluster.local", "s.a.svc.cluster.local"][pick(4) as usize];
        let export_to = ["[]", "['*']", "[.]", "[own]", "['~']", "[a, b]"][pick(6) as usize];
        let addresses =
            ["[]", "[10.0.0.1]", "[10.0.0.1, 10.0.0.2]", "[10.0.0.3, 10.0.0.3]"][pick(4) as usize];
        let age = pick(2);
        objects += &format!(
            "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: e{name}, namespace: {namespace}, \
             creationTimestamp: '2024-01-01T00:00:0{age}Z'}}, spec: {{hosts: [{host}], exportTo: {export_to}, \
             addresses: {addresses}, ports: [{{number: 8{name}, name: http, protocol: HTTP}}]}}}}\n---\n"
        );
        let target = ["x.com", "y.com", "s.own.svc.cluster.local", "gone.com"][pick(4) as usize];
        objects += &format!(
            "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: v{name}, namespace: {namespace}}}, \
             spec: {{hosts: [{host}], exportTo: {export_to}, http: [{{route: [{{destination: {{host: {target}}}}}]}}]}}}}\n---\n"
        );
    }
    for namespace in ["own", "a"] {
        if pick(2) == 0 {
            objects += &format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: s, namespace: {namespace}}}, \
                 spec: {{clusterIP: 10.1.0.1, ports: [{{name: http, port: 80}}]}}}}\n---\n"
            );
        }
    }
    objects
}

#[test]
fn what_is_kept_for_everybody_is_what_each_would_gather() {
    for seed in 0..400 {
        let objects = some_objects(seed);
        let engine = testing::world(MeshSettings::default(), &objects);
        let world = engine.snapshot();
        for namespace in ["own", "a", "elsewhere"] {
            for key in [ScopeKey::Gateways(namespace.into()), ScopeKey::Sidecars(namespace.into(), None)] {
                let found = world.get::<Gathered>(&key).unwrap();
                let [imported, expected_imports, seen, expected] = &*found;
                assert_eq!(imported, expected_imports, "{key:?} of\n{objects}");
                assert_eq!(seen, expected, "{key:?} of\n{objects}");
            }
        }
    }
}
