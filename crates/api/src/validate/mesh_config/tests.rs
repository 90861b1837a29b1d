use super::*;
use crate::mesh_config::default_mesh_config;
use crate::validate::{Report, fragment};
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::{ExtensionProvider, TlsConfig};

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
