//! Listeners of waypoints: tunnels end at one, what comes out of them goes to another that tells services apart, and
//! others put what goes on to workloads into tunnels again.

mod chains;
mod matcher;
mod ports;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_mesh::network::HBONE_PORT;
use canopus_mesh::service::{Port, Resolution, Service, known_address};
use canopus_mesh::waypoint::{self};
use canopus_proto::envoy::config::core::v3::TrafficDirection;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::resource::Resource;
use canopus_proto::xds::r#type::matcher::v3::ip_matcher::IpRangeMatcher;
use canopus_proto::xds::r#type::matcher::v3::matcher::OnMatch;
use canopus_runtime::flags::{AMBIENT_ENABLE_MULTI_NETWORK, ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS};

use self::ports::Spoken;
use super::draft::{Draft, FilterChain};
use super::{connect, gateway, inspect};
use crate::audience::{ListenerAudience, Shared};
use crate::env::{Class, Env};
use crate::filter::Filters;
use crate::names;
use crate::network::tcp;
use crate::telemetry::access_log;
use crate::tunnel::MAIN_INTERNAL;

/// The listeners of a waypoint, or of a gateway between networks.
pub(super) struct WaypointListeners;

impl Query for WaypointListeners {
    const NAME: &'static str = "waypoint_listeners";
    type Key = Shared<ListenerAudience>;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, audience: &Shared<ListenerAudience>) -> Self::Value {
        let env = Env::new(ctx, audience);
        let mut listeners = vec![connect::terminate(&env), main(&env)];
        if stands_between_networks(&env) {
            listeners.push(connect::forward_inner(&env));
            listeners.extend(gateway::passthrough_listeners(&env));
        } else {
            listeners.push(connect::originate(&env, Class::Inbound));
        }
        if env.crosses_networks() {
            listeners.extend(connect::originate_double(&env));
        }
        listeners
    }
}

fn stands_between_networks(env: &Env<'_>) -> bool {
    env.flag(AMBIENT_ENABLE_MULTI_NETWORK) && env.audience.role.is_east_west_gateway
}

/// The listener that takes what comes out of tunnels, whoever it is for.
fn main(env: &Env<'_>) -> Resource {
    let services = env.services_behind();
    let workloads = env.workloads_behind();
    let mut main = Main {
        env,
        draft: Draft::new(Listener {
            name: MAIN_INTERNAL.into(),
            traffic_direction: TrafficDirection::Inbound as i32,
            access_log: access_log::listener(env, Class::Inbound),
            ..connect::internal()
        }),
        ranges: Vec::new(),
        hosts: BTreeMap::new(),
        spoken: BTreeMap::new(),
    };
    for service in services.iter() {
        main.add(service);
    }
    if !env.audience.role.is_east_west_gateway {
        main.add_workloads(workloads.as_deref().unwrap_or_default());
    }
    let mut filters = vec![inspect::original_destination()];
    // Any port of a workload may be meant.
    let mut spoken = main.spoken;
    if workloads.is_some() {
        spoken.clear();
    }
    filters.push(ports::http_inspector(&spoken));
    filters.extend(ports::tls_inspector(services.iter().flat_map(|service| &service.ports)));
    let mut draft = main.draft;
    if draft.chains.is_empty() {
        let mut filters = Filters::default();
        tcp::black_hole(&mut filters);
        draft.add(&FilterChain { name: "virtualInbound-blackhole", ..Default::default() }, &filters);
    }
    let by_address = matcher::by_address(main.ranges);
    // Addresses of different networks may be the same, names are not.
    let by_name = !main.hosts.is_empty();
    let chosen = if by_name { matcher::by_authority(main.hosts, by_address) } else { by_address };
    draft.listener.listener_filters = filters;
    draft.listener.filter_chain_matcher = Some(chosen);
    draft.encode()
}

/// The main listener in the making.
struct Main<'a> {
    env: &'a Env<'a>,
    draft: Draft,
    /// What is meant by addresses.
    ranges: Vec<IpRangeMatcher>,
    /// What is meant by `host:port`, where there are several networks.
    hosts: BTreeMap<String, OnMatch>,
    /// What is spoken on ports, whoever they are of.
    spoken: BTreeMap<u32, Spoken>,
}

