//! Filter chains of inbound listeners.

use std::cell::OnceCell;
use std::sync::Arc;

use canopus_base::protocol::Protocol;
use canopus_mesh::peer_authentication::MutualTls;
use canopus_mesh::scope;
use canopus_proto::envoy::config::core::v3::{CidrRange, TransportSocket};
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::resource::Resource;
use canopus_proto::wire::Encoded;

use super::matching::{self, Sort};
use super::ports::{self, InboundPort};
use super::tls::{self, Mutual};
use super::{Audience, NAME};
use crate::env::{Class, Env};
use crate::extension::Placed;
use crate::filter::Filters;
use crate::http::headers::ProxyHeaders;
use crate::http::{Manager, Routes, http10};
use crate::listener::draft::{Draft, FilterChain, Match};
use crate::listener::inspect::Inspections;
use crate::listener::port::Handling;
use crate::network::pipeline::Before;
use crate::network::tcp;
use crate::stat_name::Placeholders;
use crate::telemetry::{metrics, peer_metadata};
use crate::{names, route_config};

/// The chain for requests to ports that are not known.
const CATCH_ALL_HTTP: &str = "virtualInbound-catchall-http";

/// Connections to the port itself would come back to it for ever.
pub(super) fn add_black_hole(all: &mut Chains, env: &Env<'_>) {
    let mut filters = Filters::default();
    peer_metadata::on_connections(&mut filters, env);
    metrics::on_connections(&mut filters, env, Class::Inbound);
    tcp::black_hole(&mut filters);
    let port = u32::try_from(env.mesh().proxy_inbound_listen_port).unwrap_or_default();
    let matched = Some(Match { port, ..Default::default() });
    all.add(&FilterChain { name: "virtualInbound-blackhole", matched, ..Default::default() }, &filters);
}

/// Adds the chains for ports that are not known: of all of them, and of those that have a mutual TLS mode of their own.
pub(super) fn add_passthrough(all: &mut Chains, env: &Env<'_>, audience: &Audience, mutual: &Mutual<'_>) {
    let terms = scope::scope_settings(env.ctx, env.audience.scope());
    let policy = &mutual.policy;
    let unknown = policy.ports.keys().filter(|port| !ports::is_known(&terms, audience, **port));
    for target in std::iter::once(0).chain(unknown.copied()) {
        add_of_mode(all, env, &Site::passthrough(target), mutual);
    }
}

/// Adds the chains of a known port.
pub(super) fn add(all: &mut Chains, env: &Env<'_>, port: &InboundPort, mutual: &Mutual<'_>) {
    let site = Site::new(port);
    match &port.tls {
        // Only where the mesh does not terminate TLS can the user do so.
        Some(settings) if mutual.policy.mode_on_port(port.target) == MutualTls::Disable => {
            let handling = Handling::for_protocol(port.protocol.after_tls_termination());
            let sort = matching::own_tls(handling);
            site.add_chain(all, env, &sort, Some(tls::sidecar_socket(env, settings)));
        }
        _ => add_of_mode(all, env, &site, mutual),
    }
}

fn add_of_mode(all: &mut Chains, env: &Env<'_>, site: &Site, mutual: &Mutual<'_>) {
    for sort in
        matching::sorts(env, mutual.policy.mode_on_port(site.target), Handling::for_protocol(site.protocol))
    {
        site.add_chain(all, env, &sort, sort.terminated.then(|| mutual.socket(sort.http)));
    }
}

/// The filter chains of a listener, and what they need to know about connections.
pub(super) struct Chains {
    pub(super) draft: Draft,
    pub(super) inspections: Inspections,
}

impl Chains {
    pub(super) fn new(listener: Listener) -> Self {
        Self { draft: Draft::new(listener), inspections: Inspections::default() }
    }

    fn add(&mut self, chain: &FilterChain<'_>, filters: &Filters) {
        self.inspections.note(chain.matched.as_ref().unwrap_or(&Match::default()));
        self.draft.add(chain, filters);
    }

