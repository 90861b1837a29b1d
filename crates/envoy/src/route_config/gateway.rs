//! Route tables of gateways: where the hosts of servers and of the VirtualServices bound to them meet.

mod collapse;
mod misdirected;

use std::borrow::Cow;
use std::sync::Arc;

use canopus_base::{FastMap, host};
use canopus_engine::Ctx;
use canopus_mesh::gateway::{BoundServer, MergedGateways};
use canopus_mesh::scope::{self, ScopeKey};
use canopus_mesh::service::{self, Service, ServicesByHost};
use canopus_mesh::virtual_service::{self, VirtualService};
use canopus_mesh::world::{MeshSettings, settings};
use canopus_proto::Any;
use canopus_proto::envoy::config::route::v3::VirtualHost;
use canopus_runtime::flags::PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION;

use super::{Host, Table, Traits};
use crate::audience::RouteAudience;
use crate::names;
use crate::route::{self, Known, RouteList, Site, session, upstream_headers};

/// Whether a server has a table of this name.
pub(crate) fn has_table(ctx: &Ctx<'_>, audience: &RouteAudience, name: &str) -> bool {
    ctx.get::<MergedGateways>(&audience.gateway).servers_of_route(name).is_some()
}

/// A route table by its name; `None` if no server has it, as when a listener that is gone still drains.
pub(crate) fn table(ctx: &Ctx<'_>, audience: &RouteAudience, name: &str) -> Option<Table> {
    let merged = ctx.get::<MergedGateways>(&audience.gateway);
    let servers = merged.servers_of_route(name)?;
    let bound = |server: &&BoundServer| {
        virtual_service::for_gateway(ctx, &audience.caller.namespace, &server.gateway)
    };
    let bound: Vec<_> = servers.iter().map(bound).collect();
    let place = GatewayTables {
        ctx,
        audience,
        scope: &audience.caller.scope,
        settings: &settings(ctx),
        http3: merged.http3_routes.contains(name),
    };
    let mut hosts = Hosts::new(&place);
    for (server, bound) in servers.iter().zip(&bound) {
        hosts.add(server, bound);
    }
    let first_port = servers.first().map_or(0, |server| server.port_number());
    let mut hosts = hosts.into_virtual_hosts(first_port);
    misdirected::add(&mut hosts, &merged, &servers);
    Some(Table::usual(name, Arc::default(), hosts))
}

/// Where a table is used.
struct GatewayTables<'a> {
    ctx: &'a Ctx<'a>,
    audience: &'a RouteAudience,
    scope: &'a ScopeKey,
    settings: &'a MeshSettings,
    http3: bool,
}

impl GatewayTables<'_> {
    /// The service a destination means: of the VirtualService's own namespace, if the proxy may see it, else the proxy's
    /// choice.
    fn destination(&self, bound: &VirtualService, host: &Arc<str>) -> Option<Arc<Service>> {
        let own = self.ctx.get::<ServicesByHost>(host).get(bound.namespace()).cloned();
        own.filter(|own| service::is_visible(self.ctx, own, &self.audience.caller.namespace))
            .or_else(|| scope::service_in(self.ctx, self.scope, host))
    }

    /// The routes that a VirtualService has at a server's Gateway.
    fn routes(&self, server: &BoundServer, bound: &VirtualService) -> RouteList {
        let site = Site {
            ctx: self.ctx,
            audience: self.audience,
            settings: self.settings,
            gateway: &server.gateway,
            port: server.port_number(),
            tls: server.tls().is_some(),
            http3: self.http3,
            service: &|host| self.destination(bound, host).map(Known::whole),
            scoped: &|host| scope::service_in(self.ctx, self.scope, host),
            fronted: None,
        };
        route::http_routes(&site, bound)
    }

    /// The session of a host that is itself a destination of its routes.
    fn session(&self, bound: &VirtualService, name: &str) -> Option<Any> {
        if !session::are_kept(self.settings) {
            return None;
        }
        let is_destination = virtual_service::destinations(&bound.spec, None).contains_key(name);
        let service = is_destination.then(|| self.destination(bound, &name.into())).flatten()?;
        session::per_route(self.settings, &service)
    }
}

/// A virtual host in the making.
struct Draft<'a> {
    /// The port of the server that was the first to have it.
    port: u32,
    /// The names it answers to, the one it is called by first.
    domains: Vec<Cow<'a, str>>,
    /// Where its routes come from, as positions in [`Hosts::sources`].
    sources: Vec<usize>,
    /// Whether plain requests are redirected.
    requires_tls: bool,
    /// The session filter's configuration.
    session: Option<Any>,
}

/// The virtual hosts of a table.
struct Hosts<'a> {
    place: &'a GatewayTables<'a>,
    drafts: Vec<Draft<'a>>,
    /// Positions in `drafts`, by name in lower case.
    by_name: FastMap<Cow<'a, str>, usize>,
    /// The routes that one VirtualService has at one Gateway.
    sources: Vec<RouteList>,
    /// The position in `sources`, by Gateway and by name and namespace of the VirtualService.
    known: FastMap<(&'a str, &'a str, &'a str), usize>,
}