impl Main<'_> {
    fn add(&mut self, service: &Service) {
        let ListenerAudience { addressing, network, .. } = &**self.env.audience;
        let addresses = waypoint::addresses(self.env.ctx, service, addressing, network);
        let mut by_port = BTreeMap::new();
        for port in service.ports.iter().filter(|port| port.protocol != Protocol::Udp) {
            let Some(chosen) = self.add_port(service, port, !addresses.is_empty()) else { continue };
            // A service without addresses cannot be called by its name either.
            if !addresses.is_empty() && self.env.flag(AMBIENT_ENABLE_MULTI_NETWORK) {
                self.hosts.insert(format!("{}:{}", service.host, port.number), chosen.clone());
            }
            by_port.insert(port.number.to_string(), chosen);
        }
        if !by_port.is_empty() && !addresses.is_empty() {
            let chosen = matcher::then(matcher::by_port(by_port));
            self.ranges.push(matcher::range(addresses.iter().map(String::as_str), chosen));
        }
    }

    /// Adds the chains of a port, and says which of them takes a connection; `None` if none does.
    fn add_port(&mut self, service: &Service, port: &Port, has_addresses: bool) -> Option<OnMatch> {
        let env = self.env;
        if stands_between_networks(env) {
            // What is in the inner tunnel is not looked at.
            let mut filters = Filters::default();
            let name = chains::tcp(&mut filters, env, service, port);
            self.draft.add(&FilterChain { name: &name, ..Default::default() }, &filters);
            self.spoken.insert(port.number, Spoken::Tcp);
            return Some(self.after_policies(service, &name));
        }
        let mut before = Filters::default();
        if has_addresses && env.flag(AMBIENT_ENABLE_MULTI_NETWORK) && !env.audience.role.is_east_west_gateway
        {
            let address = known_address(service, &env.audience.addressing);
            connect::destination_or(&mut before, &format!("{address}:{}", port.number));
        }
        let draft = &mut self.draft;
        let mut push = |write: chains::Write| {
            let mut filters = before.clone();
            let name = write(&mut filters, env, service, port);
            draft.add(&FilterChain { name: &name, ..Default::default() }, &filters);
            matcher::to_chain(&name)
        };
        let (spoken, chosen) = if port.protocol.is_unsupported() {
            let tcp = push(chains::tcp);
            let http = push(chains::http);
            (Spoken::Either, matcher::by_protocol(env, tcp, http))
        } else if port.protocol.is_http() {
            (Spoken::Http, push(chains::http))
        } else {
            let by_name = port.protocol.is_tls() && resolves_names(service);
            if by_name && !env.flag(ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS) {
                return None;
            }
            (Spoken::Tcp, push(chains::tcp))
        };
        let known = self.spoken.entry(port.number).or_insert(spoken);
        *known = known.and(spoken);
        Some(chosen)
    }

    /// Where a gateway between networks sends connections: through the waypoint in front of a service, unless the client
    /// was one or need not go there.
    fn after_policies(&self, service: &Service, direct: &str) -> OnMatch {
        let Some(front) = waypoint::in_front_of(self.env.ctx, service) else {
            return matcher::to_chain(direct);
        };
        let through = names::vip_cluster(&front.host, HBONE_PORT, "tcp");
        let from_gateways = if front.takes_ingress { &through } else { direct };
        matcher::then(matcher::by_source(direct, from_gateways, &through))
    }

    /// Connections to workloads by their own addresses.
    fn add_workloads(&mut self, workloads: &[IpAddr]) {
        for (name, filters) in chains::direct(self.env) {
            self.draft.add(&FilterChain { name, ..Default::default() }, &filters);
        }
        let [tcp, http] = [chains::DIRECT_TCP, chains::DIRECT_HTTP].map(matcher::to_chain);
        let chosen = matcher::by_protocol(self.env, tcp, http);
        if !workloads.is_empty() {
            let addresses: Vec<_> = workloads.iter().map(ToString::to_string).collect();
            self.ranges.push(matcher::range(addresses.iter().map(String::as_str), chosen));
        }
    }
}

/// Whether connections go to whatever address the name has that the client asks for.
fn resolves_names(service: &Service) -> bool {
    service.host.starts_with('*') && service.resolution == Resolution::DynamicDns
}
