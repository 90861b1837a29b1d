//! Clusters of gRPC clients: endpoints by EDS, and the little of a destination rule that they can honour.

use canopus_engine::Ctx;
use canopus_mesh::audience::Caller;
use canopus_mesh::destination_rule::outbound_rule;
use canopus_mesh::endpoint::ServersOf;
use canopus_mesh::scope::scoped_service;
use canopus_proto::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use canopus_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbPolicy,
};
use canopus_proto::envoy::config::cluster::v3::{CircuitBreakers, Cluster};
use canopus_proto::istio::networking::v1alpha3::TrafficPolicy;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::{LbPolicy as Choice, SimpleLb};

use super::{ads, tls};
use crate::cluster::load_balancer::hashing;
use crate::names::{self, ClusterName};

pub(super) fn cluster(ctx: &Ctx<'_>, caller: &Caller, name: &str) -> Option<Cluster> {
    let parts = ClusterName::parse(name)?;
    let service = scoped_service(ctx, &caller.scope, parts.host)?;
    let port = service.port(parts.port)?;
    let rule = outbound_rule(ctx, caller, &service.key());
    let policy = match &rule {
        Some(rule) if !parts.subset.is_empty() => {
            rule.subset(parts.subset)?;
            rule.subset_policy(parts.subset, port.number)
        }
        Some(rule) => rule.policy(port.number),
        None if parts.subset.is_empty() => None,
        None => return None,
    };
    let mut cluster = Cluster {
        name: name.to_owned(),
        alt_stat_name: names::stat_name(name),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(ads()), service_name: name.to_owned() }),
        ..Default::default()
    };
    if let Some(policy) = &policy {
        // TLS only where a rule asks for it: a client may not be built for mutual TLS, and a server may not offer it.
        if policy.tls.as_ref().is_some_and(|tls| tls.mode() == Mode::IstioMutual) {
            let servers = ctx.get::<ServersOf>(&service.key());
            cluster.transport_socket = Some(tls::client(&servers.accounts));
        }
        balance(&mut cluster, policy);
        limit(&mut cluster, policy);
    }
    Some(cluster)
}

/// Round robin is what a client does by itself.
fn balance(cluster: &mut Cluster, policy: &TrafficPolicy) {
    match policy.load_balancer.as_ref().and_then(|balancer| balancer.lb_policy.as_ref()) {
        Some(Choice::ConsistentHash(hash)) => {
            let (policy, config) = hashing(hash);
            cluster.lb_policy = policy as i32;
            cluster.lb_config = config;
        }
        Some(Choice::Simple(simple)) if *simple == SimpleLb::LeastRequest as i32 => {
            cluster.lb_policy = LbPolicy::LeastRequest as i32;
        }
        _ => {}
    }
}

/// The number of requests at once is the only limit a client knows.
fn limit(cluster: &mut Cluster, policy: &TrafficPolicy) {
    let http = policy.connection_pool.as_ref().and_then(|pool| pool.http.as_ref());
    let Some(most) =
        http.and_then(|http| u32::try_from(http.http2_max_requests).ok()).filter(|most| *most > 0)
    else {
        return;
    };
    cluster.circuit_breakers = Some(CircuitBreakers {
        thresholds: vec![Thresholds { max_requests: Some(most.into()), ..Default::default() }],
        ..Default::default()
    });
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::cluster::v3::cluster::{LbConfig, MaglevLbConfig};
    use canopus_proto::istio::networking::v1alpha3::LoadBalancerSettings;
    use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::ConsistentHashLb;
    use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::consistent_hash_lb::{
        HashAlgorithm, MagLev,
    };

    use super::*;

    #[test]
    fn client_is_told_algorithm_and_size_when_a_rule_balances_by_hash() {
        let maglev = HashAlgorithm::Maglev(MagLev { table_size: 1009 });
        let hash = ConsistentHashLb { hash_algorithm: Some(maglev), ..Default::default() };
        let balancer =
            LoadBalancerSettings { lb_policy: Some(Choice::ConsistentHash(hash)), ..Default::default() };
        let mut cluster = Cluster::default();
        balance(&mut cluster, &TrafficPolicy { load_balancer: Some(balancer), ..Default::default() });
        let config = LbConfig::MaglevLbConfig(MaglevLbConfig { table_size: Some(1009.into()) });
        assert_eq!((cluster.lb_policy(), cluster.lb_config), (LbPolicy::Maglev, Some(config)));
    }
}
