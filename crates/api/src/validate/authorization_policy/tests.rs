use crate::validate::{Report, validate};
use crate::{Object, Options};
use canopus_base::tree::Limits;
use canopus_base::yaml;

/// The report on a policy `web` in namespace `shop`.
fn report(spec: &str) -> Report {
    annotated("", spec)
}

fn annotated(annotations: &str, spec: &str) -> Report {
    let text = format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
         metadata: {{name: web, namespace: shop, annotations: {{{annotations}}}}}\nspec: {spec}\n"
    );
    let document = yaml::parse_one(&text, &Limits::default()).unwrap();
    validate(&Object::decode(&document, Options::strict()).unwrap().value)
}

#[test]
fn errors_name_the_policy_and_the_field() {
    let found = report("{action: DENY, rules: [{to: [{operation: {ports: [a, '70000'], paths: ['']}}]}]}");
    assert_eq!(
        found.error_text().unwrap(),
        "3 errors occurred:\n\
         \t* invalid policy web.shop: bad port (a): strconv.ParseUint: parsing \"a\": invalid syntax\n\
         \t* invalid policy web.shop: bad port (70000): <nil>\n\
         \t* invalid policy web.shop: empty value not allowed, found in Paths\n\n"
    );
    let paths: Vec<_> = found.errors.iter().map(|finding| finding.path.as_str()).collect();
    let operation = "spec.rules[0].to[0].operation";
    let expected = ["ports", "ports", "paths"].map(|list| format!("{operation}.{list}"));
    assert_eq!(paths, expected);
}

#[test]
fn one_bad_address_is_a_list_of_one() {
    let found = report("{rules: [{from: [{source: {ipBlocks: [10.0.0.0/40]}}]}]}");
    assert_eq!(
        found.error_text().unwrap(),
        "1 error occurred:\n\t* invalid policy web.shop: bad CIDR range (10.0.0.0/40): \
         netip.ParsePrefix(\"10.0.0.0/40\"): prefix length out of range\n\n"
    );
}

#[test]
fn unknown_attribute_is_said_of_values_and_not_values() {
    let found = report("{rules: [{when: [{key: source.user, values: [a]}]}]}");
    assert_eq!(found.errors.len(), 2);
    assert_eq!(
        found.errors[1].message,
        "invalid policy web.shop: invalid `notValue` for `key` source.user: unknown attribute: source.user"
    );
}

#[test]
fn deny_of_http_attributes_alone_warns_about_tcp() {
    let warns = |rule: &str| !report(&format!("{{action: DENY, rules: [{rule}]}}")).warnings.is_empty();
    assert!(warns("{to: [{operation: {methods: [GET]}}]}"));
    assert!(warns("{from: [{source: {requestPrincipals: ['*']}}]}"));
    assert!(!warns("{to: [{operation: {methods: [GET], ports: ['80']}}]}"));
    assert!(!warns("{from: [{source: {namespaces: [a]}}]}"));
    assert!(!warns("{}"));
    assert!(report("{rules: [{to: [{operation: {methods: [GET]}}]}]}").warnings.is_empty());
}

#[test]
fn dry_run_is_a_truth_about_allow_or_deny() {
    let said = |value: &str, spec: &str| {
        annotated(&format!("istio.io/dry-run: '{value}'"), spec).error_text().unwrap_or_default()
    };
    assert_eq!(said("true", "{}"), "");
    assert_eq!(
        said("yes", "{}"),
        "shop/web has annotation istio.io/dry-run with invalid value (yes): \
         strconv.ParseBool: parsing \"yes\": invalid syntax"
    );
    assert_eq!(
        said("true", "{action: AUDIT}"),
        "the annotation istio.io/dry-run currently only supports action ALLOW/DENY, found action AUDIT in shop/web"
    );
}

#[test]
fn custom_action_needs_a_provider_and_rules_it_can_use() {
    let said = |spec: &str| report(spec).error_text().unwrap_or_default();
    assert!(said("{action: CUSTOM}").contains("CUSTOM action without `rules` is meaningless"));
    assert!(said("{action: CUSTOM, rules: [{}]}").ends_with("`provider.name` must not be empty"));
    assert_eq!(said("{action: CUSTOM, provider: {name: a}, rules: [{}]}"), "");
    assert_eq!(
        said(
            "{action: CUSTOM, provider: {name: a}, rules: [{when: [{key: request.auth.principal, values: [x]}]}]}"
        ),
        "invalid policy web.shop: request.auth.principal is currently not supported with CUSTOM action"
    );
    assert_eq!(
        said("{action: AUDIT, provider: {name: a}}"),
        "invalid policy web.shop: `provider` must not be with non CUSTOM action, found AUDIT"
    );
}
