//! Clusters of the services proxies call: one for each port, and one for each subset of it.

use std::cell::OnceCell;
use std::ops::Deref;
use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_base::host;
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_mesh::destination_rule::{self, Rule, RuleId};
use canopus_mesh::endpoint::{CommonTraits, CommonTraitsOf, Servers, ServersOf};
use canopus_mesh::gateway_api::is_inference_pool;
use canopus_mesh::peer_authentication::MutualTls;
use canopus_mesh::service::{Port, Resolution, Service, ServiceKey, service};
use canopus_mesh::world::{MeshSettings, settings};
use canopus_proto::envoy::config::cluster::v3::cluster::{
    DiscoveryType, LbConfig, LbPolicy, OriginalDstLbConfig,
};
use canopus_proto::envoy::config::core::v3::{HealthStatus, HealthStatusSet};
use canopus_proto::istio::networking::v1alpha3::load_balancer_settings::SimpleLb;
use canopus_proto::istio::networking::v1alpha3::{
    ClientTlsSettings, ConnectionPoolSettings, Subset, TrafficPolicy,
};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{
    ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS, Flags, PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES,
    PILOT_ENABLE_TELEMETRY_LABEL,
};

use super::draft::Draft;
use super::traits::ClientTraits;
use super::transport::{self, Client, Server};
use super::{connection_pool, dns, fixed, hbone, load_balancer, outlier, stat_name};
use crate::audience::EndpointAudience;
use crate::endpoint;
use crate::endpoint::Destination;
use crate::{inference, names};

/// What clusters are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Purpose {
    /// Calls of the proxy.
    Calls,
    /// Encrypted connections of others that a gateway passes on by their SNI.
    PassingOn,
    /// Traffic to a service that a waypoint stands in front of.
    Fronting,
    /// Tunnels from other networks to a service.
    Terminating,
}

impl Purpose {
    /// Whether the proxy stands in front of the service.
    fn is_inbound(self) -> bool {
        matches!(self, Self::Fronting | Self::Terminating)
    }
}

/// Which clusters are asked for: those of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    /// Traits of the proxies that the clusters are for.
    pub(super) traits: ClientTraits,
    /// What they are for.
    pub(super) purpose: Purpose,
    /// The service.
    pub(super) service: ServiceKey,
    /// The ports that have clusters, as the proxy's scope has them.
    pub(super) ports: Vec<Port>,
    /// The destination rule that applies.
    pub(super) rule: Option<RuleId>,
    /// Audience of the endpoints, if the clusters hold them.
    pub(super) near: Option<Box<EndpointAudience>>,
}

/// The clusters of a service, port by port.
pub(super) struct ServiceClusters;

impl Query for ServiceClusters {
    const NAME: &'static str = "service_clusters";
    type Key = Request;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, request: &Request) -> Vec<Resource> {
        let Some(service) = service(ctx, &request.service) else { return Vec::new() };
        let facts = Facts {
            ctx,
            request,
            settings: settings(ctx),
            rule: request.rule.as_ref().and_then(|id| destination_rule::rule(ctx, id)),
            service,
            servers: OnceCell::new(),
        };
        let mut clusters = Vec::with_capacity(request.ports.len());
        // All ports of a pool's Service lead to the same pods, among which the endpoint picker chooses.
        let is_pool = is_inference_pool(&facts.service);
        for port in request.ports.iter().take(if is_pool { 1 } else { usize::MAX }) {
            let builder = Builder { facts: &facts, port };
            match request.purpose {
                Purpose::Calls | Purpose::PassingOn => builder.add_clusters(&mut clusters),
                Purpose::Fronting => builder.add_fronting(&mut clusters),
                Purpose::Terminating => clusters.extend(builder.terminating()),
            }
        }
        clusters
    }
}

/// Whether clusters of a service hold its endpoints, or a cache of names.
pub(super) fn holds_endpoints(service: &Service) -> bool {
    service.resolution.is_dns() || service.resolution == Resolution::DynamicDns
}

/// What the clusters of a service are built of.
pub(super) struct Facts<'a> {
    pub(super) ctx: &'a Ctx<'a>,
    pub(super) request: &'a Request,
    pub(super) settings: Arc<MeshSettings>,
    pub(super) service: Arc<Service>,
    pub(super) rule: Option<Arc<Rule>>,
    /// What is known of all its endpoints together, once it has been looked up.
    servers: OnceCell<Arc<Servers>>,
}

/// Builds the clusters of one port.
pub(super) struct Builder<'a> {
    facts: &'a Facts<'a>,
    pub(super) port: &'a Port,
}

impl<'a> Deref for Builder<'a> {
    type Target = Facts<'a>;

    fn deref(&self) -> &Facts<'a> {
        self.facts
    }
}

