//! Gateways: which Gateways a proxy runs, and their servers merged by port.

mod client_certificate;
mod merge;
mod reference;
mod select;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use canopus_api::istio::Gateway;
use canopus_api::{Kind, ObjectKey, annotations, gateway_protocol};
use canopus_base::labels::Labels;
use canopus_base::protocol::Protocol;
use canopus_base::spiffe::Identity;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::server_tls_settings::TlSmode as TlsMode;
use canopus_proto::istio::networking::v1alpha3::{Gateway as GatewaySpec, Server, ServerTlsSettings};
use jiff::Timestamp;

use crate::gateway_api;
use crate::ingress;
use crate::selector::{SelectorLabels, is_reduction_disabled, to_labels};
use crate::target::PortTarget;
use crate::world::{all_objects, settings};

use select::Selected;

pub use client_certificate::ClientCertificate;
pub use merge::claim as claim_hosts;

/// A Gateway, written by a user or derived from another kind of object.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConfig {
    /// The namespace of the Gateway.
    pub namespace: Box<str>,
    /// Name of the gateway.
    pub name: Box<str>,
    /// Servers and selector of the gateway.
    pub spec: GatewaySpec,
    /// Which proxies run it.
    pub binding: ProxyBinding,
    /// The service account of its proxies, if the control plane deploys them.
    pub service_account: Option<Box<str>>,
    /// The namespace of the object it is derived from; its own if a user wrote it.
    pub parent_namespace: Box<str>,
    /// Whether it is derived from a ListenerSet that its parent Gateway allows.
    pub is_listener_set: bool,
    /// The Gateway or ListenerSet of Gateway API that it is derived from.
    pub derived_from: Option<ObjectKey>,
    /// The SDS resources of other namespaces that ReferenceGrants let it use.
    pub granted: BTreeSet<String>,
}

/// How a Gateway is bound to proxies.
#[derive(Clone, Debug, PartialEq)]
pub enum ProxyBinding {
    /// To the proxies that its selector matches.
    Selector,
    /// To the proxies behind these services of its namespace.
    Services(BTreeSet<Box<str>>),
}

impl GatewayConfig {
    /// `namespace/name`, as VirtualServices refer to it.
    pub fn qualified_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn from_object(ctx: &Ctx<'_>, gateway: &Gateway) -> Self {
        let meta = &gateway.meta;
        let annotation = |key: &str| meta.annotation(key).filter(|value| !value.is_empty());
        let services = meta.annotation(annotations::INTERNAL_GATEWAY_SERVICE.name);
        let parents = annotation(annotations::INTERNAL_PARENTS.name);
        let parent_namespace = annotation(annotations::INTERNAL_PARENT_NAMESPACE.name);
        let is_listener_set = parents.is_some_and(|parents| parents.starts_with("ListenerSet/"));
        let kind = if is_listener_set { Kind::ListenerSet } else { Kind::KubernetesGateway };
        let foreign = gateway.spec.servers.iter().filter_map(|server| server.tls.as_ref());
        let foreign = foreign.flat_map(|tls| reference::foreign(tls, &meta.namespace));
        Self {
            granted: foreign
                .filter(|name| gateway_api::is_credential_granted(ctx, kind, &meta.namespace, name))
                .collect(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            spec: gateway.spec.clone(),
            binding: services.map_or(ProxyBinding::Selector, |hosts| {
                ProxyBinding::Services(hosts.split(',').map(Into::into).collect())
            }),
            service_account: annotation(annotations::INTERNAL_SERVICE_ACCOUNT_NAME.name).map(Into::into),
            parent_namespace: parent_namespace.unwrap_or(&meta.namespace).into(),
            is_listener_set,
            derived_from: annotation(annotations::INTERNAL_GATEWAY_SEMANTICS.name)
                .filter(|semantics| *semantics == "gateway")
                .and_then(|_| parents?.split('/').nth(1))
                .map(|name| ObjectKey::new(kind, &meta.namespace, name)),
        }
    }
}

/// Older Gateways go first, then by name and namespace.
fn age(gateway: &Gateway) -> (Option<Timestamp>, &str, &str) {
    (gateway.meta.creation_timestamp, &gateway.meta.name, &gateway.meta.namespace)
}

/// Every Gateway, whether written or derived from another kind of object, oldest first.
pub struct Gateways;

impl Query for Gateways {
    const NAME: &'static str = "gateways";
    type Key = ();
    type Value = Vec<Arc<GatewayConfig>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let written = all_objects::<Gateway>(ctx).into_iter().map(|(_, gateway)| gateway);
        let derived = gateway_api::gateways(ctx).into_iter().chain(ingress::gateways(ctx));
        let mut gateways: Vec<_> = written.chain(derived).collect();
        gateways.sort_by(|a, b| age(a).cmp(&age(b)));
        gateways.iter().map(|gateway| Arc::new(GatewayConfig::from_object(ctx, gateway))).collect()
    }
}

