use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_runtime::flags::Flags;

use super::*;
use crate::testing;
use crate::world::MeshSettings;

const SHOP: &str = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.1.0.1
  ports: [{name: http, port: 80}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: private, namespace: other}
spec: {hosts: [private.com], exportTo: [.], ports: [{number: 80, name: http, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec: {host: cart, subsets: [{name: v1, labels: {version: v1}}]}
";

fn found_with(objects: &str, settings: MeshSettings) -> Vec<String> {
    let engine = testing::world(settings, &format!("{SHOP}---\n{objects}"));
    let found = all_diagnostics(&engine.snapshot()).unwrap();
    found.iter().map(|one| format!("{} {}: {}", one.code, one.object, one.field)).collect()
}

fn found(objects: &str) -> Vec<String> {
    found_with(objects, MeshSettings::default())
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    assert_eq!(
        found(
            "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: cart, namespace: shop}
spec: {hosts: [cart], http: [{route: [{destination: {host: cart, subset: v1, port: {number: 80}}}]}]}
"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn destinations_that_lead_nowhere_are_found_with_their_fields() {
    let found = found(
        "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: cart, namespace: shop}
spec:
  hosts: [cart]
  http:
  - route: [{destination: {host: cart, subset: v2}}, {destination: {host: gone}}]
    mirrors: [{destination: {host: private.com}}]
  - route: [{destination: {host: cart, port: {number: 81}}}]
",
    );
    assert_eq!(
        found,
        [
            "CAN0101 VirtualService shop/cart: spec.http[1].route[0].destination.port",
            "IST0101 VirtualService shop/cart: spec.http[0].mirrors[0].destination.host",
            "IST0101 VirtualService shop/cart: spec.http[0].route[0].destination.subset",
            "IST0101 VirtualService shop/cart: spec.http[0].route[1].destination.host",
        ]
    );
}

#[test]
fn delegates_that_cannot_be_asked_are_found() {
    let found = found(
        "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: root, namespace: shop}
spec:
  hosts: [a.com]
  gateways: [none]
  http:
  - {match: [{uri: {prefix: /a}}], delegate: {name: gone}}
  - {match: [{uri: {prefix: /b}}], delegate: {name: nested}}
  - {match: [{uri: {prefix: /c}}], delegate: {name: hidden, namespace: other}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: nested, namespace: shop}
spec: {http: [{delegate: {name: root}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: hidden, namespace: other}
spec: {exportTo: [.], http: [{route: [{destination: {host: private.com}}]}]}
",
    );
    assert_eq!(
        found,
        [
            "CAN0102 VirtualService shop/nested: spec.http[0].delegate",
            "CAN0102 VirtualService shop/root: spec.http[2].delegate",
            "IST0101 VirtualService shop/root: spec.gateways[0]",
            "IST0101 VirtualService shop/root: spec.http[0].delegate",
        ]
    );
}

#[test]
fn younger_of_two_in_each_others_way_is_told() {
    let found = found(
        "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: one, namespace: shop, creationTimestamp: 2024-01-01T00:00:00Z}
spec: {hosts: [cart], http: [{route: [{destination: {host: cart}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: two, namespace: shop, creationTimestamp: 2025-01-01T00:00:00Z}
spec: {hosts: [cart.shop.svc.cluster.local], http: [{route: [{destination: {host: cart}}]}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: one, namespace: shop, creationTimestamp: 2024-01-01T00:00:00Z}
spec: {selector: {app: edge}, servers: [{hosts: [a.com], port: {number: 80, name: http, protocol: HTTP}}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: two, namespace: shop, creationTimestamp: 2025-01-01T00:00:00Z}
spec: {selector: {app: edge}, servers: [{hosts: [b.com], port: {number: 80, name: tcp, protocol: TCP}}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: one, namespace: shop, creationTimestamp: 2024-01-01T00:00:00Z}
spec: {egress: [{hosts: ['./*']}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: two, namespace: shop, creationTimestamp: 2025-01-01T00:00:00Z}
spec: {egress: [{hosts: ['./*']}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: shop, creationTimestamp: 2024-01-01T00:00:00Z}
spec: {hosts: [db.com], addresses: [10.9.0.1], ports: [{number: 3306, name: tcp, protocol: TCP}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: three, namespace: shop, creationTimestamp: 2025-01-01T00:00:00Z}
spec: {hosts: [db.com, cache.com], addresses: [10.9.0.1], ports: [{number: 3306, name: tcp, protocol: TCP}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: gone, namespace: shop}
spec: {host: gone.com}
",
    );
    assert_eq!(
        found,
        [
            "IST0174 DestinationRule shop/gone: spec.host",
            "IST0145 Gateway shop/two: spec.servers[0]",
            "CAN0201 ServiceEntry shop/three: spec.hosts",
            "CAN0202 ServiceEntry shop/three: spec",
            "IST0111 Sidecar shop/two: spec.workloadSelector",
            "IST0109 VirtualService shop/two: spec.hosts[0]",
        ]
    );
}

#[test]
fn providers_and_addresses_that_nobody_asks_are_found() {
    let policies = "
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: ask, namespace: shop}
spec: {action: CUSTOM, provider: {name: oracle}, rules: [{}]}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: spans, namespace: shop}
spec: {tracing: [{providers: [{name: collector}]}]}
---
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: spy, namespace: shop}
spec: {url: 'http://169.254.169.254/latest/meta-data'}
---
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: image, namespace: shop}
spec: {url: 'oci://10.6.0.1:5000/filters/auth:v1'}
";
    let told = [
        "CAN0301 AuthorizationPolicy shop/ask: spec.provider.name",
        "CAN0302 Telemetry shop/spans: spec.tracing[0].providers[0].name",
        "CAN0401 WasmPlugin shop/spy: spec.url",
    ];
    assert_eq!(found(policies), told);

    let mut settings = MeshSettings::default();
    let provider = |name: &str| ExtensionProvider { name: name.into(), ..Default::default() };
    settings.mesh.extension_providers = vec![provider("oracle"), provider("collector")];
    let variables = BTreeMap::from([("BLOCKED_CIDRS_IN_WASM_FETCH".to_owned(), "10.6.0.0/16".to_owned())]);
    settings.flags = Arc::new(Flags::read(&variables));
    let found = found_with(policies, settings);
    assert_eq!(found, ["CAN0401 WasmPlugin shop/image: spec.url", "CAN0401 WasmPlugin shop/spy: spec.url"]);
}
