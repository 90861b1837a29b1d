//! Requests that a hash sends to the same endpoint.

use canopus_proto::envoy::config::route::v3::route_action::HashPolicy;
use canopus_proto::envoy::config::route::v3::route_action::hash_policy::{
    ConnectionProperties, Cookie, CookieAttribute, Header, PolicySpecifier, QueryParameter,
};
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::{
    HashKey, HttpCookie,
};
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::{ConsistentHashLb, LbPolicy};
use canopus_proto::istio::networking::v1alpha3::{
    Destination, DestinationRule, LoadBalancerSettings, TrafficPolicy,
};

/// What a DestinationRule says for a route's destination: of the subset's port, the subset, the port, the host.
pub(super) fn for_destination<'a>(
    rule: &'a DestinationRule,
    to: &Destination,
) -> Option<&'a ConsistentHashLb> {
    let port = to.port.as_ref().map(|port| port.number);
    let subset = rule.subsets.iter().find(|subset| subset.name == to.subset);
    let policies = [subset.and_then(|subset| subset.traffic_policy.as_ref()), rule.traffic_policy.as_ref()];
    let mut policies = policies.into_iter().flatten();
    policies.find_map(|policy| port.and_then(|port| for_port(policy, port)).or_else(|| for_policy(policy)))
}

/// What a DestinationRule says for a port of a service that has no routes.
pub(crate) fn for_service(rule: &DestinationRule, port: u32) -> Option<&ConsistentHashLb> {
    let policy = rule.traffic_policy.as_ref()?;
    for_port(policy, port).or_else(|| for_policy(policy))
}

/// What a policy says, ports aside.
pub(crate) fn for_policy(policy: &TrafficPolicy) -> Option<&ConsistentHashLb> {
    consistent_hash(policy.load_balancer.as_ref())
}

fn for_port(policy: &TrafficPolicy, number: u32) -> Option<&ConsistentHashLb> {
    let mut settings = policy.port_level_settings.iter();
    let setting = settings.find(|setting| setting.port.as_ref().map_or(0, |port| port.number) == number);
    consistent_hash(setting?.load_balancer.as_ref())
}

fn consistent_hash(settings: Option<&LoadBalancerSettings>) -> Option<&ConsistentHashLb> {
    match settings?.lb_policy.as_ref()? {
        LbPolicy::ConsistentHash(hash) => Some(hash),
        _ => None,
    }
}

/// The hash policy; `None` if no key is set.
pub(crate) fn policy(hash: &ConsistentHashLb) -> Option<HashPolicy> {
    let specifier = match hash.hash_key.as_ref()? {
        HashKey::HttpHeaderName(name) => {
            PolicySpecifier::Header(Header { header_name: name.clone(), ..Default::default() })
        }
        HashKey::HttpCookie(cookie) => PolicySpecifier::Cookie(hash_cookie(cookie)),
        HashKey::UseSourceIp(source_ip) => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: *source_ip })
        }
        HashKey::HttpQueryParameterName(name) => {
            PolicySpecifier::QueryParameter(QueryParameter { name: name.clone() })
        }
    };
    Some(HashPolicy { policy_specifier: Some(specifier), ..Default::default() })
}

fn hash_cookie(cookie: &HttpCookie) -> Cookie {
    let attributes = cookie
        .attributes
        .iter()
        .map(|attribute| CookieAttribute { name: attribute.name.clone(), value: attribute.value.clone() });
    Cookie {
        name: cookie.name.clone(),
        ttl: cookie.ttl,
        path: cookie.path.clone(),
        attributes: attributes.collect(),
    }
}