/// A proxy as Gateways see it: the key of [`MergedGateways`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayRunner {
    /// The namespace of the proxy.
    pub namespace: Arc<str>,
    /// The labels that Gateways select the proxy by.
    pub labels: SelectorLabels,
    /// The service ports that lead to the proxy.
    pub port_targets: Vec<PortTarget>,
    /// The authenticated identity of the proxy. It decides which credentials the proxy may use.
    pub identity: Option<Identity>,
}

/// Keeps the labels that selectors of Gateways match.
pub(crate) fn selector_labels(ctx: &Ctx<'_>, labels: &Labels) -> SelectorLabels {
    if is_reduction_disabled(ctx) {
        return SelectorLabels::unreduced(labels);
    }
    SelectorLabels::matched_by(labels, &ctx.get::<GatewaySelectors>(&()))
}

/// The distinct selectors of all Gateways.
struct GatewaySelectors;

impl Query for GatewaySelectors {
    const NAME: &'static str = "gateway_selectors";
    type Key = ();
    type Value = BTreeSet<Labels>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let all = ctx.get::<Gateways>(&());
        let by_labels = all.iter().filter(|gateway| gateway.binding == ProxyBinding::Selector);
        by_labels.map(|gateway| to_labels(&gateway.spec.selector)).collect()
    }
}

/// A port that one or more servers share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerPort {
    /// The port number on the proxy.
    pub number: u32,
    /// The protocol as written.
    pub protocol: String,
    /// The address; empty for all.
    pub bind: String,
}

/// A server of a Gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundServer {
    /// `namespace/name` of the Gateway, as VirtualServices refer to it.
    pub gateway: Arc<str>,
    /// The server; its hosts are `host` or `namespace/host`.
    pub server: Server,
    /// The SNI hosts; empty without TLS settings.
    pub sni_hosts: Vec<String>,
    /// The name of the route configuration; empty if the server does not route requests.
    pub route_name: String,
    /// The Gateway or ListenerSet of Gateway API that the Gateway is derived from.
    pub derived_from: Option<ObjectKey>,
}

impl BoundServer {
    /// The port number as written in the Gateway, which clients use.
    pub fn port_number(&self) -> u32 {
        self.server.port.as_ref().map_or(0, |port| port.number)
    }

    /// The name of the port as written in the Gateway.
    pub fn port_name(&self) -> &str {
        self.server.port.as_ref().map_or("", |port| &port.name)
    }

    /// The protocol of the port.
    pub fn protocol(&self) -> Protocol {
        gateway_protocol::protocol(&self.server)
    }

    /// The TLS settings.
    pub fn tls(&self) -> Option<&ServerTlsSettings> {
        self.server.tls.as_ref()
    }

    /// Whether plain requests are redirected to `https`.
    pub fn redirects_to_https(&self) -> bool {
        self.tls().is_some_and(|tls| tls.https_redirect)
    }

    /// Whether connections are forwarded to the cluster that their SNI names.
    pub fn is_auto_passthrough(&self) -> bool {
        self.tls().is_some_and(|tls| tls.mode() == TlsMode::AutoPassthrough)
    }
}

/// The servers of one port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortServers {
    /// The port.
    pub port: ServerPort,
    /// The name of the route configuration that plain HTTP servers share.
    pub route_name: String,
    /// Indices into [`MergedGateway::servers`].
    pub servers: Vec<usize>,
    /// Indexes of the servers that also serve HTTP/3.
    pub http3: Vec<usize>,
}

