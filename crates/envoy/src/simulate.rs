//! The way a request takes through configuration: which listener, filter chain, virtual host, route and cluster Envoy
//! would choose for it.
//!
//! Matching follows Envoy's documented rules on the generated messages themselves, so what is answered here is true of
//! the bytes a proxy gets. What depends on chance or on the state of a proxy (weights, health, runtime) is not decided:
//! all clusters a request may go to are named.

mod access;
mod chain;
mod host;
mod listener;
mod route;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

pub use access::Verdict;
use canopus_proto::envoy::config::listener::v3::filter::ConfigType;
use canopus_proto::envoy::config::listener::v3::{FilterChain, Listener};
use canopus_proto::envoy::config::rbac::v3::Rbac;
use canopus_proto::envoy::config::route::v3::redirect_action::RedirectResponseCode;
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::virtual_host::TlsRequirementType;
use canopus_proto::envoy::config::route::v3::{RedirectAction, Route, RouteAction, RouteConfiguration};
use canopus_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType as HttpConfigType;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use canopus_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy;
use canopus_proto::google::protobuf::Struct;
use canopus_proto::{Message, Name};

/// What a proxy was given, as far as it decides where requests go.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The proxy's listeners.
    pub listeners: Vec<Listener>,
    /// The route tables they name, by name.
    pub routes: BTreeMap<String, RouteConfiguration>,
}

/// How a connection reaches the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// The client connects to the proxy itself, or the proxy's outbound traffic is captured.
    #[default]
    None,
    /// The proxy's inbound traffic is captured.
    Inbound,
}

/// What is spoken inside the connection, and inside its TLS if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
    /// Any other TCP protocol.
    Tcp,
}

/// The client's side of a TLS handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The server name it asks for.
    pub sni: String,
    /// The application protocol it offers.
    pub alpn: String,
    /// The secret whose certificate a server must have for the client to present its own; `None` if it has none.
    /// Certificates of the mesh are called `default`.
    pub mutual_with: Option<String>,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The address the client wants to reach.
    pub address: IpAddr,
    /// The port the client wants to reach.
    pub port: u32,
    /// The address it comes from, if that is known.
    pub source: Option<IpAddr>,
    /// The identity in the client's certificate, if it presents one: `spiffe://cluster.local/ns/shop/sa/cart`.
    pub principal: Option<String>,
    /// How it reaches the proxy.
    pub capture: Capture,
    /// What is spoken.
    pub protocol: Protocol,
    /// The TLS around it, if any.
    pub tls: Option<Tls>,
    /// The request's method.
    pub method: String,
    /// The request's host, with its port if the client names it.
    pub host: String,
    /// The request's path with its query.
    pub path: String,
    /// The request's other headers, by name in lower case.
    pub headers: BTreeMap<String, String>,
    /// What filters before the router know of the request, such as the claims of its token, by the filter's name.
    pub metadata: BTreeMap<String, Struct>,
}

impl Default for Call {
    /// `GET /` in clear text.
    fn default() -> Self {
        Self {
            address: Ipv4Addr::UNSPECIFIED.into(),
            port: 80,
            source: None,
            principal: None,
            capture: Capture::default(),
            protocol: Protocol::default(),
            tls: None,
            method: "GET".to_owned(),
            host: String::new(),
            path: "/".to_owned(),
            headers: BTreeMap::new(),
            metadata: BTreeMap::new(),
        }
    }
}

/// How far a request came, and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Journey {
    /// The listener that took the connection.
    pub listener: Option<String>,
    /// The filter chain of the listener.
    pub filter_chain: Option<String>,
    /// The route table, if the chain names one rather than carrying it.
    pub route_table: Option<String>,
    /// The virtual host of the table.
    pub virtual_host: Option<String>,
    /// The route of the virtual host.
    pub route: Option<String>,
    /// What filters that guard the chain say of the request, in their order.
    pub verdicts: Vec<Verdict>,
    /// The routes of the virtual host that were not taken, and why.
    pub others: Vec<OtherRoute>,
    /// The route itself, whose name need not be unique.
    pub found: Option<Box<Route>>,
    /// The end.
    pub end: Result<End, Failure>,
}

/// A route that a request did not take.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherRoute {
    /// The route.
    pub route: Route,
    /// The first thing it asks for and the request does not have; `None` if it would match too, and comes later.
    pub mismatch: Option<String>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The request goes to this cluster.
    Cluster(String),
    /// The request goes to one of these clusters, by weight.
    Weighted(Vec<(String, u32)>),
    /// The request goes to the cluster that this header names.
    ClusterHeader(String),
    /// The client is sent elsewhere.
    Redirect(Box<RedirectAction>),
    /// The proxy answers with this status.
    Response(u32),
    /// A fault that the route injects ends it with this status.
    Fault(u32),
    /// The connection ends in a filter that forwards nothing.
    Nothing,
}

