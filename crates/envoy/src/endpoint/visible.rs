//! Which endpoints of a service a proxy receives.

use std::cell::OnceCell;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_base::host;
use canopus_engine::{Ctx, Query};
use canopus_mesh::endpoint::{Endpoint, Health};
use canopus_mesh::service::{Service, TrafficDistribution};
use canopus_mesh::waypoint::IsGlobal;
use canopus_mesh::world::{MeshSettings, settings};
use canopus_runtime::flags::{
    AMBIENT_ENABLE_MULTI_NETWORK, PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS, PILOT_DRAINING_LABEL,
    PILOT_PERSISTENT_SESSION_LABEL, PILOT_SEND_UNHEALTHY_ENDPOINTS,
};

use super::Destination;
use super::Env;

/// Which endpoints of a destination a proxy receives.
pub(super) struct Visibility<'a> {
    env: &'a Env<'a>,
    destination: &'a Destination<'a>,
    /// Whether those of other clusters are left out.
    own_cluster_only: OnceCell<bool>,
    /// Whether unhealthy ones are among them.
    unhealthy: OnceCell<bool>,
}

impl<'a> Visibility<'a> {
    pub(super) fn new(env: &'a Env<'a>, destination: &'a Destination<'a>) -> Self {
        Self { env, destination, own_cluster_only: OnceCell::new(), unhealthy: OnceCell::new() }
    }

    pub(super) fn covers(&self, endpoint: &Endpoint) -> bool {
        let (audience, service) = (self.env.audience, self.destination.service);
        let workload = &endpoint.workload;
        if is_node_local(service) && Some(&workload.node) != audience.position.node.as_ref() {
            return false;
        }
        let wanted_networks = &audience.requested_networks;
        if !wanted_networks.is_empty()
            && !workload.network.is_empty()
            && !wanted_networks.iter().any(|network| **network == *workload.network)
        {
            return false;
        }
        if workload.cluster != audience.addressing.cluster && self.is_own_cluster_only() {
            return false;
        }
        let is_wanted = match endpoint.health {
            Health::Unhealthy => *self.unhealthy.get_or_init(|| sends_unhealthy(self.env, self.destination)),
            Health::Terminating => false,
            Health::Unknown | Health::Healthy | Health::Draining => true,
        };
        // Parity: here a session that a header keeps does not count.
        let keeps_sessions = || service.has_label(self.env.flag(PILOT_PERSISTENT_SESSION_LABEL));
        is_wanted && (health(self.env, endpoint) != Health::Draining || keeps_sessions())
    }

    fn is_own_cluster_only(&self) -> bool {
        let (env, service) = (self.env, self.destination.service);
        *self.own_cluster_only.get_or_init(|| stays_within_cluster(env, service))
    }
}

/// Whether a proxy receives only the endpoints of its own cluster.
pub(super) fn stays_within_cluster(env: &Env<'_>, service: &Service) -> bool {
    is_node_local(service)
        || *env.ctx.get::<ClusterLocal>(&service.host)
        || is_unknown_elsewhere(env, service)
}

/// Whether a host is only ever called within a cluster.
struct ClusterLocal;

impl Query for ClusterLocal {
    const NAME: &'static str = "cluster_local_host";
    type Key = Arc<str>;
    type Value = bool;

    fn run(ctx: &Ctx<'_>, host: &Arc<str>) -> bool {
        is_cluster_local(&settings(ctx), host)
    }
}

/// Whether traffic stays on the node. Nodes of other clusters may have the same name.
pub(super) fn is_node_local(service: &Service) -> bool {
    service.kube.as_ref().is_some_and(|kube| kube.node_local)
}

/// Whether a service is not known in all networks, and so not outside of its cluster, to a proxy of the ambient mesh.
fn is_unknown_elsewhere(env: &Env<'_>, service: &Service) -> bool {
    env.flag(AMBIENT_ENABLE_MULTI_NETWORK)
        && env.audience.role.kind != NodeKind::Sidecar
        && !service.origins.iter().any(|origin| *env.ctx.get::<IsGlobal>(origin))
}