impl Builder<'_> {
    fn add_clusters(&self, clusters: &mut Vec<Resource>) {
        let Some(main) = self.main_draft() else { return };
        let written = self.rule.as_ref().and_then(|rule| rule.spec.traffic_policy.as_ref());
        let policy = written.map(|policy| for_port(policy, self.port));
        let policy = with_mesh_defaults(&self.settings, policy);
        // Parity: subsets find their endpoints the way all of them are found once the policy has had its say.
        let (main, discovery) = self.main_cluster(main, policy.as_deref(), written);
        clusters.push(main);
        if let Some(rule) = self.rule.as_deref().filter(|_| !dns::is_forward_proxy(&self.service)) {
            let subsets = rule.spec.subsets.iter();
            clusters
                .extend(subsets.filter_map(|subset| self.subset(rule, subset, discovery, policy.as_deref())));
        }
    }

    fn main_draft(&self) -> Option<Draft> {
        let name = self.name("");
        match &self.request.near {
            Some(near) if dns::is_forward_proxy(&self.service) => {
                let flags = &self.settings.flags;
                let mut draft = dns::forward_proxy(flags, &near.addressing, &name, &self.service);
                self.set_protocol(&mut draft);
                Some(draft)
            }
            _ => self.draft(name, self.discovery(), ""),
        }
    }

    /// The cluster of all endpoints, and how it finds them.
    fn main_cluster(
        &self,
        mut draft: Draft,
        policy: Option<&TrafficPolicy>,
        written: Option<&TrafficPolicy>,
    ) -> (Resource, DiscoveryType) {
        self.keep_draining(&mut draft);
        self.apply(&mut draft, "", policy, written);
        if is_inference_pool(&self.service) && self.request.traits.kind == NodeKind::Router {
            follow_picker(&mut draft);
        }
        // What comes through a tunnel needs no exchange of metadata.
        if self.request.purpose == Purpose::Calls && self.is_behind_tunnels() {
            draft.metadata.add_flag("disable_mx");
        } else if self.service.external {
            draft.metadata.add_flag("external");
        }
        if let Some(rule) = &self.rule {
            draft.metadata.add_rule(rule);
            draft.metadata.add_alpn(policy);
        }
        let discovery = draft.discovery();
        (draft.encode(), discovery)
    }

    /// The cluster of the endpoints of a subset.
    fn subset(
        &self,
        rule: &Rule,
        subset: &Subset,
        discovery: DiscoveryType,
        policy: Option<&TrafficPolicy>,
    ) -> Option<Resource> {
        let written = subset.traffic_policy.as_ref();
        let discovery = if is_passthrough(written) { DiscoveryType::OriginalDst } else { discovery };
        let mut draft = self.draft(self.name(&subset.name), discovery, &subset.name)?;
        let policy = destination_rule::policy_for_subset(policy, written, self.port.number);
        self.apply(&mut draft, &subset.name, policy.as_ref(), written);
        draft.metadata.add_rule(rule);
        draft.metadata.add_subset(&subset.name);
        draft.metadata.add_alpn(policy.as_ref());
        Some(draft.encode())
    }

    pub(super) fn name(&self, subset: &str) -> String {
        let (host, port) = (&self.service.host, self.port.number);
        match self.request.purpose {
            Purpose::Calls => names::outbound_cluster(host, port, subset),
            Purpose::PassingOn => names::outbound_sni(host, port, subset),
            Purpose::Fronting | Purpose::Terminating => names::vip_cluster(host, port, subset),
        }
    }

    pub(super) fn discovery(&self) -> DiscoveryType {
        match self.service.resolution {
            Resolution::Dns if self.service.races_connections => DiscoveryType::LogicalDns,
            Resolution::Dns => DiscoveryType::StrictDns,
            Resolution::DnsRoundRobin => DiscoveryType::LogicalDns,
            Resolution::Passthrough if self.goes_where_told() => DiscoveryType::OriginalDst,
            _ => DiscoveryType::Eds,
        }
    }

    /// Gateways take connections to themselves, so they do not know where else the client wanted to go.
    fn goes_where_told(&self) -> bool {
        let listed =
            self.service.is_kubernetes() && self.settings.flags.get(PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES);
        self.request.traits.kind != NodeKind::Router && !listed
    }

    /// A cluster without policy; none if it would hold no endpoint.
    pub(super) fn draft(&self, name: String, discovery: DiscoveryType, subset: &str) -> Option<Draft> {
        let mut draft = Draft::with_discovery(name, discovery);
        draft.balancing();
        let (flags, mesh) = (&self.settings.flags, &self.settings.mesh);
        match discovery {
            DiscoveryType::StrictDns | DiscoveryType::LogicalDns => {
                dns::resolve(&mut draft, &self.settings, &self.request.traits, &self.service);
                let destination = Destination {
                    cluster: &draft.name.clone(),
                    service: &self.service,
                    port: self.port,
                    subset,
                    rule: self.rule.clone().filter(|_| !self.request.purpose.is_inbound()),
                    through_waypoint: false,
                };
                let env = endpoint::Env::new(self.ctx, self.request.near.as_deref()?);
                dns::hold_endpoints(&mut draft, &env, &destination)?;
                if !subset.is_empty() || self.request.purpose != Purpose::Calls {
                    // Parity: labels decide about nothing here.
                    draft.held.clear();
                }
            }
            DiscoveryType::OriginalDst => {
                if let Some(port) = self.service.passthrough_target_ports.get(&self.port.number) {
                    draft.rest().lb_config = Some(LbConfig::OriginalDstLbConfig(OriginalDstLbConfig {
                        upstream_port_override: Some((*port).into()),
                        ..Default::default()
                    }));
                }
            }
            _ => {}
        }
        self.set_protocol(&mut draft);
        if flags.get(PILOT_ENABLE_TELEMETRY_LABEL) {
            draft.metadata.add_services([&*self.service]);
        }
        if !mesh.outbound_cluster_stat_name.is_empty() && !self.request.purpose.is_inbound() {
            let pattern = &mesh.outbound_cluster_stat_name;
            draft.stat_name = Some(stat_name::render(pattern, &self.service, subset, self.port, 0));
        }
        Some(draft)
    }

    pub(super) fn set_protocol(&self, draft: &mut Draft) {
        set_protocol(draft, &self.request.traits, self.port.protocol);
    }

    /// Endpoints on their way out still serve the sessions they have.
    fn keep_draining(&self, draft: &mut Draft) {
        let is_for_calls = self.request.purpose == Purpose::Calls && !draft.is_forward_proxy;
        if is_for_calls && self.service.keeps_sessions(&self.settings.flags) {
            let statuses = [
                HealthStatus::Healthy,
                HealthStatus::Draining,
                HealthStatus::Unknown,
                HealthStatus::Degraded,
            ];
            draft.balancing().override_host_status =
                Some(HealthStatusSet { statuses: statuses.map(|status| status as i32).to_vec() });
        }
    }

    /// What is known of the other end of connections with this TLS; `written` is the policy that may send connections
    /// where the client wanted.
    fn server(
        &self,
        subset: &str,
        draft: &Draft,
        tls: Option<&ClientTlsSettings>,
        written: Option<&TrafficPolicy>,
    ) -> Server {
        let (host, port) = (&self.service.host, self.port.number);
        // Nobody's identity is checked without TLS, and outside the mesh there is none unless it is asked for.
        let has_identity = !draft.is_forward_proxy && (tls.is_some() || !self.service.external);
        let accounts = || self.servers().accounts.clone();
        let sni = || names::outbound_sni(host, port, subset);
        Server {
            accounts: has_identity.then(accounts).unwrap_or_default(),
            sni: has_identity.then(sni).unwrap_or_default(),
            is_external: self.service.external,
            is_entry: !self.service.is_kubernetes(),
            mtls: self.mutual_tls(written),
            is_for_workloads: self.rule.as_ref().is_some_and(|rule| rule.spec.workload_selector.is_some()),
        }
    }

    /// Whether the service's endpoints take the mesh's mutual TLS, as far as policies of namespaces and mesh say.
    fn mutual_tls(&self, written: Option<&TrafficPolicy>) -> Option<MutualTls> {
        if self.service.external {
            return None;
        }
        if self.service.resolution == Resolution::Passthrough || is_passthrough(written) {
            // There is no choosing per endpoint, so all must take it.
            if !self.traits().mutual_tls {
                return Some(MutualTls::Disable);
            }
        }
        Some(self.servers().mutual_tls)
    }

    /// The client side of the connections.
    pub(super) fn client(&self) -> Client<'_> {
        Client { traits: &self.request.traits, settings: &self.settings }
    }

    /// Whether all endpoints of the port take tunnels.
    fn is_behind_tunnels(&self) -> bool {
        self.servers().tunnels && self.traits().tunnels
    }

    fn servers(&self) -> &Servers {
        self.facts.servers.get_or_init(|| self.ctx.get::<ServersOf>(&self.request.service))
    }

    fn traits(&self) -> CommonTraits {
        *self.ctx.get::<CommonTraitsOf>(&(self.request.service.clone(), self.port.clone()))
    }

    /// Sets what a policy says; `written` is what of it was written for the subset.
    fn apply(
        &self,
        draft: &mut Draft,
        subset: &str,
        policy: Option<&TrafficPolicy>,
        written: Option<&TrafficPolicy>,
    ) {
        let (settings, flags) = (&*self.settings, &self.settings.flags);
        let traits = &self.request.traits;
        let protocol = self.port.protocol;
        let none = ConnectionPoolSettings::default();
        let pool = policy.and_then(|policy| policy.connection_pool.as_ref()).unwrap_or(&none);
        if connection_pool::upgrades_to_http2(settings, protocol, pool) {
            draft.use_http2();
        }
        let budget = policy.and_then(|policy| policy.retry_budget.as_ref());
        connection_pool::apply(draft, settings, pool, budget);
        if let Some(outliers) = policy.and_then(|policy| policy.outlier_detection.as_ref()) {
            outlier::apply(draft, outlier::always_sends_unhealthy(flags, &self.service), outliers);
        }
        let balancer = policy.and_then(|policy| policy.load_balancer.as_ref());
        let is_waypoint = traits.kind == NodeKind::Waypoint;
        load_balancer::apply(draft, settings, &self.service, protocol, is_waypoint, balancer);
        if let Some(near) = &self.request.near {
            dns::order_endpoints(draft, &endpoint::Env::new(self.ctx, near), &self.service, balancer);
        }
        if self.request.purpose == Purpose::Calls {
            let client = self.client();
            let tls = policy.and_then(|policy| policy.tls.as_ref());
            let server = self.server(subset, draft, tls, written);
            transport::apply(draft, client, &server, tls);
            if let Some(version) = policy.and_then(|policy| policy.proxy_protocol.as_ref()) {
                transport::announce_client(draft, client, version);
            }
        }
        draft.ask_for_endpoints();
        fixed::exchange(draft.body(), settings, traits);
        if traits.sends_hbone(flags) {
            hbone::discover_by_baggage(draft, flags);
        }
    }
}

