//! The policies that a workload refers to, and the policies that admit waypoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::gateway_api::Gateway;
use canopus_api::istio::AuthorizationPolicy;
use canopus_api::kube::Pod;
use canopus_api::{Kind, labels as known};
use canopus_base::labels::Labels;
use canopus_base::spiffe::Identity;
use canopus_engine::Ctx;
use canopus_mesh::waypoint::{Waypoint, Waypoints};
use canopus_mesh::world::{ObjectIndex, Origin, all_objects, indexed_objects, settings};
use canopus_proto::istio::security::string_match::MatchType;
use canopus_proto::istio::security::{Action, Authorization, Group, Match, Rules, Scope, StringMatch};
use canopus_runtime::flags::PILOT_AUTO_ALLOW_WAYPOINT_POLICY;

use crate::service::ServiceInfo;
use crate::{authorization, peer_authentication};

/// The names of the policies that select a workload by label. Namespace-wide and mesh-wide policies are not listed.
pub(crate) fn selecting_policy_names(ctx: &Ctx<'_>, namespace: &str, labels: &Labels) -> Vec<String> {
    let settings = settings(ctx);
    let mut names = BTreeSet::new();
    for namespace in BTreeSet::from([settings.root_namespace(), namespace]) {
        let index = ObjectIndex::Namespace(Kind::AuthorizationPolicy, namespace.into());
        for (origin, policy) in indexed_objects::<AuthorizationPolicy>(ctx, &index) {
            let selector = policy.spec.selector.iter().flat_map(|selector| &selector.match_labels);
            let selector: Labels = selector.map(|(key, value)| (key.as_str(), value.as_str())).collect();
            // Parity: every policy with a selector applies to a workload without labels.
            let selected = if labels.is_empty() { !selector.is_empty() } else { selector.selects(labels) };
            if selected && authorization::convert(&settings, &policy).is_some() {
                names.insert(format!("{}/{}", origin.namespace(), origin.name()));
            }
        }
    }
    names.into_iter().chain(peer_authentication::names_for(ctx, namespace, labels)).collect()
}

/// The names of the policies that admit the waypoints of a workload and of its services.
pub(crate) fn waypoint_policy_names(
    ctx: &Ctx<'_>,
    cluster: &Arc<str>,
    own: Option<&Waypoint>,
    services: &[Arc<ServiceInfo>],
) -> Vec<String> {
    if !settings(ctx).flags.get(PILOT_AUTO_ALLOW_WAYPOINT_POLICY) {
        return Vec::new();
    }
    let of_services = services.iter().filter_map(|info| info.waypoint.clone());
    let own = own.map(|waypoint| (waypoint.namespace.to_string(), waypoint.name.to_string()));
    let mut others: BTreeSet<_> = of_services.collect();
    if let Some(own) = &own {
        others.remove(own);
    }
    let named = others.into_iter().chain(own);
    let named = named.filter(|(namespace, name)| !accounts(ctx, cluster, namespace, name).is_empty());
    named.map(|(namespace, name)| format!("{namespace}/{}", policy_name(&namespace, &name))).collect()
}

/// The policies that admit waypoints.
pub(crate) fn waypoint_policies(ctx: &Ctx<'_>) -> Vec<Authorization> {
    let settings = settings(ctx);
    if !settings.flags.get(PILOT_AUTO_ALLOW_WAYPOINT_POLICY) {
        return Vec::new();
    }
    let gateways = all_objects::<Gateway>(ctx);
    let own = gateways.iter().filter(|(origin, _)| origin.cluster == settings.cluster);
    own.filter_map(|(origin, _)| waypoint_policy(ctx, origin)).collect()
}

fn waypoint_policy(ctx: &Ctx<'_>, origin: &Origin) -> Option<Authorization> {
    let waypoint = ctx.get::<Waypoints>(origin).as_ref().clone()?;
    let accounts = accounts(ctx, &origin.cluster, &waypoint.namespace, &waypoint.name);
    if accounts.is_empty() {
        return None;
    }
    let settings = settings(ctx);
    let principal = |account: &String| {
        let identity = Identity::new(settings.trust_domain(), &waypoint.namespace, account).ok()?.to_string();
        let exact = identity.strip_prefix("spiffe://").unwrap_or(&identity).to_owned();
        Some(StringMatch { match_type: Some(MatchType::Exact(exact)) })
    };
    let principals = accounts.iter().filter_map(principal).collect();
    let matches = vec![Match { principals, ..Default::default() }];
    Some(Authorization {
        name: policy_name(&waypoint.namespace, &waypoint.name),
        namespace: waypoint.namespace.to_string(),
        scope: Scope::WorkloadSelector as i32,
        action: Action::Allow as i32,
        groups: vec![Group { rules: vec![Rules { matches }] }],
        ..Default::default()
    })
}

/// The name of a waypoint's policy. No object can have this name.
fn policy_name(namespace: &str, name: &str) -> String {
    format!("istio_allow_waypoint_{namespace}_{name}")
}

/// The service accounts of the pods of a waypoint, one for each pod.
fn accounts(ctx: &Ctx<'_>, cluster: &Arc<str>, namespace: &str, name: &str) -> Vec<String> {
    let pods =
        indexed_objects::<Pod>(ctx, &ObjectIndex::InCluster(Kind::Pod, cluster.clone(), namespace.into()));
    let pods = pods.iter().filter(|(_, pod)| pod.meta.label(known::GATEWAY_NAME.name) == Some(name));
    let mut accounts: Vec<_> = pods.map(|(_, pod)| pod.spec.service_account_name.to_string()).collect();
    accounts.sort();
    accounts
}
