//! Filter chains of inbound listeners.

use std::cell::OnceCell;
use std::sync::Arc;

use canopus_base::protocol::Protocol;
use canopus_mesh::peer_authentication::{MutualTls, PeerPolicy};
use canopus_mesh::scope;
use canopus_proto::envoy::config::core::v3::{Http2ProtocolOptions, TransportSocket};
use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};

use super::matching::{self, Sort};
use super::ports::{self, InboundPort};
use super::{Audience, NAME, tls};
use crate::env::{Class, Env};
use crate::extension::Placed;
use crate::http::headers::ProxyHeaders;
use crate::http::{Manager, Routes, http10_options};
use crate::listener::port::Handling;
use crate::network::pipeline::Before;
use crate::network::tcp;
use crate::stat_name::Placeholders;
use crate::telemetry::{metrics, peer_metadata};
use crate::{names, route_config};

/// Connections to the port itself would come back to it for ever.
pub(super) fn black_hole(env: &Env<'_>) -> FilterChain {
    let mut filters: Vec<_> = peer_metadata::network(env).into_iter().collect();
    filters.extend(metrics::network(env, Class::Inbound));
    filters.push(tcp::black_hole());
    let port = u32::try_from(env.mesh().proxy_inbound_listen_port).unwrap_or_default();
    FilterChain {
        name: "virtualInbound-blackhole".into(),
        filter_chain_match: Some(to_port(port)),
        filters,
        ..Default::default()
    }
}

/// The chains for ports that are not known: of all of them, and of those that have a mutual TLS mode of their own.
pub(super) fn passthrough(env: &Env<'_>, audience: &Audience, policy: &PeerPolicy) -> Vec<FilterChain> {
    let terms = scope::terms(env.ctx, env.view);
    let unknown = policy.ports.keys().filter(|port| !ports::is_known(&terms, audience, **port));
    let targets = std::iter::once(0).chain(unknown.copied());
    targets.flat_map(|target| of_mode(env, &Site::passthrough(target), policy.of_port(target))).collect()
}

/// The chains of a known port.
pub(super) fn chains(env: &Env<'_>, port: &InboundPort, policy: &PeerPolicy) -> Vec<FilterChain> {
    let site = Site::of(port);
    let mode = policy.of_port(port.target);
    match &port.tls {
        // Only where the mesh does not terminate TLS can the user do so.
        Some(settings) if mode == MutualTls::Disable => {
            let handling = Handling::of(port.protocol.after_tls_termination());
            let sorts = matching::of_own_tls(handling);
            let socket = |_: &Sort| tls::of_sidecar(env, settings);
            sorts.iter().map(|sort| chain(env, &site, sort, socket)).collect()
        }
        _ => of_mode(env, &site, mode),
    }
}

pub(super) fn of_mode(env: &Env<'_>, site: &Site, mode: MutualTls) -> Vec<FilterChain> {
    let sorts = matching::of(env, mode, Handling::of(site.protocol));
    sorts.iter().map(|sort| chain(env, site, sort, |sort| tls::mutual(env, sort.http))).collect()
}

/// What the chains of a port are about.
pub(super) struct Site {
    target: u32,
    port: u32,
    port_name: Arc<str>,
    protocol: Protocol,
    host: Arc<str>,
    kubernetes: Option<(Arc<str>, Arc<str>)>,
    cluster: String,
    /// `bind_port`; none for ports that are not known.
    name: Option<String>,
    sidecar: Option<(String, String)>,
    /// Whether connections came through a tunnel, whose ends know each other already.
    tunnelled: bool,
    /// The filters of chains for requests, made once: several chains differ in nothing but what they match.
    http: OnceCell<Vec<Filter>>,
    /// Those of chains for streams of bytes.
    tcp: OnceCell<Vec<Filter>>,
}

impl Site {
    pub(super) fn of(port: &InboundPort) -> Self {
        Self {
            target: port.target,
            port: port.port,
            port_name: port.name.clone(),
            protocol: port.protocol,
            host: port.host.clone(),
            kubernetes: port.kubernetes.clone(),
            cluster: names::inbound_cluster(port.target),
            name: Some(names::listener(port.binding.primary(), port.target)),
            sidecar: port.sidecar.clone(),
            tunnelled: false,
            http: OnceCell::new(),
            tcp: OnceCell::new(),
        }
    }