/// Leaves the choice of endpoints to the endpoint picker of an InferencePool.
fn follow_picker(draft: &mut Draft) {
    draft.lb_policy = LbPolicy::ClusterProvided;
    draft.rest().lb_config = None;
    draft.rest().load_balancing_policy = Some(inference::follow_picker());
    // Envoy refuses localities by weight beside a policy of this kind.
    draft.balancing().locality_config_specifier = None;
}

/// Whether a policy sends connections where the client wanted to go.
fn is_passthrough(policy: Option<&TrafficPolicy>) -> bool {
    let balancer = policy.and_then(|policy| policy.load_balancer.as_ref());
    load_balancer::simple(balancer) == SimpleLb::Passthrough
}

/// The protocol that a port asks for.
pub(super) fn set_protocol(draft: &mut Draft, traits: &ClientTraits, protocol: Protocol) {
    if protocol.is_http2() {
        draft.use_http2();
        return;
    }
    if protocol.is_http_or_sniffed() && traits.keeps_header_case {
        draft.keep_header_case();
    }
    // Clients of gateways choose HTTP/2 because gateways offer it, which says nothing about the server.
    let follows = matches!(traits.kind, NodeKind::Sidecar | NodeKind::Waypoint);
    if follows && protocol.is_unsupported() {
        draft.follow_client();
    }
}

