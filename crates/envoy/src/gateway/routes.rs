//! Route tables of gateways: where the hosts of servers and of the VirtualServices bound to them meet.

mod collapse;

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::host;
use canopus_engine::Ctx;
use canopus_mesh::gateway::{BoundServer, Merged};
use canopus_mesh::proxy::View;
use canopus_mesh::scope;
use canopus_mesh::service::{self, Service, ServiceKey};
use canopus_mesh::virtual_service::{self, VirtualService};
use canopus_mesh::world::settings;
use canopus_proto::Any;
use canopus_proto::envoy::config::route::v3::VirtualHost;
use canopus_proto::envoy::config::route::v3::virtual_host::TlsRequirementType;
use canopus_runtime::flags::PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION;

use crate::names;
use crate::route::{self, Known, RouteList, Site, session};
use crate::route_config::{self, Host, Table, headers};

/// A route table by its name; `None` if no server has it, as when a listener that is gone still drains.
pub(crate) fn table(ctx: &Ctx<'_>, view: &View, name: &str) -> Option<Table> {
    let merged = ctx.get::<Merged>(view);
    let servers = merged.servers_of_route(name)?;
    let mut hosts = Hosts::new(ctx, view, merged.http3_routes.contains(name));
    for server in &servers {
        hosts.add(server);
    }
    let first_port = servers.first().map_or(0, |server| server.port_number());
    Some(Table::new(name, hosts.into_virtual_hosts(first_port), route_config::settings()))
}

/// A virtual host in the making.
struct Draft {
    /// The port of the server that was the first to have it.
    port: u32,
    /// The names it answers to, the one it is called by first.
    domains: Vec<String>,
    /// Where its routes come from, as positions in [`Hosts::sources`].
    sources: Vec<usize>,
    /// Whether plain requests are redirected.
    requires_tls: bool,
    /// What the session filter is told.
    session: Option<Any>,
}

/// The virtual hosts of a table.
struct Hosts<'a> {
    ctx: &'a Ctx<'a>,
    view: &'a View,
    http3: bool,
    /// By name, in lower case.
    drafts: BTreeMap<String, Draft>,
    /// The routes that one VirtualService has at one Gateway.
    sources: Vec<RouteList>,
    /// The position in `sources`, by Gateway and VirtualService.
    known: BTreeMap<(Arc<str>, String), usize>,
}

impl<'a> Hosts<'a> {
    fn new(ctx: &'a Ctx<'a>, view: &'a View, http3: bool) -> Self {
        Self { ctx, view, http3, drafts: BTreeMap::new(), sources: Vec::new(), known: BTreeMap::new() }
    }

    fn add(&mut self, server: &BoundServer) {
        for bound in virtual_service::for_gateway(self.ctx, &self.view.namespace, &server.gateway) {
            self.add_bound(server, &bound);
        }
        if server.redirects_to_https() {
            // Hosts without routes are redirected too. Parity: hosts of a namespace keep its name.
            for host in &server.server.hosts {
                self.draft(server, host.to_lowercase()).requires_tls = true;
            }
        }
    }

    fn add_bound(&mut self, server: &BoundServer, bound: &VirtualService) {
        let offered = host::for_namespace(&server.server.hosts, bound.namespace());
        let wanted: Vec<_> = bound.spec.hosts.iter().map(|name| host::Name::new(name.as_str())).collect();
        let shared = host::intersection(&offered, &wanted);
        if shared.is_empty() {
            return;
        }
        let Some(source) = self.source(server, bound) else { return };
        for name in shared {
            let name = name.as_str().to_lowercase();
            let session = (!self.drafts.contains_key(&name)).then(|| self.session(bound, &name)).flatten();
            let draft = self.draft(server, name);
            draft.session = session.or(draft.session.take());
            draft.sources.push(source);
            draft.requires_tls |= server.redirects_to_https();
        }
    }

