//! Mesh configuration: the defaults, and the tables of how it is laid over them.

use canopus_api::mesh_config::{apply, apply_proxy_config, default_mesh_config};
use canopus_base::tree::Node;
use canopus_proto::google::protobuf::Int64Value;
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{Provider, StackdriverProvider};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::{DefaultProviders, ExtensionProvider};
use canopus_proto::json::{self, Unknown};

use crate::{corpus, documents};

fn text<'a>(case: &'a Node, column: &str) -> &'a str {
    case.get(column).and_then(Node::as_str).unwrap_or_default()
}

fn truth(case: &Node, column: &str) -> bool {
    case.get(column).and_then(Node::as_bool).unwrap_or_default()
}

#[test]
fn defaults_are_those_of_the_corpus() {
    let Some(root) = corpus() else { return };
    let document = documents(&root.join("defaults/meshconfig.yaml")).remove(0);
    let expected = json::read::<MeshConfig>(&document, Unknown::Reject).unwrap().value;
    assert_eq!(default_mesh_config(), expected);
}

#[test]
fn every_table_case_holds() {
    let Some(root) = corpus() else { return };
    let table = documents(&root.join("tables-primitives/mesh.yaml")).remove(0);
    let mut held = 0;
    for test in table.get("tests").unwrap().as_list().unwrap() {
        let check = match text(test, "test") {
            "TestProxyConfigMerge" => proxy_config_merge,
            "TestApplyMeshConfigLocalityZoneAware" => locality,
            "TestDeepMerge" => deep_merge,
            other => panic!("no check for {other}"),
        };
        for case in test.get("cases").unwrap().as_list().unwrap() {
            check(case);
            held += 1;
        }
    }
    assert!(held > 0);
}

fn proxy_config_merge(case: &Node) {
    let merged = |text: &str, mesh: &MeshConfig| apply_proxy_config(text, mesh).unwrap();
    let base = merged(text(case, "base"), &default_mesh_config());
    let expected = merged(text(case, "result"), &default_mesh_config());
    assert_eq!(merged(text(case, "overlay"), &base), expected, "{}", text(case, "name"));
}

fn locality(case: &Node) {
    let mesh = apply(text(case, "yaml"), &default_mesh_config()).unwrap().value;
    let enabled = |wrapper: Option<bool>| wrapper.unwrap_or_default();
    let locality = mesh.locality_lb_setting;
    let zone = mesh.zone_aware_lb_setting;
    let got = (
        locality.is_some(),
        enabled(locality.and_then(|setting| setting.enabled).map(|wrapper| wrapper.value)),
        zone.is_some(),
        enabled(zone.and_then(|setting| setting.enabled).map(|wrapper| wrapper.value)),
    );
    let columns = ["wantLocality", "wantLocEnabled", "wantZoneAware", "wantZAEnabled"];
    let expected = columns.map(|column| truth(case, column));
    assert_eq!(<[bool; 4]>::from(got), expected, "{}", text(case, "name"));
}

#[expect(deprecated, reason = "the table uses a field that is on its way out")]
fn deep_merge(case: &Node) {
    let base = MeshConfig {
        default_providers: Some(DefaultProviders {
            metrics: vec!["stackdriver".into()],
            ..DefaultProviders::default()
        }),
        extension_providers: vec![ExtensionProvider {
            name: "stackdriver".into(),
            provider: Some(Provider::Stackdriver(StackdriverProvider {
                max_number_of_attributes: Some(Int64Value { value: 3 }),
                ..StackdriverProvider::default()
            })),
        }],
        trust_domain_aliases: vec!["default".into(), "both".into()],
        ..default_mesh_config()
    };
    let mesh = apply(text(case, "in"), &base).unwrap().value;
    let expected = apply(text(case, "out"), &MeshConfig::default()).unwrap().value;
    let name = text(case, "name");
    assert_eq!(mesh.default_providers, expected.default_providers, "{name}");
    assert_eq!(mesh.extension_providers, expected.extension_providers, "{name}");
    assert_eq!(mesh.trust_domain_aliases, expected.trust_domain_aliases, "{name}");
}
