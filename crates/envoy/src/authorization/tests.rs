use canopus_api::{Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::envoy::config::rbac::v3::{Policy, Principal, Rbac};
use canopus_proto::envoy::extensions::filters::http::ext_authz::v3::ExtAuthz;
use canopus_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use canopus_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    EnvoyExternalAuthorizationHttpProvider, Provider,
};

use super::term::Term;
use canopus_mesh::audience::SelectorLabels;

use super::*;

/// The spec of a policy in namespace `ns`, with the dry-run annotation or without.
fn policy(name: &str, dry_run: bool, spec: &str) -> String {
    format!(
        "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}, \
         namespace: ns, annotations: {{istio.io/dry-run: '{dry_run}'}}}}\nspec: {spec}\n"
    )
}

fn filters_in(settings: MeshSettings, objects: &str, stage: Stage, layer: Layer) -> Vec<Built> {
    let mut batch = Batch::new();
    batch.set::<Settings>((), settings);
    for outcome in decode_documents(objects, &Limits::default(), Options::watch()) {
        let object = outcome.unwrap().value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    let engine = Engine::new();
    engine.apply(batch);
    let protected = PolicyTarget {
        namespace: "ns".into(),
        gateway: None,
        labels: SelectorLabels::unreduced(&[("app", "a")].into_iter().collect()),
        is_waypoint: false,
        service: None,
    };
    let guard = Guard { protected, stage, peer: Peer::Certificate, layer };
    engine.snapshot().get::<AuthorizationFilters>(&guard).unwrap().as_ref().clone()
}

fn filters(objects: &str, stage: Stage, layer: Layer) -> Vec<Built> {
    filters_in(MeshSettings::default(), objects, stage, layer)
}

fn rbac(built: &Built) -> HttpRbac {
    built.config.unpack().unwrap()
}

/// The rules of the only filter.
fn rules(objects: &str) -> Rbac {
    let filters = filters(objects, Stage::Own, Layer::Http);
    assert_eq!(filters.len(), 1);
    rbac(&filters[0]).rules.unwrap()
}

const BAD_RANGE: &str = "{rules: [{from: [{source: {ipBlocks: [10.0.0.0/99]}}]}], action: ";

#[test]
fn rule_that_allows_is_void_when_a_value_cannot_be_matched() {
    let rules = rules(&policy("a", false, &format!("{BAD_RANGE}ALLOW}}")));
    assert!(rules.policies.is_empty());
}

#[test]
fn rule_that_denies_matches_more_when_a_value_cannot_be_matched() {
    let rules = rules(&policy("a", false, &format!("{BAD_RANGE}DENY}}")));
    let everybody = Term::<Principal>::all_of(&[Term::any()]).to_message();
    assert_eq!(rules.policies["ns[ns]-policy[a]-rule[0]"].principals, [everybody]);
}

#[test]
fn rule_with_an_unknown_condition_is_left_out_alone() {
    let spec = "{action: DENY, rules: [{when: [{key: no.such, values: [a]}]}, {}]}";
    let names: Vec<_> = rules(&policy("a", false, spec)).policies.into_keys().collect();
    assert_eq!(names, ["ns[ns]-policy[a]-rule[1]"]);
}

#[test]
fn policy_without_rules_matches_nothing() {
    let rules = rules(&policy("a", false, "{}"));
    let Policy { permissions, principals, .. } = rules.policies["ns[ns]-policy[a]-rule[0]"].clone();
    assert_eq!(principals, [Term::any().not().to_message()]);
    assert_eq!(permissions, [Term::any().not().to_message()]);
}

#[test]
fn rule_about_requests_is_dropped_for_connections_when_it_allows() {
    let spec = "{rules: [{to: [{operation: {methods: [GET]}}]}, {to: [{operation: {ports: ['80']}}]}]}";
    let filters = filters(&policy("a", false, spec), Stage::Own, Layer::Tcp);
    let network: NetworkRbac = filters[0].config.unpack().unwrap();
    let names: Vec<_> = network.rules.unwrap().policies.into_keys().collect();
    assert_eq!(names, ["ns[ns]-policy[a]-rule[1]"]);
}

#[test]
fn watched_policies_stand_beside_enforced_ones() {
    let both =
        policy("a", true, "{action: DENY, rules: [{}]}") + &policy("b", false, "{action: DENY, rules: [{}]}");
    let filters = filters(&both, Stage::Own, Layer::Http);
    let rbac = rbac(&filters[0]);
    assert_eq!(rbac.rules.unwrap().policies.len(), 1);
    assert_eq!(rbac.shadow_rules.unwrap().policies.len(), 1);
    assert_eq!(rbac.shadow_rules_stat_prefix, "istio_dry_run_deny_");
}

#[test]
fn policies_of_other_workloads_do_not_count() {
    let other = policy("a", false, "{selector: {matchLabels: {app: b}}, rules: [{}]}");
    let named = policy("b", false, "{targetRefs: [{kind: Service, name: a}], rules: [{}]}");
    assert_eq!(filters(&(other + &named), Stage::Own, Layer::Http), []);
}

#[test]
fn everything_is_refused_when_the_authorizer_is_unknown() {
    let custom = policy("a", false, "{action: CUSTOM, provider: {name: nobody}, rules: [{}]}");
    let filters = filters(&custom, Stage::Custom, Layer::Http);
    assert_eq!(filters.len(), 1);
    let names: Vec<_> = rbac(&filters[0]).rules.unwrap().policies.into_keys().collect();
    assert_eq!(names, ["istio-ext-authz-nobody-ns[ns]-policy[a]-rule[0]-deny-due-to-bad-CUSTOM-action"]);
}

#[test]
fn authorizer_is_asked_when_its_service_is_known() {
    let http = EnvoyExternalAuthorizationHttpProvider {
        service: "authz.ns.svc.cluster.local".into(),
        port: 80,
        ..Default::default()
    };
    let mut settings = MeshSettings::default();
    settings.mesh.extension_providers =
        vec![ExtensionProvider { name: "web".into(), provider: Some(Provider::EnvoyExtAuthzHttp(http)) }];
    let service = "---\n{apiVersion: v1, kind: Service, metadata: {name: authz, namespace: ns}, spec: \
                   {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}}\n";
    let objects = policy("a", false, "{action: CUSTOM, provider: {name: web}, rules: [{}]}") + service;
    let filters = filters_in(settings, &objects, Stage::Custom, Layer::Http);
    assert_eq!(filters.len(), 2);
    assert!(rbac(&filters[0]).rules.is_none());
    assert!(filters[1].config.is::<ExtAuthz>());
}
