//! Outbound route tables of sidecars: one for each HTTP port, one for each service whose protocol is found out by looking.

mod groups;
mod hosts;

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::proxy::View;
use canopus_mesh::scope::{scope, terms};
use canopus_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

use super::{MAX_DIRECT_RESPONSE_BYTES, Table, catch_all, headers};

/// The table of the listener that is an HTTP proxy for everything.
const HTTP_PROXY: &str = "http_proxy";
const UNIX_PREFIX: &str = "unix://";

/// What a table's name says it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableName<'a> {
    /// The port of the listener; 0 if it has none or is for all ports.
    port: u32,
    /// The host, if the table is for one service alone.
    host: Option<&'a str>,
}

/// Reads `80`, `host:80`, `http_proxy` or `unix:///path`; other names are not this control plane's.
fn parse(name: &str) -> Option<TableName<'_>> {
    if name == HTTP_PROXY || name.starts_with(UNIX_PREFIX) {
        return Some(TableName { port: 0, host: None });
    }
    match name.split_once(':') {
        Some((host, port)) => Some(TableName { port: port.parse().ok()?, host: Some(host) }),
        None => Some(TableName { port: name.parse().ok()?, host: None }),
    }
}

/// A route table by its name; `None` if no listener could have asked for it.
pub(super) fn table(ctx: &Ctx<'_>, view: &View, name: &str) -> Option<Table> {
    let wanted = parse(name)?;
    let bind = if wanted.port == 0 { name } else { "" };
    let hosts = ctx.get::<VirtualHosts>(&(view.clone(), wanted.port, bind.into()));
    let (shared, virtual_hosts) = match wanted.host {
        Some(host) => (Arc::default(), of_service(&hosts, host, name)),
        None => (hosts, vec![last(ctx, view)]),
    };
    let own = RouteConfiguration {
        name: name.to_owned(),
        virtual_hosts,
        validate_clusters: Some(false.into()),
        max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE_BYTES.into()),
        ignore_port_in_host_matching: true,
        ..Default::default()
    };
    Some(Table { shared, own })
}

fn last(ctx: &Ctx<'_>, view: &View) -> VirtualHost {
    VirtualHost {
        include_request_attempt_count: headers::counts_attempts(ctx, view),
        ..catch_all::virtual_host(&terms(ctx, view).outbound_policy, headers::forwards_host(ctx, view))
    }
}

/// The virtual hosts of a port, without the one for everything else.
pub(crate) fn virtual_hosts(ctx: &Ctx<'_>, view: &View, port: u32) -> Arc<Vec<VirtualHost>> {
    ctx.get::<VirtualHosts>(&(view.clone(), port, "".into()))
}

/// The part of a port's table that is one service's; whatever host a request there names, that service is meant.
fn of_service(hosts: &[VirtualHost], host: &str, name: &str) -> Vec<VirtualHost> {
    let is_named = |found: &&VirtualHost| found.domains.iter().any(|domain| domain == name || domain == host);
    let mut found: Vec<_> = hosts.iter().filter(is_named).cloned().collect();
    if let [only] = &mut found[..] {
        only.domains = vec!["*".into()];
    }
    found
}

/// The virtual hosts of an egress listener, by name: those of one port, or of all for port 0.
struct VirtualHosts;

impl Query for VirtualHosts {
    const NAME: &'static str = "sidecar_virtual_hosts";
    /// The listener's port and, if it has none, its address.
    type Key = (View, u32, Box<str>);
    type Value = Vec<VirtualHost>;

    fn run(ctx: &Ctx<'_>, (view, port, bind): &Self::Key) -> Self::Value {
        let scope = scope(ctx, view);
        let Some(listener) = scope.listener_for(*port, bind) else { return Vec::new() };
        // A listener that is an HTTP proxy is for all ports.
        let port = if listener.is_http_proxy() { 0 } else { *port };
        let mut hosts = hosts::assemble(ctx, view, port, groups::build(ctx, view, listener, port));
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_say_port_and_host() {
        let named = |name| parse(name).map(|table| (table.port, table.host));
        assert_eq!(named("80"), Some((80, None)));
        assert_eq!(named("a.b:80"), Some((80, Some("a.b"))));
        assert_eq!(named("http_proxy"), Some((0, None)));
        assert_eq!(named("unix:///var/run/a.sock"), Some((0, None)));
        for foreign in ["", "inbound|80||", "http.8080", "a.b:http"] {
            assert_eq!(named(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn sniffed_service_answers_to_every_name_but_only_if_it_is_alone() {
        let host = |name: &str, domains: &[&str]| VirtualHost {
            name: name.into(),
            domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
            ..Default::default()
        };
        let hosts = [host("a", &["a.b", "a"]), host("c", &["c.d"]), host("e", &["c.d"])];
        assert_eq!(of_service(&hosts, "a.b", "a.b:80"), [host("a", &["*"])]);
        assert_eq!(of_service(&hosts, "c.d", "c.d:80"), hosts[1..]);
        assert_eq!(of_service(&hosts, "x", "x:80"), []);
    }
}