/// What a policy says about a port. Apart, as it is large and handed around.
pub(super) fn for_port(policy: &TrafficPolicy, port: &Port) -> Box<TrafficPolicy> {
    Box::new(destination_rule::policy_for_port(policy, port.number).0)
}

/// A policy with the mesh's settings for connections and outliers where it has none.
pub(super) fn with_mesh_defaults(
    settings: &MeshSettings,
    policy: Option<Box<TrafficPolicy>>,
) -> Option<Box<TrafficPolicy>> {
    let Some(defaults) = &settings.mesh.default_traffic_policy else { return policy };
    if defaults.connection_pool.is_none() && defaults.outlier_detection.is_none() {
        return policy;
    }
    let mut policy = policy.unwrap_or_default();
    policy.connection_pool = policy.connection_pool.or(defaults.connection_pool);
    policy.outlier_detection = policy.outlier_detection.or_else(|| defaults.outlier_detection.clone());
    Some(policy)
}

/// Whether a port has clusters at all.
pub(super) fn is_reachable(flags: &Flags, purpose: Purpose, service: &Service, port: &Port) -> bool {
    if service.resolution == Resolution::Alias || port.protocol == Protocol::Udp {
        return false;
    }
    match purpose {
        Purpose::Fronting | Purpose::Terminating if service.resolution == Resolution::DynamicDns => {
            match port.protocol {
                Protocol::Tls => flags.get(ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS),
                protocol => protocol == Protocol::Http,
            }
        }
        Purpose::Calls if dns::is_forward_proxy(service) => {
            matches!(port.protocol, Protocol::Http | Protocol::Tls | Protocol::Grpc | Protocol::Http2)
        }
        _ => true,
    }
}

/// Whether a host stands for many.
pub(super) fn is_wildcard(service: &Service) -> bool {
    host::is_wildcard(&service.host)
}