/// Why a request went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No listener has the address.
    #[error("no listener takes the connection")]
    NoListener,
    /// The listener closes the connection.
    #[error("no filter chain matches the connection")]
    NoFilterChain,
    /// Envoy would not have accepted the listener.
    #[error("several filter chains match the connection")]
    AmbiguousFilterChains,
    /// The proxy expects a handshake, the client sends something else.
    #[error("clear text was sent where TLS is expected")]
    PlaintextToTls,
    /// The proxy and the client do not trust each other's certificates.
    #[error("client and proxy disagree about mutual TLS")]
    MutualTls,
    /// The proxy expects HTTP, the client sends something else.
    #[error("something other than HTTP was sent where HTTP is expected")]
    NotHttp,
    /// No virtual host has the request's host.
    #[error("no virtual host matches the request")]
    NoVirtualHost,
    /// The virtual host is for TLS alone and sends the client there.
    #[error("the virtual host requires TLS")]
    TlsRequired,
    /// No route of the virtual host matches.
    #[error("no route matches the request")]
    NoRoute,
    /// A policy denies it, or none allows it; the last verdict says which.
    #[error("access is denied")]
    Denied,
    /// A route that does nothing matches; Envoy would not have accepted it.
    #[error("the route has no action")]
    NoAction,
}

impl Config {
    /// Follows a request.
    pub fn follow(&self, call: &Call) -> Journey {
        let mut journey = Journey {
            listener: None,
            filter_chain: None,
            route_table: None,
            virtual_host: None,
            route: None,
            verdicts: Vec::new(),
            others: Vec::new(),
            found: None,
            end: Err(Failure::NoListener),
        };
        journey.end = self.walk(call, &mut journey);
        journey
    }

    fn walk(&self, call: &Call, journey: &mut Journey) -> Result<End, Failure> {
        let listener = listener::choose(&self.listeners, call).ok_or(Failure::NoListener)?;
        journey.listener = Some(listener.name.clone());
        let connection = listener::inspect(listener, call);
        let chain = chain::choose(listener, call, &connection)?;
        journey.filter_chain = Some(chain.name.clone());
        chain::handshake(chain, call)?;
        for rules in filters::<NetworkRbac>(chain).filter_map(|filter| filter.rules) {
            journey.pass(&rules, call)?;
        }
        if let Some(manager) = filters::<HttpConnectionManager>(chain).next() {
            if call.protocol == Protocol::Tcp || (call.tls.is_some() && chain.transport_socket.is_none()) {
                return Err(Failure::NotHttp);
            }
            return self.route(&manager, call, journey);
        }
        Ok(filters::<TcpProxy>(chain).next().map_or(End::Nothing, |proxy| tcp_end(&proxy)))
    }

    fn route(
        &self,
        manager: &HttpConnectionManager,
        call: &Call,
        journey: &mut Journey,
    ) -> Result<End, Failure> {
        let table = match &manager.route_specifier {
            Some(RouteSpecifier::RouteConfig(table)) => Some(table),
            Some(RouteSpecifier::Rds(rds)) => {
                journey.route_table = Some(rds.route_config_name.clone());
                self.routes.get(&rds.route_config_name)
            }
            _ => None,
        };
        let host = table.and_then(|table| host::choose(table, &call.host));
        journey.virtual_host = host.map(|host| host.name.clone());
        // A host for TLS alone has no routes for others: its answer comes before any of them.
        let wants_tls =
            host.is_some_and(|host| host.require_tls() == TlsRequirementType::All) && call.tls.is_none();
        let routes = host.map_or(&[][..], |host| &host.routes);
        let route = if wants_tls { None } else { journey.choose(routes, call) };
        // Filters come before the answer of the router, even if there is no route.
        for rules in http_filters::<HttpRbac>(manager).filter_map(|filter| filter.rules) {
            journey.pass(&rules, call)?;
        }
        if host.is_none() {
            return Err(Failure::NoVirtualHost);
        }
        if wants_tls {
            return Err(Failure::TlsRequired);
        }
        let route = route.ok_or(Failure::NoRoute)?;
        if let Some(status) = access::abort(route, call)
            && manager.http_filters.iter().any(|filter| filter.name == access::FAULT)
        {
            return Ok(End::Fault(status));
        }
        route_end(route)
    }
}

/// Where a route table alone sends a request: filters before the router are not asked.
pub(crate) fn follow_table(table: &RouteConfiguration, call: &Call) -> Result<End, Failure> {
    let host = host::choose(table, &call.host).ok_or(Failure::NoVirtualHost)?;
    if host.require_tls() == TlsRequirementType::All && call.tls.is_none() {
        return Err(Failure::TlsRequired);
    }
    let route = host.routes.iter().find(|route| route::mismatch(route, call).is_none());
    let route = route.ok_or(Failure::NoRoute)?;
    access::abort(route, call).map_or_else(|| route_end(route), |status| Ok(End::Fault(status)))
}

/// Whether a route takes a request.
pub(crate) fn route_takes(route: &Route, call: &Call) -> bool {
    route::mismatch(route, call).is_none()
}

