//! The traffic policy for one port, and how the policy of a subset overrides it.

use canopus_proto::istio::networking::v1alpha3::TrafficPolicy;
use canopus_proto::istio::networking::v1alpha3::traffic_policy::PortTrafficPolicy;

/// The policy for a port, and whether it comes from port-level settings.
///
/// Port-level settings replace the others: fields that they leave out are defaults, not inherited.
pub fn policy_for_port(policy: &TrafficPolicy, port: u32) -> (TrafficPolicy, bool) {
    let is_for = |settings: &&PortTrafficPolicy| settings.port.as_ref().is_some_and(|own| own.number == port);
    match policy.port_level_settings.iter().find(is_for) {
        Some(settings) => (port_policy(settings), true),
        None => (TrafficPolicy { port_level_settings: Vec::new(), ..policy.clone() }, false),
    }
}

fn port_policy(settings: &PortTrafficPolicy) -> TrafficPolicy {
    TrafficPolicy {
        load_balancer: settings.load_balancer.clone(),
        connection_pool: settings.connection_pool,
        outlier_detection: settings.outlier_detection.clone(),
        tls: settings.tls.clone(),
        ..Default::default()
    }
}

/// The policy for a port of a subset: the subset's settings over those of the rule.
pub fn policy_for_subset(
    rule: Option<&TrafficPolicy>,
    subset: Option<&TrafficPolicy>,
    port: u32,
) -> Option<TrafficPolicy> {
    let rule = rule.map(|policy| policy_for_port(policy, port).0);
    let Some((subset, has_port)) = subset.map(|policy| policy_for_port(policy, port)) else { return rule };
    Some(match rule {
        Some(rule) => overlay(rule, subset, has_port),
        None => subset,
    })
}

/// Lays `over` on top of `base`. With `replace`, the settings that a port may have come from `over` even if unset.
pub(super) fn overlay(base: TrafficPolicy, over: TrafficPolicy, replace: bool) -> TrafficPolicy {
    fn pick<T>(over: Option<T>, base: Option<T>, replace: bool) -> Option<T> {
        if replace { over } else { over.or(base) }
    }
    TrafficPolicy {
        connection_pool: pick(over.connection_pool, base.connection_pool, replace),
        outlier_detection: pick(over.outlier_detection, base.outlier_detection, replace),
        load_balancer: pick(over.load_balancer, base.load_balancer, replace),
        tls: pick(over.tls, base.tls, replace),
        tunnel: over.tunnel.or(base.tunnel),
        proxy_protocol: over.proxy_protocol.or(base.proxy_protocol),
        retry_budget: over.retry_budget.or(base.retry_budget),
        port_level_settings: Vec::new(),
    }
}
