//! Clusters of waypoints: one for each port and protocol of the services they stand in front of, which leads into a tunnel
//! to the endpoint, and those of services that routes lead to besides.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_mesh::destination_rule::{self, Rule, inbound_rule};
use canopus_mesh::gateway::MergedGateways;
use canopus_mesh::scope::{self, scoped_service};
use canopus_mesh::service::{Resolution, Service};
use canopus_mesh::virtual_service::{self, MESH};
use canopus_mesh::waypoint::ServicesBehind;
use canopus_proto::envoy::config::cluster::v3::cluster::LbPolicy;
use canopus_proto::envoy::config::core::v3::TransportSocket;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::{ConnectionPoolSettings, TrafficPolicy};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{PILOT_ENABLE_AMBIENT_WAYPOINTS, PILOT_SKIP_VALIDATE_TRUST_DOMAIN};

use super::Env;
use super::draft::Draft;
use super::outbound::Builder;
use super::transport::{self, Server};
use super::{connection_pool, dns, gateway, hbone, load_balancer, outlier};
use crate::endpoint;
use crate::tls;

/// The services that a waypoint stands in front of.
pub(super) fn fronted(env: &Env<'_>) -> Arc<Vec<Arc<Service>>> {
    let waypoint = env.audience.waypoint.as_ref();
    waypoint.map(|waypoint| env.ctx.get::<ServicesBehind>(waypoint)).unwrap_or_default()
}

/// The services that a waypoint calls without standing in front of them: routes of its own services lead there, or
/// providers are there.
pub(super) fn called(env: &Env<'_>) -> Vec<Arc<Service>> {
    let ctx = env.ctx;
    let fronted = fronted(env);
    let mut hosts = BTreeSet::new();
    if env.flag(PILOT_ENABLE_AMBIENT_WAYPOINTS) {
        for route in virtual_service::bound_to(ctx, &MESH.into()).iter() {
            if route.spec.hosts.iter().any(|host| fronted.iter().any(|service| *service.host == **host)) {
                hosts.extend(virtual_service::destinations(&route.spec, None).into_keys());
            }
        }
    }
    hosts.retain(|host| fronted.iter().all(|service| *service.host != **host || service.external));
    hosts.extend(routed_by_sni(env));
    let named = gateway::provider_services(ctx);
    let is_called = |service: &&Arc<Service>| {
        let qualified = format!("{}/{}", service.namespace, service.host);
        hosts.contains(&*service.host) || named.contains(&*service.host) || named.contains(&qualified)
    };
    scope::services(ctx, &env.audience.caller.scope).iter().filter(is_called).cloned().collect()
}

/// The hosts that a gateway between networks routes connections to by their SNI.
fn routed_by_sni(env: &Env<'_>) -> BTreeSet<String> {
    if !env.audience.role.is_east_west_gateway {
        return BTreeSet::new();
    }
    let mut hosts = BTreeSet::new();
    for gateway in env.ctx.get::<MergedGateways>(&env.audience.gateway).gateway_names() {
        for bound in virtual_service::for_gateway(env.ctx, &env.audience.caller.namespace, &gateway).iter() {
            let routes = bound.spec.tls.iter().flat_map(|tls| &tls.route);
            hosts.extend(routes.filter_map(|route| Some(route.destination.as_ref()?.host.clone())));
        }
    }
    hosts
}

/// The destination rule whose settings a waypoint takes over for a service it stands in front of.
pub(super) fn rule(env: &Env<'_>, service: &Service) -> Option<Arc<Rule>> {
    let caller = &env.audience.caller;
    let seen = scoped_service(env.ctx, &caller.scope, &service.host)?;
    inbound_rule(env.ctx, &caller.namespace, &seen.key())
}

/// What identities of a waypoint's endpoints begin with: those of its own namespace.
pub(super) fn peers(env: &Env<'_>) -> Option<String> {
    if env.flag(PILOT_SKIP_VALIDATE_TRUST_DOMAIN) {
        return None;
    }
    let domain = tls::identity_prefix(env.settings.trust_domain());
    Some(format!("{domain}ns/{}/sa/", env.audience.caller.namespace))
}