/// The servers of all Gateways that a proxy runs, merged by port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedGateway {
    /// All servers, those of the oldest Gateway first.
    pub servers: Vec<BoundServer>,
    /// The servers by port, in the order in which ports first appear.
    pub ports: Vec<PortServers>,
    /// The servers of each route configuration.
    pub routes: BTreeMap<String, Vec<usize>>,
    /// The route configurations whose responses advertise HTTP/3.
    pub http3_routes: BTreeSet<String>,
    /// Whether some server forwards connections by SNI.
    pub auto_passthrough: bool,
    /// The hosts such connections may go to, each `host` or `namespace/host`.
    pub auto_passthrough_hosts: BTreeSet<String>,
    /// The SDS resources that the proxy may use, given its authenticated identity.
    pub certificates: BTreeSet<String>,
    /// The servers that were rejected.
    pub rejected: Vec<Rejection>,
}

impl MergedGateway {
    /// The servers of a port.
    pub fn servers_at<'a>(&'a self, indices: &'a [usize]) -> impl Iterator<Item = &'a BoundServer> {
        indices.iter().filter_map(|index| self.servers.get(*index))
    }

    /// The servers of a route configuration; `None` if no server uses it.
    pub fn servers_of_route(&self, name: &str) -> Option<Vec<&BoundServer>> {
        self.routes.get(name).map(|indices| self.servers_at(indices).collect())
    }

    /// The Gateways, each `namespace/name`.
    pub fn gateway_names(&self) -> BTreeSet<Arc<str>> {
        self.servers.iter().map(|server| server.gateway.clone()).collect()
    }
}

/// A rejected server.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// `namespace/name` of the Gateway.
    pub gateway: Arc<str>,
    /// The position of the server in it.
    pub server: usize,
    /// Why.
    pub reason: RejectionReason,
}

/// Why a server is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RejectionReason {
    /// The server has no port.
    NoPort,
    /// Other servers of the port and address have the same hosts.
    DuplicateHosts(Vec<String>),
    /// An older server uses another protocol on the port.
    ProtocolConflict {
        /// The protocol of the older server.
        older: String,
    },
    /// An older server has the port, and connections cannot be told apart.
    PortTaken,
    /// An older HTTPS server of the same Gateway and port has the same port name.
    DuplicatePortName,
    /// The proxy is dedicated to Gateways of another namespace.
    Foreign,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gateway {} server {}: {}", self.gateway, self.server, self.reason)
    }
}

impl fmt::Display for RejectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPort => f.write_str("it has no port"),
            Self::DuplicateHosts(hosts) => {
                write!(f, "another server of the port has the hosts {}", hosts.join(", "))
            }
            Self::ProtocolConflict { older } => write!(f, "an older server speaks {older} on the port"),
            Self::PortTaken => f.write_str("an older server has the port"),
            Self::DuplicatePortName => f.write_str("another HTTPS server of the port has the same port name"),
            Self::Foreign => f.write_str("the proxy is managed for Gateways of another namespace"),
        }
    }
}

/// The merged Gateways of a proxy; empty for sidecars.
pub struct MergedGateways;

impl Query for MergedGateways {
    const NAME: &'static str = "merged_gateway";
    type Key = GatewayRunner;
    type Value = MergedGateway;

    fn run(ctx: &Ctx<'_>, runner: &GatewayRunner) -> MergedGateway {
        let settings = settings(ctx);
        let (selected, mut rejected) = select::for_runner(ctx, runner);
        let mut merged = merge::merge(&selected, runner.identity.as_ref(), &settings.flags);
        rejected.append(&mut merged.rejected);
        merged.rejected = rejected;
        merged
    }
}

/// The servers that are rejected on a proxy that runs a Gateway and all others with the same selector.
pub(crate) fn rejected_among(ctx: &Ctx<'_>, gateway: &GatewayConfig) -> Vec<Rejection> {
    let all = ctx.get::<Gateways>(&());
    let on_same_proxies = all.iter().filter(|other| {
        other.binding == ProxyBinding::Selector && other.spec.selector == gateway.spec.selector
    });
    let selected: Vec<_> = on_same_proxies.map(|other| Selected::by_selector(other.clone())).collect();
    merge::merge(&selected, None, &settings(ctx).flags).rejected
}
