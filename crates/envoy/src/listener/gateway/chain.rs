//! Filter chains: what a gateway does with the connections of one server.

use std::cell::RefCell;
use std::collections::BTreeMap;

use canopus_api::gateway_protocol as server_kind;
use canopus_base::protocol::Protocol;
use canopus_mesh::gateway::{BoundServer, MergedGateway, PortServers};

use super::listener::Transport;
use super::tls::{Termination, Terminations};
use super::{manager, passthrough, tcp};
use crate::env::{Class, Env};
use crate::extension::Placed;
use crate::filter::Filters;

/// A filter chain in the making.
#[derive(Default)]
pub(super) struct Chain {
    /// The server names it is for; `*` or none for all.
    pub(super) server_names: Vec<String>,
    /// The protocols of the TLS connections it is for; none for all.
    pub(super) application_protocols: &'static [&'static str],
    /// How TLS ends here, if it does.
    pub(super) tls: Option<Termination>,
    /// What is done with the bytes.
    pub(super) filters: Filters,
}

/// A gateway proxy whose chains are made.
pub(super) struct Site<'a> {
    pub(super) env: &'a Env<'a>,
    merged: &'a MergedGateway,
    /// The server names of TLS routes and the address they are on, by port: no two chains may have the same.
    sni_hosts: RefCell<BTreeMap<u32, BTreeMap<String, String>>>,
    terminations: Terminations,
}

impl<'a> Site<'a> {
    pub(super) fn new(env: &'a Env<'a>, merged: &'a MergedGateway) -> Self {
        Self { env, merged, sni_hosts: RefCell::default(), terminations: Terminations::default() }
    }

    /// The chains that a port's servers add to the listener of this name.
    pub(super) fn chains(&self, servers: &PortServers, transport: Transport, listener: &str) -> Vec<Chain> {
        let number = servers.port.number;
        if transport == Transport::Quic {
            let http3 = self.merged.servers_at(&servers.http3);
            let https = |server| self.https(server, (transport, number), listener, Filters::default());
            return http3.map(https).collect();
        }
        let protocol = Protocol::parse(&servers.port.protocol);
        let mut extensions = Placed::network(self.env, Class::Gateway, number).all_on_connections();
        if protocol.is_http() {
            manager::plain(self.env, servers, protocol, listener).add_to(&mut extensions, self.env);
            return vec![Chain { filters: extensions, ..Default::default() }];
        }
        let of_server = |server: &BoundServer| {
            if server_kind::terminates_https(&server.server) {
                // Parity: of several servers only the first has extensions of connections.
                let before = std::mem::take(&mut extensions);
                vec![self.https(server, (transport, number), listener, before)]
            } else {
                self.network(server, number)
            }
        };
        self.merged.servers_at(&servers.servers).flat_map(of_server).collect()
    }

    /// The chain of an HTTPS server, with something before what handles requests.
    fn https(
        &self,
        server: &BoundServer,
        at: (Transport, u32),
        listener: &str,
        mut filters: Filters,
    ) -> Chain {
        manager::terminating(self.env, server, at, listener).add_to(&mut filters, self.env);
        Chain {
            server_names: server.sni_hosts.clone(),
            tls: self.terminations.find_or_make(self.env, server, at.0),
            filters,
            ..Default::default()
        }
    }

    /// The chains of a server whose connections are passed on as they are, once TLS has ended where it does.
    pub(super) fn network(&self, server: &BoundServer, number: u32) -> Vec<Chain> {
        if server.is_auto_passthrough() {
            return passthrough::chains(self.env, &server.sni_hosts);
        }
        if server_kind::is_passthrough(&server.server) {
            let mut known = self.sni_hosts.borrow_mut();
            return tcp::by_server_name(self.env, server, known.entry(number).or_default());
        }
        let filters = tcp::filters(self.env, server);
        if filters.is_empty() {
            return Vec::new();
        }
        vec![Chain {
            server_names: server.sni_hosts.clone(),
            tls: self.terminations.find_or_make(self.env, server, Transport::Tcp),
            filters,
            ..Default::default()
        }]
    }
}
