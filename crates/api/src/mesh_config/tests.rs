use canopus_base::labels::Labels;
use canopus_proto::google::protobuf::Int32Value;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::{DefaultProviders, extension_provider::Provider};
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ClusterName;
use canopus_proto::istio::networking::v1beta1;
use canopus_proto::istio::r#type::v1beta1::WorkloadSelector;

use super::*;
use crate::istio;

fn applied(text: &str) -> MeshConfig {
    apply(text, &default_mesh_config()).unwrap().value
}

fn proxy(base: &str, overlay: &str) -> ProxyConfig {
    let base = merge_proxy_config(base, &default_proxy_config()).unwrap().value;
    merge_proxy_config(overlay, &base).unwrap().value
}

#[test]
fn nothing_given_leaves_the_defaults() {
    for text in ["", "{}", "# nothing\n", "connectTimeout: null"] {
        assert_eq!(applied(text), default_mesh_config(), "{text:?}");
    }
}

#[test]
fn mentioned_field_takes_its_place_even_to_become_empty() {
    let mesh = applied(
        "enableTracing: false\nconnectTimeout: 3s\noutboundTrafficPolicy: {}\ndefaultServiceExportTo: []",
    );
    assert!(!mesh.enable_tracing);
    assert_eq!(mesh.connect_timeout.unwrap().seconds, 3);
    assert_eq!(mesh.outbound_traffic_policy.unwrap().mode, 0);
    assert!(mesh.default_service_export_to.is_empty());
}

#[test]
fn snake_case_names_the_same_field() {
    let mesh = applied("enable_tracing: false\ndefault_config: {status_port: 1}");
    assert!(!mesh.enable_tracing);
    assert_eq!(mesh.default_config.unwrap().status_port, 1);
}

#[test]
fn proxy_defaults_are_joined_not_replaced() {
    let mesh = applied("defaultConfig:\n  concurrency: 7\n  proxyMetadata: {A: b}");
    let config = mesh.default_config.unwrap();
    assert_eq!(config.concurrency, Some(Int32Value { value: 7 }));
    assert_eq!(config.discovery_address, default_proxy_config().discovery_address);
    let twice = merge_proxy_config("proxyMetadata: {C: d}", &config).unwrap().value;
    assert_eq!(twice.proxy_metadata.len(), 2);
}

#[test]
fn member_of_a_oneof_takes_the_place_of_the_other() {
    let config = proxy("", "tracingServiceName: CANONICAL_NAME_ONLY");
    assert!(
        matches!(config.cluster_name, Some(ClusterName::TracingServiceName(1))),
        "{:?}",
        config.cluster_name
    );
}

#[test]
fn headers_that_are_not_mentioned_stay() {
    let config = proxy(
        "proxyHeaders: {forwardedClientCert: APPEND_FORWARD, server: {value: a}, requestId: {disabled: true}}",
        "proxyHeaders: {server: {disabled: true}, attemptCount: {}}",
    );
    let expected = proxy(
        "",
        "proxyHeaders: {forwardedClientCert: APPEND_FORWARD, server: {disabled: true}, requestId: {disabled: true}, \
         attemptCount: {}}",
    );
    assert_eq!(config, expected);
}

#[test]
fn providers_are_joined_by_name_and_default_providers_by_kind() {
    let base = MeshConfig {
        default_providers: Some(DefaultProviders {
            metrics: vec!["prometheus".into()],
            ..DefaultProviders::default()
        }),
        ..default_mesh_config()
    };
    let text = "defaultProviders: {tracing: [zipkin]}\nextensionProviders:\n- name: envoy\n  prometheus: {}\n- name: new\n  \
                stackdriver: {}";
    let mesh = apply(text, &base).unwrap().value;
    let defaults = mesh.default_providers.unwrap();
    assert_eq!((defaults.metrics, defaults.tracing), (vec!["prometheus".into()], vec!["zipkin".into()]));
    let names: Vec<_> = mesh.extension_providers.iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(names, ["prometheus", "stackdriver", "envoy", "new"]);
    assert!(matches!(mesh.extension_providers[2].provider, Some(Provider::Prometheus(_))));
}

#[test]
fn trust_domain_aliases_are_united_and_sorted() {
    let base = MeshConfig { trust_domain_aliases: vec!["b".into(), "c".into()], ..default_mesh_config() };
    let mesh = apply("trustDomainAliases: [c, a]", &base).unwrap().value;
    assert_eq!(mesh.trust_domain_aliases, ["a", "b", "c"]);
}