    fn draft(&mut self, server: &BoundServer, name: String) -> &mut Draft {
        self.drafts.entry(name.clone()).or_insert_with(|| Draft {
            port: server.port_number(),
            domains: vec![name],
            sources: Vec::new(),
            requires_tls: false,
            session: None,
        })
    }

    /// The routes of a VirtualService at a server's Gateway; `None` if it has none there.
    fn source(&mut self, server: &BoundServer, bound: &VirtualService) -> Option<usize> {
        let key = (server.gateway.clone(), format!("{}/{}", bound.name(), bound.namespace()));
        // Parity: all servers of a Gateway use the routes made for the first of them.
        if let Some(source) = self.known.get(&key) {
            return Some(*source);
        }
        let service = |host: &str| destination(self.ctx, self.view, bound, host).map(Known::whole);
        let site = Site {
            ctx: self.ctx,
            view: self.view,
            gateway: &server.gateway,
            port: server.port_number(),
            tls: server.tls().is_some(),
            http3: self.http3,
            service: &service,
            fronted: None,
        };
        let routes = route::http_routes(&site, bound);
        if routes.is_empty() {
            return None;
        }
        self.sources.push(routes);
        self.known.insert(key, self.sources.len() - 1);
        Some(self.sources.len() - 1)
    }

    /// The session of a host that is itself a destination of its routes.
    fn session(&self, bound: &VirtualService, name: &str) -> Option<Any> {
        if !session::are_kept(self.ctx) {
            return None;
        }
        let is_destination = virtual_service::destinations(&bound.spec, None).contains_key(name);
        let service = is_destination.then(|| destination(self.ctx, self.view, bound, name)).flatten()?;
        session::per_route(self.ctx, &service)
    }

    fn into_virtual_hosts(self, first_port: u32) -> Vec<Host> {
        if self.drafts.is_empty() {
            return vec![nowhere(first_port)];
        }
        let collapses = settings(self.ctx).flags.get(PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION);
        let drafts =
            if collapses { collapse::collapse(self.drafts) } else { self.drafts.into_values().collect() };
        let counts_attempts = headers::counts_attempts(self.ctx, self.view);
        let build = |draft: Draft| draft.build(&self.sources, counts_attempts);
        let mut hosts: Vec<_> = drafts.into_iter().map(build).collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        hosts
    }
}

impl Draft {
    fn build(self, sources: &[RouteList], counts_attempts: bool) -> Host {
        // A route that takes everything would hide those that another VirtualService adds.
        let split: Vec<_> = self.sources.iter().map(|source| sources[*source].split()).collect();
        let specific = split.iter().map(|(specific, _)| *specific);
        let routes = specific.chain(split.iter().map(|(_, rest)| *rest));
        let requirement = if self.requires_tls { TlsRequirementType::All } else { TlsRequirementType::None };
        let session = self.session.map(|config| (session::FILTER.to_owned(), config));
        let other = VirtualHost {
            require_tls: requirement as i32,
            typed_per_filter_config: session.into_iter().collect(),
            include_request_attempt_count: counts_attempts,
            ..Default::default()
        };
        let name = names::domain(self.domains.first().map_or("", String::as_str), self.port);
        Host::of_parts(name, self.domains, routes, &other)
    }
}

/// The only host of a table that leads nowhere: every request is answered with 404.
fn nowhere(port: u32) -> Host {
    let (name, domains) = (names::domain("blackhole", port), vec!["*".into()]);
    VirtualHost { name, domains, ..Default::default() }.into()
}

/// The service a destination means: of the VirtualService's own namespace, if the proxy may see it, else the proxy's choice.
fn destination(ctx: &Ctx<'_>, view: &View, bound: &VirtualService, host: &str) -> Option<Arc<Service>> {
    let own = service::service(ctx, &ServiceKey::new(host, bound.namespace()));
    own.filter(|own| service::is_visible(ctx, own, &view.namespace))
        .or_else(|| scope::scoped_service(ctx, view, host))
}
