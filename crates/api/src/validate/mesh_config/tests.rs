use super::*;
use crate::mesh_config::default_mesh_config;
use crate::validate::mesh_networks;
use crate::validate::{Report, fragment};
use canopus_proto::Message;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    Provider, ZipkinTracingProvider,
};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::{ExtensionProvider, TlsConfig};
use canopus_proto::istio::mesh::v1alpha1::network::{IstioNetworkGateway, istio_network_gateway::Gw};
use canopus_proto::istio::mesh::v1alpha1::{MeshNetworks, Network, ProxyConfig};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn report(mesh: &MeshConfig) -> Report {
    fragment(|scope| check(mesh, scope))
}

#[test]
fn defaults_are_sound() {
    let report = report(&default_mesh_config());
    assert_eq!((report.errors.as_slice(), report.warnings.as_slice()), (&[][..], &[][..]));
}

#[test]
fn nothing_at_all_lacks_what_the_mesh_needs() {
    let found = report(&MeshConfig::default());
    assert_eq!(
        found.error_text().unwrap(),
        "4 errors occurred:\n\
         \t* invalid proxy listen port: port number 0 must be in the range 1..65535\n\
         \t* invalid connect timeout: duration must be greater than 1ms\n\
         \t* missing default config\n\
         \t* trustDomain: empty domain name not allowed\n\n"
    );
}

#[test]
fn one_fault_of_a_proxy_is_a_list_of_one() {
    let defaults = default_mesh_config();
    let config = ProxyConfig { status_port: 0, ..defaults.default_config.clone().unwrap() };
    let found = report(&MeshConfig { default_config: Some(config), ..defaults });
    assert_eq!(
        found.error_text().unwrap(),
        "1 error occurred:\n\t* invalid status port: port number 0 must be in the range 1..65535\n\n"
    );
    assert_eq!(found.errors[0].path, "defaultConfig.statusPort");
}

#[test]
fn inbound_retries_of_the_mesh_are_checked() {
    let retries = HttpRetry { retry_on: "whenever".into(), attempts: 1, ..HttpRetry::default() };
    let mesh = MeshConfig { default_inbound_http_retry_policy: Some(retries), ..default_mesh_config() };
    let found = report(&mesh);
    assert!(found.error_text().unwrap().contains("invalid default inbound http retry policy:"));
    assert_eq!(found.errors[0].path, "defaultInboundHttpRetryPolicy.retryOn");
}

#[test]
fn broken_provider_is_reported_but_does_not_refuse_the_mesh() {
    let mesh =
        MeshConfig { extension_providers: vec![ExtensionProvider::default()], ..default_mesh_config() };
    let found = report(&mesh);
    assert!(found.is_valid() && found.warning_text().is_none());
    assert_eq!(found.warnings[0].path, "extensionProviders[0].name");
}

#[test]
fn curves_are_known_and_named_once() {
    let tls_defaults = TlsConfig {
        ecdh_curves: ["P-256", "b", "P-256", "a", "X25519"].map(String::from).to_vec(),
        ..Default::default()
    };
    let mesh = MeshConfig { tls_defaults: Some(tls_defaults), ..default_mesh_config() };
    let found = report(&mesh);
    assert_eq!(
        found.warning_texts().collect::<Vec<_>>(),
        ["detected unrecognized ECDH curves: [a b]", "detected duplicate ECDH curves: [P-256]"]
    );
}

/// A mesh that uses what the defaults do not.
fn mesh() -> MeshConfig {
    MeshConfig {
        extension_providers: vec![ExtensionProvider {
            name: "zipkin".into(),
            provider: Some(Provider::Zipkin(ZipkinTracingProvider {
                service: "tracing/zipkin.example.com".into(),
                port: 9411,
                ..Default::default()
            })),
        }],
        service_settings: vec![ServiceSettings { hosts: vec!["*.example.com".into()], ..Default::default() }],
        trust_domain_aliases: vec!["old.example".into()],
        tls_defaults: Some(TlsConfig { ecdh_curves: vec!["P-256".into()], ..Default::default() }),
        ..default_mesh_config()
    }
}

fn networks() -> MeshNetworks {
    let gateway =
        IstioNetworkGateway { port: 443, gw: Some(Gw::Address("10.0.0.1".into())), ..Default::default() };
    let network = Network { gateways: vec![gateway], ..Default::default() };
    MeshNetworks { networks: [("a".to_owned(), network)].into() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn configuration_with_changed_bytes_is_validated(changes in vec((any::<Index>(), any::<u8>()), 0..8)) {
        let changed = |mut bytes: Vec<u8>| {
            for (place, byte) in &changes {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            bytes
        };
        if let Ok(mesh) = MeshConfig::decode(changed(mesh().encode_to_vec()).as_slice()) {
            report(&mesh);
        }
        if let Ok(networks) = MeshNetworks::decode(changed(networks().encode_to_vec()).as_slice()) {
            fragment(|scope| mesh_networks::check(&networks, scope));
        }
    }
}
