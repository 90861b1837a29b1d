//! Clusters of the proxy's own workload: one for each port it listens on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_mesh::destination_rule::inbound_rule;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::scope::{ScopeSettings, scope_settings, scoped_service};
use canopus_mesh::service::{Port, Service};
use canopus_mesh::target::{Target, Targets};
use canopus_mesh::world::{MeshSettings, settings};
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{
    DiscoveryType, LbConfig, LbPolicy, OriginalDstLbConfig,
};
use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::inbound_traffic_policy::Mode as InboundMode;
use canopus_proto::istio::networking::v1alpha3::{ConnectionPoolSettings, IstioIngressListener};
use canopus_proto::resource::Resource;
use canopus_proto::wire::Encoded;
use canopus_runtime::flags::{
    ISTIO_DUAL_STACK, PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE, PILOT_ENABLE_TELEMETRY_LABEL,
};

use super::draft::Draft;
use super::fixed::Sources;
use super::outbound::{for_port, set_protocol, with_mesh_defaults};
use super::traits::ClientTraits;
use super::{connection_pool, fixed, stat_name};
use crate::address::{UNIX_PREFIX, loopbacks};
use crate::audience::{InboundClusterAudience, Interception, Shared};
use crate::names;
use std::hash::{Hash, Hasher};

/// Envoy's longest interval, about 292 years: endpoints of the workload itself are never forgotten.
const NEVER_SECONDS: i64 = 9_223_372_035;

/// `cleanup_interval` of clusters whose endpoints are never dropped, encoded.
static NEVER_CLEANED_UP: LazyLock<Encoded<Cluster>> = LazyLock::new(|| {
    let cleanup_interval = Some(Duration::from_secs(NEVER_SECONDS));
    Encoded::new(&Cluster { cleanup_interval, ..Default::default() })
});

/// The clusters of a proxy's own workload.
pub(super) struct InboundClusters;

impl Query for InboundClusters {
    const NAME: &'static str = "inbound_clusters";
    type Key = Audience;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, audience: &Audience) -> Vec<Resource> {
        let builder = Builder {
            ctx,
            audience,
            settings: settings(ctx),
            traits: ClientTraits::from(&*audience.proxy),
            terms: scope_settings(ctx, &audience.proxy.caller.scope),
        };
        builder.clusters()
    }
}

/// Identifies inbound clusters: proxies share them whose services lead to the same ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Audience {
    /// The audience of the proxies.
    proxy: Shared<InboundClusterAudience>,
    /// Where the services of the workload lead.
    pub(super) targets: Arc<Vec<Target>>,
    /// The proxy's own addresses, where clusters depend on them.
    own: Vec<IpAddr>,
}

impl Audience {
    pub(super) fn new(ctx: &Ctx<'_>, proxy: &Proxy, audience: &Shared<InboundClusterAudience>) -> Self {
        let has_ingress = scope_settings(ctx, &audience.caller.scope).has_ingress();
        Self {
            proxy: audience.clone(),
            targets: ctx.get::<Targets>(proxy),
            own: if has_ingress { proxy.id.addresses.clone() } else { Vec::new() },
        }
    }
}

impl Hash for Audience {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.proxy.hash(state);
        self.own.hash(state);
        for target in self.targets.iter() {
            (&target.service.host, target.target_port).hash(state);
        }
    }
}

struct Builder<'a> {
    ctx: &'a Ctx<'a>,
    audience: &'a Audience,
    settings: Arc<MeshSettings>,
    traits: ClientTraits,
    terms: Arc<ScopeSettings>,
}