/// The access rules of a chain, of connections and of requests.
pub(crate) fn rules_of(chain: &FilterChain) -> Vec<Rbac> {
    let managers = filters::<HttpConnectionManager>(chain);
    let of_requests: Vec<Rbac> = managers
        .flat_map(|manager| {
            http_filters::<HttpRbac>(&manager).filter_map(|filter| filter.rules).collect::<Vec<_>>()
        })
        .collect();
    filters::<NetworkRbac>(chain).filter_map(|filter| filter.rules).chain(of_requests).collect()
}

fn route_end(route: &Route) -> Result<End, Failure> {
    match route.action.as_ref().ok_or(Failure::NoAction)? {
        Action::Route(action) => Ok(http_end(action)),
        Action::Redirect(redirect) => Ok(End::Redirect(Box::new(redirect.clone()))),
        Action::DirectResponse(response) => Ok(End::Response(response.status)),
        Action::FilterAction(_) | Action::NonForwardingAction(_) => Ok(End::Nothing),
    }
}

impl Journey {
    /// Chooses a route and notes it, with those that were not taken.
    fn choose<'a>(&mut self, routes: &'a [Route], call: &Call) -> Option<&'a Route> {
        let mut found = None;
        for route in routes {
            let mismatch = route::mismatch(route, call);
            if found.is_none() && mismatch.is_none() {
                found = Some(route);
            } else if found.is_none() || mismatch.is_none() {
                self.others.push(OtherRoute { route: route.clone(), mismatch });
            }
        }
        self.route = found.map(|route| route.name.clone());
        self.found = found.map(|route| Box::new(route.clone()));
        found
    }

    /// Notes the verdict of a filter; an error if it denies.
    fn pass(&mut self, rules: &Rbac, call: &Call) -> Result<(), Failure> {
        let Some(verdict) = access::verdict(rules, call) else { return Ok(()) };
        let passes = verdict.passes;
        self.verdicts.push(verdict);
        if passes { Ok(()) } else { Err(Failure::Denied) }
    }

    /// The status that the proxy itself answers with; `None` if an upstream answers, or the connection is closed.
    pub fn status(&self) -> Option<u32> {
        Some(match &self.end {
            Ok(End::Response(status) | End::Fault(status)) => *status,
            Ok(End::Redirect(redirect)) => match redirect.response_code() {
                RedirectResponseCode::MovedPermanently => 301,
                RedirectResponseCode::Found => 302,
                RedirectResponseCode::SeeOther => 303,
                RedirectResponseCode::TemporaryRedirect => 307,
                RedirectResponseCode::PermanentRedirect => 308,
            },
            Err(Failure::TlsRequired) => 301,
            Err(Failure::NoVirtualHost | Failure::NoRoute) => 404,
            // Connections that are not HTTP are closed.
            Err(Failure::Denied) if self.speaks_http() => 403,
            _ => return None,
        })
    }

    fn speaks_http(&self) -> bool {
        self.virtual_host.is_some() || self.route_table.is_some()
    }

    /// The request as the proxy passes it on.
    pub fn forwarded(&self, call: &Call) -> Call {
        self.found.as_ref().map_or_else(|| call.clone(), |found| route::forwarded(found, call))
    }
}

/// The configurations of the network filters of this type.
fn filters<T: Message + Name + Default>(chain: &FilterChain) -> impl Iterator<Item = T> {
    chain.filters.iter().filter_map(|filter| match &filter.config_type {
        Some(ConfigType::TypedConfig(config)) => config.unpack::<T>().ok(),
        _ => None,
    })
}

/// The configurations of the filters of this type that see requests.
fn http_filters<T: Message + Name + Default>(manager: &HttpConnectionManager) -> impl Iterator<Item = T> {
    manager.http_filters.iter().filter_map(|filter| match &filter.config_type {
        Some(HttpConfigType::TypedConfig(config)) => config.unpack::<T>().ok(),
        _ => None,
    })
}

fn http_end(action: &RouteAction) -> End {
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(cluster)) => End::Cluster(cluster.clone()),
        Some(ClusterSpecifier::WeightedClusters(weighted)) => {
            let weight =
                |weight: Option<canopus_proto::google::protobuf::UInt32Value>| weight.map_or(0, |w| w.value);
            End::Weighted(weighted.clusters.iter().map(|to| (to.name.clone(), weight(to.weight))).collect())
        }
        Some(ClusterSpecifier::ClusterHeader(header)) => End::ClusterHeader(header.clone()),
        Some(
            ClusterSpecifier::ClusterSpecifierPlugin(_) | ClusterSpecifier::InlineClusterSpecifierPlugin(_),
        )
        | None => End::Nothing,
    }
}

fn tcp_end(proxy: &TcpProxy) -> End {
    match &proxy.cluster_specifier {
        Some(tcp_proxy::ClusterSpecifier::Cluster(cluster)) => End::Cluster(cluster.clone()),
        Some(tcp_proxy::ClusterSpecifier::WeightedClusters(weighted)) => {
            End::Weighted(weighted.clusters.iter().map(|to| (to.name.clone(), to.weight)).collect())
        }
        None => End::Nothing,
    }
}