/// How an endpoint is, given that a pod may be marked to get no new sessions.
pub(super) fn health(env: &Env<'_>, endpoint: &Endpoint) -> Health {
    let label = env.flag(PILOT_DRAINING_LABEL);
    let mark = endpoint.workload.labels.get(label).unwrap_or_default();
    if !label.is_empty() && !mark.is_empty() { Health::Draining } else { endpoint.health }
}

/// Unhealthy endpoints tell a proxy how much of a service is down. With a panic threshold it would send traffic to them.
fn sends_unhealthy(env: &Env<'_>, destination: &Destination<'_>) -> bool {
    let prefers_near = destination.service.traffic_distribution != TrafficDistribution::Any;
    if env.flag(PILOT_SEND_UNHEALTHY_ENDPOINTS) || prefers_near {
        return true;
    }
    let policy = || {
        let rule = destination.rule.as_ref()?;
        // Parity: a waypoint asks for the subset by the name of its cluster, which no subset has.
        let subset = if destination.is_fronted() { "" } else { destination.subset };
        rule.subset_policy(subset, destination.port.number)?.outlier_detection
    };
    env.flag(PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS)
        && policy().is_none_or(|outliers| outliers.min_health_percent <= 0)
}

/// Services that each cluster has for itself.
const OWN_NAMESPACES: [&str; 1] = ["kube-system"];
const OWN_SERVICES: [&str; 1] = ["kubernetes.default.svc"];

/// Whether a host is only ever called within a cluster.
fn is_cluster_local(settings: &MeshSettings, name: &str) -> bool {
    let domain = &settings.domain;
    let mut defaults: Vec<String> =
        OWN_NAMESPACES.iter().map(|namespace| format!("*.{namespace}.svc.{domain}")).collect();
    defaults.extend(OWN_SERVICES.iter().map(|service| format!("{service}.{domain}")));
    defaults.extend(discovery_host(settings));
    let said = settings.mesh.service_settings.iter().flat_map(|entry| {
        let local = entry.settings.as_ref().is_some_and(|settings| settings.cluster_local);
        entry.hosts.iter().map(move |host| (host.as_str(), local))
    });
    let said: Vec<(&str, bool)> = said.collect();
    let overridden = |default: &str| {
        said.iter().any(|(host, local)| {
            let within = default.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix));
            !local && (*host == default || within)
        })
    };
    let defaults = defaults.iter().filter(|default| !overridden(default)).map(|host| (host.as_str(), true));
    let mut entries: Vec<(&str, bool)> = said.iter().copied().chain(defaults).collect();
    entries.sort_by(|(a, _), (b, _)| host::by_specificity(a, b));
    let covers = |entry: &str| entry == name || (host::is_wildcard(entry) && host::subset_of(name, entry));
    entries.into_iter().find(|(entry, _)| covers(entry)).is_some_and(|(_, local)| local)
}

/// The control plane's own service.
fn discovery_host(settings: &MeshSettings) -> Option<String> {
    let address = &settings.mesh.default_config.as_ref()?.discovery_address;
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    let domain = &*settings.domain;
    (!host.is_empty())
        .then(|| if host.ends_with(domain) { host.to_owned() } else { format!("{host}.{domain}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopus_proto::istio::mesh::v1alpha1::mesh_config::ServiceSettings;
    use canopus_proto::istio::mesh::v1alpha1::mesh_config::service_settings::Settings;

    #[test]
    fn what_each_cluster_has_for_itself_is_local_unless_said_otherwise() {
        let mut settings = MeshSettings::default();
        assert!(is_cluster_local(&settings, "kube-dns.kube-system.svc.cluster.local"));
        assert!(is_cluster_local(&settings, "kubernetes.default.svc.cluster.local"));
        assert!(is_cluster_local(&settings, "istiod.istio-system.svc.cluster.local"));
        assert!(!is_cluster_local(&settings, "a.default.svc.cluster.local"));
        settings.mesh.service_settings = vec![ServiceSettings {
            settings: Some(Settings { cluster_local: false }),
            hosts: vec!["kube-dns.kube-system.svc.cluster.local".into()],
        }];
        assert!(!is_cluster_local(&settings, "kube-dns.kube-system.svc.cluster.local"));
    }
}