impl Builder<'_> {
    fn clusters(&self) -> Vec<Resource> {
        if !self.terms.has_ingress() {
            // Without redirection the workload itself has its ports.
            let intercepts = self.audience.proxy.sockets.interception != Interception::None;
            return if intercepts { self.service_clusters(&BTreeSet::new()) } else { Vec::new() };
        }
        let listeners = self.terms.spec().map_or(&[][..], |spec| &spec.ingress);
        let mut clusters = Vec::new();
        if self.settings.flags.get(PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE) {
            clusters = self.service_clusters(&listeners.iter().map(port_number).collect());
        }
        clusters.extend(listeners.iter().filter_map(|listener| self.ingress_cluster(listener)));
        clusters
    }

    /// One cluster for each port of the workload that services lead to, except those that are `taken`.
    fn service_clusters(&self, taken: &BTreeSet<u32>) -> Vec<Resource> {
        let mut by_port: BTreeMap<u32, Vec<Target>> = BTreeMap::new();
        for target in self.audience.targets.iter() {
            by_port.entry(target.target_port).or_default().push(target.clone());
        }
        let policy = self.settings.mesh.inbound_traffic_policy.as_ref();
        let as_addressed = policy.is_none_or(|policy| policy.mode() == InboundMode::Passthrough);
        let bind =
            if as_addressed { String::new() } else { loopbacks(&self.audience.proxy.addressing).remove(0) };
        let free = by_port.iter().filter(|(port, _)| !taken.contains(port));
        free.map(|(port, targets)| self.cluster(*port, &bind, targets)).collect()
    }

    /// The cluster of a port that the Sidecar lists.
    fn ingress_cluster(&self, listener: &IstioIngressListener) -> Option<Resource> {
        let number = port_number(listener);
        let written = listener.port.as_ref();
        let (bind, target_port) = self.default_endpoint(&listener.default_endpoint)?;
        let port = Port {
            number,
            name: written.map_or("", |port| &port.name).into(),
            protocol: Protocol::parse(written.map_or("", |port| &port.protocol)),
        };
        let service = self.audience.targets.iter().find(|target| target.target_port == number);
        let service = service.map_or_else(|| self.stand_in(), |target| target.service.clone());
        Some(self.cluster(number, &bind, &[Target { service, port, target_port }]))
    }

    /// Where a listener's traffic goes: nowhere in particular if it does not say; `None` if it cannot be read.
    fn default_endpoint(&self, written: &str) -> Option<(String, u32)> {
        if written.is_empty() || written.starts_with(UNIX_PREFIX) {
            return Some((written.to_owned(), 0));
        }
        let (host, port) = written.rsplit_once(':')?;
        let port: u32 = port.parse().ok()?;
        let host = match host.strip_prefix('[') {
            Some(bracketed) => bracketed.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let own = |wanted: fn(&IpAddr) -> bool, fallback: &str| {
            let address = self.audience.own.iter().find(|address| wanted(address));
            address.map_or_else(|| fallback.to_owned(), ToString::to_string)
        };
        let local = loopbacks(&self.audience.proxy.addressing);
        let bind = match host {
            "0.0.0.0" => own(IpAddr::is_ipv4, "127.0.0.1"),
            "::" => own(IpAddr::is_ipv6, "::1"),
            "127.0.0.1" => local.first()?.clone(),
            "::1" => local.last()?.clone(),
            _ => String::new(),
        };
        Some((bind, port))
    }

    /// What stands for a service where none has the port: statistics need a name.
    fn stand_in(&self) -> Arc<Service> {
        let name = self.terms.sidecar.as_ref().map_or("", |sidecar| &sidecar.meta.name);
        let namespace = self.terms.namespace.clone();
        Arc::new(Service::stand_in(format!("{name}.{namespace}"), name, namespace))
    }

    /// The cluster of one port. Several services may lead to it; the first decides.
    fn cluster(&self, cluster_port: u32, bind: &str, targets: &[Target]) -> Resource {
        let first = &targets[0];
        let name = names::inbound_cluster(cluster_port);
        let mut draft = if bind.is_empty() {
            let mut draft = Draft::with_discovery(name, DiscoveryType::OriginalDst);
            draft.body().append(&*NEVER_CLEANED_UP);
            redirect(&mut draft, first);
            draft.lb_policy = LbPolicy::ClusterProvided;
            draft
        } else {
            let mut draft = Draft::with_discovery(name.as_str(), DiscoveryType::Static);
            draft.rest().load_assignment = Some(ClusterLoadAssignment {
                cluster_name: name,
                endpoints: fixed::single_endpoint(bind, first.target_port),
                ..Default::default()
            });
            draft
        };
        draft.balancing();
        set_protocol(&mut draft, &self.traits, first.port.protocol);
        self.describe(&mut draft, cluster_port, targets);
        self.limit(&mut draft, cluster_port, first);
        if !["127.0.0.1", "::1"].contains(&bind) {
            // Redirection would send traffic for the workload back to the proxy.
            let dual_stack = self.settings.flags.get(ISTIO_DUAL_STACK);
            draft.body().append(Sources::for_proxy(&self.traits, dual_stack).encoded());
        }
        draft.encode()
    }

    fn describe(&self, draft: &mut Draft, cluster_port: u32, targets: &[Target]) {
        let first = &targets[0];
        if self.settings.flags.get(PILOT_ENABLE_TELEMETRY_LABEL) && !first.service.external {
            let mut hosts = BTreeSet::new();
            let of_port = targets.iter().filter(|target| target.port.number == first.port.number);
            let services =
                of_port.map(|target| &*target.service).filter(|service| hosts.insert(&service.host));
            draft.metadata.add_services(services);
        }
        let pattern = &self.settings.mesh.inbound_cluster_stat_name;
        if !pattern.is_empty() {
            draft.stat_name = Some(stat_name::render(pattern, &first.service, "", &first.port, cluster_port));
        }
    }

    /// Limits that clients get by a destination rule must hold at the server too, or it would be the bottleneck.
    fn limit(&self, draft: &mut Draft, cluster_port: u32, target: &Target) {
        let seen = scoped_service(self.ctx, &self.audience.proxy.caller.scope, &target.service.host);
        let rule = seen.and_then(|service| inbound_rule(self.ctx, &self.terms.namespace, &service.key()));
        let written = rule.as_ref().and_then(|rule| rule.spec.traffic_policy.as_ref());
        if let (Some(rule), Some(_), false) = (&rule, written, draft.metadata.is_empty()) {
            draft.metadata.add_rule(rule);
        }
        let policy = with_mesh_defaults(&self.settings, written.map(|policy| for_port(policy, &target.port)));
        let none = ConnectionPoolSettings::default();
        let of_policy = || policy.as_ref().and_then(|policy| policy.connection_pool.as_ref());
        let pool = self.terms.inbound_connection_pool(cluster_port).or_else(of_policy).unwrap_or(&none);
        let budget = policy.as_ref().and_then(|policy| policy.retry_budget.as_ref());
        connection_pool::apply(draft, &self.settings, pool, budget);
    }
}

fn port_number(listener: &IstioIngressListener) -> u32 {
    listener.port.as_ref().map_or(0, |port| port.number)
}

/// Redirects to the target port, where the service has one.
fn redirect(draft: &mut Draft, target: &Target) {
    let Some(port) = target.service.passthrough_target_ports.get(&target.port.number) else { return };
    let config = OriginalDstLbConfig { upstream_port_override: Some((*port).into()), ..Default::default() };
    draft.rest().lb_config = Some(LbConfig::OriginalDstLbConfig(config));
}