impl Builder<'_> {
    /// The clusters of a port of a service that a waypoint stands in front of, by protocol and subset.
    pub(super) fn add_fronting(&self, clusters: &mut Vec<Resource>) {
        let port = self.port;
        let mut protocols = Vec::new();
        if port.protocol.is_unsupported() || port.protocol.is_tcp() {
            protocols.push("tcp");
        }
        if port.protocol.is_http_or_sniffed() {
            protocols.push("http");
        }
        let written = self.rule.as_ref().and_then(|rule| rule.spec.traffic_policy.as_ref());
        let policy = written.map(|policy| destination_rule::policy_for_port(policy, port.number).0);
        clusters.extend(protocols.iter().filter_map(|protocol| self.vip(protocol, policy.as_ref())));
        for subset in self.rule.iter().flat_map(|rule| &rule.spec.subsets) {
            let policy =
                destination_rule::policy_for_subset(written, subset.traffic_policy.as_ref(), port.number);
            let names = protocols.iter().map(|protocol| format!("{protocol}/{}", subset.name));
            clusters.extend(names.filter_map(|name| self.vip(&name, policy.as_ref())));
        }
    }

    /// The cluster of a port of a service that a gateway between networks passes inner tunnels to.
    pub(super) fn terminating(&self) -> Option<Resource> {
        let (settings, flags) = (&*self.settings, &self.settings.flags);
        let subset = "tcp";
        let mut draft = self.draft(self.name(subset), self.discovery(), subset)?;
        draft.metadata.add_services([&*self.service]);
        draft.metadata.add_subset(subset);
        connection_pool::apply(&mut draft, settings, &ConnectionPoolSettings::default(), None);
        let protocol = self.port.protocol;
        load_balancer::apply(&mut draft, settings, &self.service, protocol, true, None);
        draft.ask_for_endpoints();
        draft.rest().transport_socket = Some(hbone::passing_all_metadata(flags, hbone::plain()));
        Some(draft.encode())
    }

    fn vip(&self, subset: &str, policy: Option<&TrafficPolicy>) -> Option<Resource> {
        let (settings, flags) = (&*self.settings, &self.settings.flags);
        let name = self.name(subset);
        let forwards = self.service.resolution == Resolution::DynamicDns;
        let mut draft = match &self.request.near {
            Some(near) if forwards => {
                let flags = &self.settings.flags;
                let mut draft = dns::forward_proxy(flags, &near.addressing, &name, &self.service);
                self.set_protocol(&mut draft);
                draft
            }
            _ => self.draft(name, self.discovery(), subset)?,
        };
        draft.metadata.add_services([&*self.service]);
        if let (Some(rule), Some(_)) = (&self.rule, policy) {
            draft.metadata.add_rule(rule);
        }
        draft.metadata.add_subset(subset);
        let none = ConnectionPoolSettings::default();
        let pool = policy.and_then(|policy| policy.connection_pool.as_ref()).unwrap_or(&none);
        connection_pool::apply(
            &mut draft,
            settings,
            pool,
            policy.and_then(|policy| policy.retry_budget.as_ref()),
        );
        let protocol = self.port.protocol;
        if connection_pool::upgrades_to_http2(settings, protocol, pool) {
            draft.use_http2();
        }
        if let Some(outliers) = policy.and_then(|policy| policy.outlier_detection.as_ref()) {
            outlier::apply(&mut draft, outlier::sends_unhealthy_everywhere(flags), outliers);
        }
        if !forwards {
            let balancer = policy.and_then(|policy| policy.load_balancer.as_ref());
            load_balancer::apply(&mut draft, settings, &self.service, protocol, true, balancer);
            if let Some(near) = &self.request.near {
                dns::order_endpoints(
                    &mut draft,
                    &endpoint::Env::new(self.ctx, near),
                    &self.service,
                    balancer,
                );
            }
        }
        if draft.is_original_destination() {
            draft.lb_policy = LbPolicy::ClusterProvided;
        }
        draft.ask_for_endpoints();
        self.tunnel(&mut draft, policy);
        Some(draft.encode())
    }

    /// Leads into the tunnel, with what the server itself is to receive inside.
    fn tunnel(&self, draft: &mut Draft, policy: Option<&TrafficPolicy>) {
        let flags = &self.settings.flags;
        let encrypted = self.encryption(draft, policy);
        let announced = policy.and_then(|policy| policy.proxy_protocol.as_ref());
        hbone::discover_by_baggage(draft, flags);
        if encrypted.is_none() && announced.is_none() {
            draft.body().append(hbone::passing_plain_destination(flags));
            return;
        }
        let mut inner = encrypted.unwrap_or_else(hbone::plain);
        if let Some(version) = announced {
            inner = transport::announcing(inner, version);
        }
        draft.rest().transport_socket = Some(hbone::passing_destination(flags, inner));
        hbone::disable_baggage_discovery(draft, flags);
    }

    fn encryption(&self, draft: &mut Draft, policy: Option<&TrafficPolicy>) -> Option<TransportSocket> {
        let tls = policy?.tls.as_ref().filter(|tls| matches!(tls.mode(), Mode::Simple | Mode::Mutual))?;
        transport::socket(draft, self.client(), &Server::default(), tls).ok()?
    }
}