impl<'a> Hosts<'a> {
    fn new(place: &'a GatewayTables<'a>) -> Self {
        Self {
            place,
            drafts: Vec::new(),
            by_name: FastMap::default(),
            sources: Vec::new(),
            known: FastMap::default(),
        }
    }

    fn add(&mut self, server: &'a BoundServer, bound: &'a [Arc<VirtualService>]) {
        for bound in bound {
            self.add_bound(server, bound);
        }
        if server.redirects_to_https() {
            // Hosts without routes are redirected too. Parity: hosts of a namespace keep its name.
            for host in &server.server.hosts {
                self.draft(server, lower_case(host)).requires_tls = true;
            }
        }
    }

    fn add_bound(&mut self, server: &'a BoundServer, bound: &'a VirtualService) {
        let shared = shared_hosts(&server.server.hosts, bound);
        if shared.is_empty() {
            return;
        }
        let Some(source) = self.source(server, bound) else { return };
        for name in shared.into_iter().map(lower_case) {
            let is_new = !self.by_name.contains_key(&name);
            let session = is_new.then(|| self.place.session(bound, &name)).flatten();
            let draft = self.draft(server, name);
            draft.session = session.or(draft.session.take());
            draft.sources.push(source);
            draft.requires_tls |= server.redirects_to_https();
        }
    }

    fn draft(&mut self, server: &BoundServer, name: Cow<'a, str>) -> &mut Draft<'a> {
        let next = self.drafts.len();
        let position = *self.by_name.entry(name.clone()).or_insert(next);
        if position == next {
            self.drafts.push(Draft {
                port: server.port_number(),
                domains: vec![name],
                sources: Vec::new(),
                requires_tls: false,
                session: None,
            });
        }
        &mut self.drafts[position]
    }

    /// The routes of a VirtualService at a server's Gateway; `None` if it has none there.
    fn source(&mut self, server: &'a BoundServer, bound: &'a VirtualService) -> Option<usize> {
        let key = (&*server.gateway, bound.name(), bound.namespace());
        // Parity: all servers of a Gateway use the routes made for the first of them.
        if let Some(source) = self.known.get(&key) {
            return Some(*source);
        }
        let routes = self.place.routes(server, bound);
        if routes.is_empty() {
            return None;
        }
        self.sources.push(routes);
        self.known.insert(key, self.sources.len() - 1);
        Some(self.sources.len() - 1)
    }

    fn into_virtual_hosts(self, first_port: u32) -> Vec<Host> {
        if self.drafts.is_empty() {
            return vec![nowhere(first_port)];
        }
        let collapses = self.place.settings.flags.get(PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION);
        let drafts = if collapses { collapse::collapse(self.drafts) } else { self.drafts };
        let counts_attempts = upstream_headers::counts_attempts(&self.place.audience.config);
        let build = |draft: Draft<'_>| draft.build(&self.sources, counts_attempts);
        let mut hosts: Vec<_> = drafts.into_iter().map(build).collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        hosts
    }
}

impl Draft<'_> {
    /// What it is called by.
    fn name(&self) -> &str {
        self.domains.first().map_or("", |name| name)
    }

    fn build(self, sources: &[RouteList], counts_attempts: bool) -> Host {
        // A route that takes everything would hide those that another VirtualService adds.
        let split = || self.sources.iter().map(|source| sources[*source].split());
        let routes = split().map(|(specific, _)| specific).chain(split().map(|(_, rest)| rest));
        let name = names::domain(self.name(), self.port);
        let traits = Traits { requires_tls: self.requires_tls, counts_attempts, session: self.session };
        let domains = self.domains.iter().map(|domain| Arc::from(&**domain)).collect();
        Host::with_route_parts(name.into(), domains, routes, &traits)
    }
}

/// The hosts that a server offers and a VirtualService wants, each once; of two that overlap the narrower.
fn shared_hosts<'a>(offered: &'a [String], bound: &'a VirtualService) -> Vec<&'a str> {
    let mut shared = Vec::new();
    for offered in offered.iter().filter_map(|host| host_in_namespace(host, bound.namespace())) {
        for wanted in &bound.spec.hosts {
            let narrower = if host::subset_of(offered, wanted) {
                offered
            } else if host::subset_of(wanted, offered) {
                wanted
            } else {
                continue;
            };
            if !shared.contains(&narrower) {
                shared.push(narrower);
            }
        }
    }
    shared
}

/// The host of `namespace/host`, `*/host` or `host`; `None` if it is another namespace's.
fn host_in_namespace<'a>(host: &'a str, namespace: &str) -> Option<&'a str> {
    match host.split_once('/') {
        Some((qualifier, _)) if qualifier != namespace && qualifier != "*" => None,
        Some((_, name)) => Some(name),
        None => Some(host),
    }
}

/// A host in lower case; nearly all are.
fn lower_case(host: &str) -> Cow<'_, str> {
    if host.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return host.into();
    }
    host.to_lowercase().into()
}

/// The name of the host of a table that leads nowhere.
const NOWHERE: &str = "blackhole";

/// The only host of a table that leads nowhere: every request is answered with 404.
fn nowhere(port: u32) -> Host {
    let (name, domains) = (names::domain(NOWHERE, port), vec!["*".into()]);
    VirtualHost { name, domains, ..Default::default() }.into()
}
