use crate::validate::{Report, validate};
use crate::{Object, Options};
use canopus_base::tree::Limits;
use canopus_base::yaml;

const NOTICE: &str = "EnvoyFilter exposes internal implementation details that may change at any time. Prefer other \
                      APIs if possible, and exercise extreme caution, especially around upgrades.";

fn report(spec: &str) -> Report {
    let text = format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
         metadata: {{name: a, namespace: b}}\nspec: {spec}\n"
    );
    let document = yaml::parse_one(&text, &Limits::default()).unwrap();
    validate(&Object::decode(&document, Options::strict()).unwrap().value)
}

fn warnings(report: &Report) -> Vec<&str> {
    report.warning_texts().collect()
}

#[test]
fn notice_comes_first_and_is_left_out_when_the_selector_is_refused() {
    let found = report("{workloadSelector: {}}");
    let without_labels = "Envoy filter: workload selector specified without labels, will be applied to all services in namespace";
    assert_eq!(warnings(&found), [NOTICE, without_labels]);
    let refused = report("{workloadSelector: {labels: {'*': a}}, configPatches: [{}]}");
    assert_eq!(refused.error_text().unwrap(), "wildcard is not supported in selector: \"*=a\"");
    assert_eq!(warnings(&refused), [""; 0]);
    assert_eq!(refused.errors.len(), 2, "the patch is reported, if not in Istio's name");
}

#[test]
fn value_is_checked_against_the_type_that_is_patched() {
    let patch = |class: &str, value: &str| {
        report(&format!(
            "{{configPatches: [{{applyTo: {class}, patch: {{operation: MERGE, value: {value}}}}}]}}"
        ))
    };
    let found = patch("CLUSTER", "{connect_timeout: 5, lb_policy: FASTEST, name: a}");
    assert_eq!(
        found.error_text().unwrap(),
        "Envoy filter: json: cannot unmarshal number into Go value of type string"
    );
    assert_eq!(found.errors[0].path, "spec.configPatches[0].patch.value.connect_timeout");
    assert!(patch("CLUSTER", "{connect_timeout: 5m, lb_policy: RING_HASH}").is_valid());
    let unknown = patch("CLUSTER", "{colour: red, size: 1}");
    let said = r#"Envoy filter: unknown field "colour" in envoy.config.cluster.v3.Cluster"#;
    assert_eq!(warnings(&unknown), [NOTICE, said]);
    assert_eq!(unknown.warnings.len(), 3);
    let v2 =
        "{typed_config: {'@type': type.googleapis.com/envoy.config.filter.network.ext_authz.v2.ExtAuthz}}";
    assert_eq!(
        patch("NETWORK_FILTER", v2).error_text().unwrap(),
        "referenced type unknown (hint: try using the v3 XDS API): Envoy filter: could not resolve Any message type: \
         type.googleapis.com/envoy.config.filter.network.ext_authz.v2.ExtAuthz"
    );
}

#[test]
fn extension_without_typed_config_is_named() {
    let found = report(
        "{configPatches: [{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: foo}}},
          {applyTo: CLUSTER, patch: {operation: ADD, value: {name: c, transport_socket: {name: tls}}}},
          {applyTo: HTTP_FILTER, patch: {operation: ADD, value: {name: bar, config_discovery: {}}}}]}",
    );
    let said = |names: &str| format!("using deprecated types by name without typed_config; {names}");
    assert_eq!(warnings(&found)[1..], [said("foo"), said("tls")]);
}

#[test]
fn waypoint_patches_are_not_looked_at() {
    assert!(report("{configPatches: [{match: {context: WAYPOINT}}]}").is_valid());
    assert!(!report("{configPatches: [{match: {context: GATEWAY}}]}").is_valid());
}

#[test]
fn sub_filters_belong_to_the_connection_manager() {
    let matching = |class: &str, filter: &str| {
        report(&format!(
            "{{configPatches: [{{applyTo: {class}, match: {{listener: {{filterChain: {{filter: {filter}}}}}}}, \
             patch: {{operation: REMOVE}}}}]}}"
        ))
    };
    let fine = matching("HTTP_FILTER", "{name: envoy.http_connection_manager, subFilter: {name: envoy.lua}}");
    assert!(fine.is_valid());
    assert_eq!(warnings(&fine).len(), 3, "the notice and two old names");
    let said = |class, filter| matching(class, filter).error_text().unwrap_or_default();
    assert_eq!(said("NETWORK_FILTER", "{}"), "Envoy filter: filter match has no name to match on");
    assert_eq!(
        said("NETWORK_FILTER", "{name: a, subFilter: {}}"),
        "Envoy filter: subfilter match can be used with applyTo HTTP_FILTER only"
    );
    let listener = matching("LISTENER", "{name: a}");
    assert_eq!(warnings(&listener)[1], "Envoy filter: filter match has no effect when used with LISTENER");
}
