//! Outbound route tables of sidecars: one for each HTTP port, one for each service whose protocol is found out by looking.

mod groups;
mod hosts;

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_base::FastMap;
use canopus_engine::{Ctx, Query};
use canopus_mesh::scope::{Scope, scope, scope_settings};
use canopus_mesh::world::{MeshSettings, settings};
use canopus_proto::envoy::config::route::v3::VirtualHost;

use super::{Host, Table, catch_all};
use crate::audience::{RouteAudience, Shared};
use crate::route::upstream_headers;
use groups::{Candidates, Groups};

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

/// Whether a listener could have asked for a table of this name.
pub(super) fn has_table(name: &str) -> bool {
    parse(name).is_some()
}

/// A route table by its name; `None` if no listener could have asked for it.
pub(super) fn table(ctx: &Ctx<'_>, audience: &Shared<RouteAudience>, name: &str) -> Option<Table> {
    let wanted = parse(name)?;
    let bind = if wanted.port == 0 { name } else { "" };
    let key = (audience.clone(), wanted.port, bind.into());
    Some(match wanted.host {
        Some(host) => {
            let (hosts, owners) = (ctx.get::<VirtualHosts>(&key), ctx.get::<Owners>(&key));
            Table::usual(name, Arc::default(), service_hosts(&hosts.all, &owners, host, name))
        }
        None => Table::usual(name, ctx.get::<VirtualHosts>(&key).all.clone(), vec![last(ctx, audience)]),
    })
}

fn last(ctx: &Ctx<'_>, audience: &Shared<RouteAudience>) -> Host {
    let host = VirtualHost {
        include_request_attempt_count: upstream_headers::counts_attempts(&audience.config),
        ..catch_all::virtual_host(
            &scope_settings(ctx, &audience.caller.scope).outbound_policy,
            upstream_headers::forwards_host(&audience.config),
        )
    };
    host.into()
}

/// The virtual hosts of a port, without the one for everything else.
pub(crate) fn virtual_hosts(ctx: &Ctx<'_>, audience: &Shared<RouteAudience>, port: u32) -> Arc<Vec<Host>> {
    ctx.get::<VirtualHosts>(&(audience.clone(), port, "".into())).all.clone()
}

/// The virtual hosts of a table's listener that lack a domain, or are not there at all, because another has it.
pub(crate) fn duplicates(ctx: &Ctx<'_>, audience: &Shared<RouteAudience>, name: &str) -> BTreeSet<String> {
    let Some(wanted) = parse(name) else { return BTreeSet::new() };
    let bind = if wanted.port == 0 { name } else { "" };
    ctx.get::<VirtualHosts>(&(audience.clone(), wanted.port, bind.into())).duplicates.clone()
}

/// The part of a port's table that is one service's; whatever host a request there names, that service is meant.
fn service_hosts(hosts: &[Host], owners: &FastMap<Arc<str>, usize>, host: &str, name: &str) -> Vec<Host> {
    let positions: BTreeSet<_> = [host, name].into_iter().filter_map(|domain| owners.get(domain)).collect();
    let mut found: Vec<_> = positions.into_iter().filter_map(|at| hosts.get(*at)).cloned().collect();
    if let [only] = &mut found[..] {
        only.domains = vec!["*".into()];
    }
    found
}

/// An audience, the port of one of its egress listeners and, if that has none, the listener's address.
type Listener = (Shared<RouteAudience>, u32, Box<str>);

/// Where a table is used.
struct SidecarTables<'a> {
    ctx: &'a Ctx<'a>,
    audience: &'a RouteAudience,
    scope: &'a Scope,
    settings: &'a MeshSettings,
}

/// The virtual hosts of an egress listener, by name: those of one port, or of all for port 0.
struct VirtualHosts;

#[derive(Default, PartialEq)]
struct Hosts {
    all: Arc<Vec<Host>>,
    /// Names of those that lack a domain, or are not there at all, because another has it.
    duplicates: BTreeSet<String>,
}

impl Query for VirtualHosts {
    const NAME: &'static str = "sidecar_virtual_hosts";
    type Key = Listener;
    type Value = Hosts;

    fn run(ctx: &Ctx<'_>, (audience, port, bind): &Self::Key) -> Hosts {
        let scope = scope(ctx, &audience.caller.scope);
        let Some(listener) = scope.listener_for(*port, bind) else { return Hosts::default() };
        // A listener that is an HTTP proxy is for all ports.
        let port = if listener.is_http_proxy() { 0 } else { *port };
        let place = SidecarTables { ctx, audience, scope: &scope, settings: &settings(ctx) };
        let candidates = Candidates::new(&listener.services, port);
        let groups = Groups::new(&place, listener, port, &candidates);
        let (mut hosts, duplicates) = hosts::assemble(&place, port, &groups);
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        Hosts { all: Arc::new(hosts), duplicates }
    }
}

/// A host in lower case; nearly all are.
fn lower_case(host: &Arc<str>) -> Arc<str> {
    if host.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return host.clone();
    }
    host.to_lowercase().into()
}

/// The position of the virtual host that has a domain; no two have the same.
struct Owners;

impl Query for Owners {
    const NAME: &'static str = "sidecar_domain_owners";
    type Key = Listener;
    type Value = FastMap<Arc<str>, usize>;

    fn run(ctx: &Ctx<'_>, key: &Self::Key) -> Self::Value {
        owners(&ctx.get::<VirtualHosts>(key).all)
    }
}

fn owners(hosts: &[Host]) -> FastMap<Arc<str>, usize> {
    let domains = hosts.iter().map(|host| &host.domains).enumerate();
    domains.flat_map(|(at, domains)| domains.iter().map(move |domain| (domain.clone(), at))).collect()
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
        let host = |name: &str, domains: &[&str]| {
            Host::from(VirtualHost {
                name: name.into(),
                domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
                ..Default::default()
            })
        };
        let hosts = [host("a", &["a.b", "a"]), host("c", &["c.d"]), host("e", &["c.d:80"])];
        let of = |name: &str, table: &str| service_hosts(&hosts, &owners(&hosts), name, table);
        assert_eq!(of("a.b", "a.b:80"), [host("a", &["*"])]);
        assert_eq!(of("c.d", "c.d:80"), hosts[1..]);
        assert_eq!(of("x", "x:80"), []);
    }
}
