use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Settings};
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use canopus_proto::istio::networking::v1alpha3::DestinationRule;
use canopus_proto::{Message as _, Name};

use super::*;

const DOCUMENTS: &str = "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata:
  {name: cart, namespace: shop, labels: {team: a}, creationTimestamp: 2026-01-02T03:04:05Z, resourceVersion: '7'}
spec: {host: cart}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop}
spec: {hostnames: [cart.example.com]}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: shop}
stringData: {password: hidden}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop, resourceVersion: '9'}
spec: {clusterIP: 10.1.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec: {hosts: [outside.example.com], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}
";

/// The bodies of a type, each an `Any`.
fn bodies(type_url: &str) -> Vec<Any> {
    let mut batch = Batch::new();
    batch.set::<Settings>((), MeshSettings::default());
    for outcome in decode_documents(DOCUMENTS, &Limits::default(), Options::watch()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    let engine = Engine::new();
    engine.apply(batch);
    let served = engine.get::<ServedConfig>(&type_url.into()).unwrap();
    served.iter().map(|resource| Any::decode(resource.body.clone()).unwrap()).collect()
}

/// What objects of a type say of themselves, and what they say.
fn objects<M: canopus_proto::Message + Name + Default>(type_url: &str) -> Vec<(Metadata, M)> {
    let envelopes = bodies(type_url).into_iter().map(|any| any.unpack::<Envelope>().unwrap());
    envelopes.map(|one| (one.metadata.unwrap(), one.body.unwrap().unpack().unwrap())).collect()
}

#[test]
fn object_is_served_with_its_metadata_and_its_message() {
    let found = objects::<DestinationRule>("networking.istio.io/v1/DestinationRule");
    let [(metadata, rule)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((metadata.name.as_str(), metadata.version.as_str()), ("shop/cart", "7"));
    assert_eq!(metadata.labels["team"], "a");
    assert_eq!(metadata.create_time.unwrap().to_json().unwrap(), "2026-01-02T03:04:05Z");
    assert_eq!(rule.host, "cart.shop.svc.cluster.local");
}

#[test]
fn object_without_a_message_is_served_as_a_structure() {
    let found = objects::<Struct>("gateway.networking.k8s.io/v1/HTTPRoute");
    let [(metadata, spec)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((metadata.name.as_str(), metadata.create_time), ("shop/cart", Some(NEVER)));
    assert!(spec.fields.contains_key("hostnames"), "{spec:?}");
}

#[test]
fn services_of_the_cluster_are_served_as_service_entries() {
    let found = objects::<ServiceEntry>("networking.istio.io/v1/ServiceEntry");
    let names: Vec<_> = found.iter().map(|(metadata, _)| metadata.name.as_str()).collect();
    assert_eq!(names, ["shop/outside", "shop/synthetic-cart"]);
    let (metadata, entry) = &found[1];
    assert_eq!(metadata.version, "9");
    assert_eq!(entry.hosts, ["cart.shop.svc.cluster.local"]);
    assert_eq!(entry.addresses, ["10.1.0.1"]);
    assert_eq!((entry.location(), entry.resolution()), (Location::MeshInternal, Written::Static));
    assert_eq!((entry.ports[0].number, entry.ports[0].protocol.as_str()), (80, "HTTP"));
    assert_eq!(entry.workload_selector.as_ref().unwrap().labels["app"], "cart");
}

#[test]
fn mesh_configuration_is_served_as_it_is() {
    let found = bodies(MESH_CONFIG);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].unpack::<MeshConfig>().unwrap(), MeshSettings::default().mesh);
}

#[test]
fn nothing_else_is_served() {
    for type_url in [
        "v1/Secret",
        "core/v1/Secret",
        "/v1/Secret",
        "networking.istio.io/v1beta1/DestinationRule",
        "networking.istio.io/v1/Nonsense",
        "type.googleapis.com/nonsense",
        "",
    ] {
        assert!(!is_served(type_url), "{type_url}");
        assert_eq!(bodies(type_url), [], "{type_url}");
    }
}
