//! The registry of kinds.

use canopus_api::registry::{Category, Scope};
use canopus_api::{Kind, LookupError};

#[test]
fn every_served_version_is_the_same_kind() {
    for &kind in Kind::ALL {
        let info = kind.info();
        for version in info.versions {
            let api_version = match info.group {
                "" => (*version).to_owned(),
                group => format!("{group}/{version}"),
            };
            assert_eq!(Kind::lookup(&api_version, info.kind), Ok(kind));
        }
        assert_eq!(Kind::by_resource(info.group, info.plural), Some(kind));
    }
}

#[test]
fn kinds_are_all_there() {
    let count = |category| Kind::ALL.iter().filter(|kind| kind.info().category == category).count();
    assert_eq!(count(Category::Istio), 15);
    assert_eq!(count(Category::GatewayApi), 12);
    assert_eq!(count(Category::Kubernetes), 22);
    assert_eq!(count(Category::MultiCluster), 2);
    assert_eq!(count(Category::Inference), 1);
}

#[test]
fn lookup_fails_by_kind_or_by_version() {
    assert_eq!(Kind::lookup("v1", "Nothing"), Err(LookupError::UnknownKind));
    assert_eq!(Kind::lookup("networking.istio.io/v1", "HTTPRoute"), Err(LookupError::UnknownKind));
    assert_eq!(
        Kind::lookup("networking.istio.io/v1", "EnvoyFilter"),
        Err(LookupError::UnknownVersion(Kind::EnvoyFilter))
    );
}

#[test]
fn word_of_a_command_line_finds_its_kinds() {
    assert_eq!(Kind::named("vs"), [Kind::VirtualService]);
    assert_eq!(Kind::named("VirtualServices"), [Kind::VirtualService]);
    assert_eq!(Kind::named("gateway"), [Kind::Gateway, Kind::KubernetesGateway], "Istio's is meant first");
    assert_eq!(Kind::named("gateways.gateway.networking.k8s.io"), [Kind::KubernetesGateway]);
    assert_eq!(Kind::named("gtw"), [Kind::KubernetesGateway]);
    assert_eq!(Kind::named("svc"), [Kind::Service]);
    assert_eq!(Kind::named("nothing"), []);
}

#[test]
fn names_for_urls_and_documents_are_built_from_the_row() {
    let info = Kind::VirtualService.info();
    assert_eq!(info.api_version(), "networking.istio.io/v1");
    assert_eq!(info.resource(), "virtualservices.networking.istio.io");
    assert_eq!(Kind::Pod.info().api_version(), "v1");
    assert_eq!(Kind::Node.info().scope, Scope::Cluster);
}

#[test]
fn old_bundle_is_refused_where_there_is_a_minimum() {
    let tls = Kind::TlsRoute.info();
    let accepts = |version: &str| tls.accepts_bundle(Some(version));
    assert!(accepts("v1.5.0") && accepts("v1.6.0-rc.1") && accepts("v2.0.0"));
    assert!(!accepts("v1.4.1") && !accepts("unknown") && !tls.accepts_bundle(None));
    assert!(Kind::HttpRoute.info().accepts_bundle(None));
}