    pub(super) fn passthrough(target: u32) -> Self {
        Self {
            target,
            port: 0,
            port_name: NAME.into(),
            protocol: Protocol::Unsupported,
            host: "".into(),
            kubernetes: None,
            cluster: names::INBOUND_PASSTHROUGH.into(),
            name: None,
            sidecar: None,
            tunnelled: false,
            http: OnceCell::new(),
            tcp: OnceCell::new(),
        }
    }

    /// The same for connections that come through a tunnel.
    pub(super) fn through_tunnel(self) -> Self {
        Self { tunnelled: true, ..self }
    }

    fn filters(&self, env: &Env<'_>, are_http: bool) -> &[Filter] {
        match are_http {
            true => self.http.get_or_init(|| http(env, self)),
            false => self.tcp.get_or_init(|| tcp(env, self)),
        }
    }

    fn chain_name(&self, http: bool) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None if http => format!("{NAME}-catchall-http"),
            None => NAME.into(),
        }
    }
}

fn chain(env: &Env<'_>, site: &Site, sort: &Sort, socket: impl Fn(&Sort) -> TransportSocket) -> FilterChain {
    let mut matched = to_port(site.target);
    matched.application_protocols.clone_from(&sort.protocols);
    matched.transport_protocol = sort.transport.into();
    FilterChain {
        name: site.chain_name(sort.http),
        filter_chain_match: Some(matched),
        filters: site.filters(env, sort.http).to_vec(),
        transport_socket: sort.terminated.then(|| socket(sort)),
        metadata: site
            .sidecar
            .as_ref()
            .map(|(name, namespace)| names::config_metadata("sidecar", namespace, name)),
        ..Default::default()
    }
}

fn to_port(port: u32) -> FilterChainMatch {
    FilterChainMatch { destination_port: (port > 0).then(|| port.into()), ..Default::default() }
}

/// Peer metadata comes first, so that everything after it, refusals included, can be attributed. Network extensions stand
/// between the two.
fn http(env: &Env<'_>, site: &Site) -> Vec<Filter> {
    let exchange = peer_metadata::network(env).filter(|_| !site.tunnelled);
    let mut filters: Vec<_> = exchange.into_iter().collect();
    filters.extend(Placed::network(env, Class::Inbound, site.target).all_network_filters());
    filters.push(manager(env, site).filter(env));
    filters
}

fn manager<'a>(env: &Env<'_>, site: &Site) -> Manager<'a> {
    let table =
        route_config::inbound::table(&site.cluster, &site.host, site.port, site.protocol, &env.settings);
    let stat_prefix = match &site.name {
        Some(name) => format!("inbound_{name}"),
        None => site.cluster.clone(),
    };
    let manager = Manager::new(Class::Inbound, &stat_prefix, Routes::Inline(Box::new(table)));
    let headers = ProxyHeaders::new(env, Class::Inbound);
    let mut manager = headers.on(manager);
    manager.peer_headers_in_mesh_only = false;
    manager.protocol = site.protocol;
    manager.tunnelled = site.tunnelled;
    manager.port = site.target;
    manager.base.forward_client_cert_details = headers.forwarded_client_cert as i32;
    manager.base.set_current_client_cert_details = Some(headers.client_cert_details);
    manager.base.http_protocol_options = http10_options(env);
    manager.base.http2_protocol_options = site.protocol.is_http2().then(Http2ProtocolOptions::default);
    manager
}

fn tcp(env: &Env<'_>, site: &Site) -> Vec<Filter> {
    let stat_prefix = match env.mesh().inbound_cluster_stat_name.as_str() {
        "" => site.cluster.clone(),
        pattern => Placeholders {
            host: &site.host,
            kubernetes: site.kubernetes.as_ref().map(|(name, namespace)| (&**name, &**namespace)),
            subset: "",
            port: site.port,
            port_name: &site.port_name,
            target_port: None,
        }
        .fill(pattern),
    };
    let before =
        Before { exchanges_metadata: true, port: site.port, tunnelled: site.tunnelled, ..Default::default() };
    tcp::inbound(env, site.protocol, &site.cluster, &stat_prefix, before)
}