    /// The listener, with inspectors after the filters that it has already.
    pub(super) fn encode(mut self) -> Resource {
        self.draft.listener.listener_filters.extend(self.inspections.inspectors());
        self.draft.encode()
    }
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
    http: OnceCell<Filters>,
    /// Filters of chains for streams of bytes.
    tcp: OnceCell<Filters>,
}

impl Site {
    pub(super) fn new(port: &InboundPort) -> Self {
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

    /// Adds the chain for one sort of connection.
    fn add_chain(
        &self,
        all: &mut Chains,
        env: &Env<'_>,
        sort: &Sort,
        socket: Option<Encoded<TransportSocket>>,
    ) {
        let (protocols, transport) = (sort.protocols, sort.transport);
        let matched = Match { port: self.target, protocols, transport, ..Default::default() };
        self.add_matching(all, env, sort.http, matched, socket);
    }

    /// Adds the chain of what a tunnel leads to one of `addresses`, where there is no TLS left to tell apart.
    pub(super) fn add_tunnelled(&self, all: &mut Chains, env: &Env<'_>, addresses: &[CidrRange]) {
        for sort in matching::sorts(env, MutualTls::Disable, Handling::for_protocol(self.protocol)) {
            let (ranges, protocols) = (addresses.to_vec(), sort.protocols);
            let matched = Match { ranges, port: self.target, protocols, ..Default::default() };
            self.add_matching(all, env, sort.http, matched, None);
        }
    }

    fn add_matching(
        &self,
        all: &mut Chains,
        env: &Env<'_>,
        is_http: bool,
        matched: Match<'_>,
        socket: Option<Encoded<TransportSocket>>,
    ) {
        let metadata = self.sidecar.as_ref();
        let metadata = metadata.map(|(name, namespace)| names::config_metadata("sidecar", namespace, name));
        let (name, matched) = (self.chain_name(is_http), Some(matched));
        let filters = match is_http {
            true => self.http.get_or_init(|| http(env, self)),
            false => self.tcp.get_or_init(|| tcp(env, self)),
        };
        all.add(&FilterChain { name, matched, metadata, socket, ..Default::default() }, filters);
    }

    fn chain_name(&self, is_http: bool) -> &str {
        match &self.name {
            Some(name) => name,
            None if is_http => CATCH_ALL_HTTP,
            None => NAME,
        }
    }
}

/// Peer metadata comes first, so that everything after it, refusals included, can be attributed. Network extensions stand
/// between the two.
fn http(env: &Env<'_>, site: &Site) -> Filters {
    let mut filters = Filters::default();
    if !site.tunnelled {
        peer_metadata::on_connections(&mut filters, env);
    }
    filters.append(&Placed::network(env, Class::Inbound, site.target).all_on_connections());
    manager(env, site).add_to(&mut filters, env);
    filters
}

fn manager<'a>(env: &Env<'_>, site: &Site) -> Manager<'a> {
    let table =
        route_config::inbound::table(&site.cluster, &site.host, site.port, site.protocol, &env.settings);
    let stat_prefix = match &site.name {
        Some(name) => ["inbound_", name].concat(),
        None => site.cluster.clone(),
    };
    let manager = Manager::new(Class::Inbound, &stat_prefix, Routes::Inline(Box::new(table)));
    let headers = ProxyHeaders::new(env, Class::Inbound);
    let (forwarded, details) = (headers.forwarded_client_cert, headers.client_cert_details);
    let mut manager = headers.on(manager);
    manager.peer_headers_in_mesh_only = false;
    manager.protocol = site.protocol;
    manager.tunnelled = site.tunnelled;
    manager.port = site.target;
    manager.particulars.forwarded_client_cert = forwarded as i32;
    manager.particulars.client_cert_details = Some(details);
    manager.particulars.http1 = http10(env);
    manager.particulars.http2 = site.protocol.is_http2();
    manager
}

fn tcp(env: &Env<'_>, site: &Site) -> Filters {
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