#[test]
fn unknown_field_is_listed_and_unknown_mode_is_refused() {
    let decoded = apply("enableTracing: false\nnotAField: 1", &default_mesh_config()).unwrap();
    assert_eq!(decoded.ignored.len(), 1);
    let error = apply("outboundTrafficPolicy:\n  mode: BLOCK_ALL", &default_mesh_config()).unwrap_err();
    let MeshConfigError::Invalid(problems) = error else { panic!("{error}") };
    assert_eq!(problems[0].path, "outboundTrafficPolicy.mode");
    assert_eq!(problems[0].at.line, 2);
}

#[test]
fn wrong_type_is_located_also_inside_the_proxy_defaults() {
    let error = apply("\ndefaultConfig:\n  concurrency: many", &default_mesh_config()).unwrap_err();
    let MeshConfigError::Invalid(problems) = error else { panic!("{error}") };
    assert_eq!(problems[0].path, "defaultConfig.concurrency");
    assert_eq!(problems[0].at.line, 3);
    assert!(matches!(apply("a: [", &default_mesh_config()), Err(MeshConfigError::Syntax(_))));
    assert!(matches!(apply("[]", &default_mesh_config()), Err(MeshConfigError::Invalid(_))));
}

#[test]
fn networks_are_read() {
    let networks = read_networks("networks:\n  a:\n    endpoints:\n    - fromRegistry: k1\n    gateways:\n    - address: 1.1.1.1\n      port: 80")
        .unwrap()
        .value;
    assert_eq!(networks.networks["a"].gateways[0].port, 80);
}

fn resource(
    namespace: &str,
    name: &str,
    at: &str,
    concurrency: i32,
    selector: &[(&str, &str)],
) -> istio::ProxyConfig {
    let match_labels = selector.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let mut resource = istio::ProxyConfig::new(
        namespace,
        name,
        v1beta1::ProxyConfig {
            concurrency: Some(Int32Value { value: concurrency }),
            selector: (!selector.is_empty()).then_some(WorkloadSelector { match_labels }),
            ..v1beta1::ProxyConfig::default()
        },
    );
    resource.meta.creation_timestamp = Some(at.parse().unwrap());
    resource
}

#[test]
fn nearer_settings_are_stronger_and_the_oldest_of_a_level_counts() {
    let mesh = default_mesh_config();
    let labels = Labels::from_iter([("app", "a")]);
    let root = resource("istio-system", "root", "2020-01-01T00:00:00Z", 1, &[]);
    let young = resource("ns", "a-young", "2021-01-02T00:00:00Z", 2, &[]);
    let old = resource("ns", "b-old", "2021-01-01T00:00:00Z", 3, &[]);
    let selected = resource("ns", "selected", "2022-01-01T00:00:00Z", 5, &[("app", "a")]);
    let other = resource("ns", "other", "2000-01-01T00:00:00Z", 6, &[("app", "b")]);
    let concurrency = |resources: &[&istio::ProxyConfig], annotation| {
        let target = ProxyTarget { namespace: "ns", labels: &labels, annotation };
        let config = effective_proxy_config(&mesh, resources.iter().copied(), target);
        assert_eq!(config.discovery_address, "istiod.istio-system.svc:15012");
        config.concurrency.map(|wrapper| wrapper.value)
    };
    assert_eq!(concurrency(&[], None), None);
    assert_eq!(concurrency(&[&root], None), Some(1));
    assert_eq!(concurrency(&[&root, &young, &old, &other], None), Some(3));
    assert_eq!(concurrency(&[&root, &young, &old], Some("concurrency: 4")), Some(4));
    assert_eq!(concurrency(&[&root, &old, &selected], Some("concurrency: 4")), Some(5));
    assert_eq!(
        concurrency(&[&root], Some("concurrency: [")),
        Some(1),
        "an unreadable annotation counts as absent"
    );
}

#[test]
fn configuration_is_refused_with_field_and_remedy_when_istio_would_not_use_it() {
    assert_eq!(usable(&default_mesh_config()), Ok(()));
    let error = apply_usable("connectTimeout: 1us", &default_mesh_config()).unwrap_err().to_string();
    assert!(error.starts_with("connectTimeout: invalid connect timeout"), "{error}");
    let broken = apply_usable("meshMTLS: {ecdhCurves: [P-256]}", &default_mesh_config()).unwrap_err();
    assert!(broken.to_string().contains("meshMTLS"), "{broken}");
}
