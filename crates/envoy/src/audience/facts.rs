//! The facts about a proxy, each reduced to what can matter.

use std::sync::Arc;

use canopus_api::labels;
use canopus_api::node::{NodeKind, NodeMetadata, Version};
use canopus_engine::Ctx;
use canopus_mesh::attachment::PolicyTarget;
use canopus_mesh::audience::View;
use canopus_mesh::audience::{
    Addressing, Caller, GatewayRunner, Position, Role, SelectingKind, SelectorLabels, WaypointRunner,
    policy_target,
};
use canopus_mesh::credential::SecretReader;
use canopus_mesh::gateway::ClientCertificate;
use canopus_mesh::gateway_api::LeadsToPool;
use canopus_mesh::peer_authentication;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::scope;
use canopus_mesh::world::{MeshSettings, settings};
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::istio::networking::v1alpha3::OutboundTrafficPolicy;

use super::patches::{self, PatchSet, PatchSets};
use super::reporting::{self, Reporter, Spans};
use super::settings::{Build, Certificates, Config, Gates, HttpTraits, Resolver, Sockets, Source, Tunnels};

/// The annotation that makes waypoints name the client to servers.
const CLIENT_IDENTITY: &str = "ambient.istio.io/xfcc-include-client-identity";

/// Declares the facts with what documentation says of each.
macro_rules! facts {
    ($($(#[doc = $doc:literal])+ $field:ident: $type:ty,)*) => {
        /// All facts about a proxy that some family of resources may depend on.
        #[derive(Clone, Debug)]
        pub struct Facts {
            $($(#[doc = $doc])+ pub(crate) $field: $type,)*
        }

        /// The names of the facts, and what each says.
        pub const FACTS: &[(&str, &str)] = &[$((stringify!($field), concat!($($doc),+))),*];
    };
}

facts! {
    /// What the proxy is there for: sidecar, gateway, waypoint, gateway between networks.
    role: Role,
    /// Whether it is a gRPC library rather than an Envoy.
    proxyless: bool,
    /// Namespace, Sidecar scope, and the labels by which DestinationRules of its namespace select it.
    caller: Caller,
    /// IP families, cluster, and whether allocated addresses mean something to it.
    addressing: Addressing,
    /// The network it is in.
    network: Arc<str>,
    /// The networks whose endpoints it wants.
    requested_networks: Arc<[String]>,
    /// Whether it may open and takes HBONE tunnels.
    tunnels: Tunnels,
    /// Node, locality and topology labels, as far as some service, DestinationRule or the mesh looks at them.
    position: Position,
    /// The extensions it was built with, if it said so.
    build: Build,
    /// What depends on its version.
    gates: Gates,
    /// The DNS domain its short names are in.
    domain: Arc<str>,
    /// Namespace and labels by which routes of VirtualServices match callers.
    source: Source,
    /// The labels by which Telemetry objects select it, and the Gateway that they may name.
    telemetry: PolicyTarget,
    /// The same for WasmPlugins and TrafficExtensions.
    plugins: PolicyTarget,
    /// The same for AuthorizationPolicies and RequestAuthentications.
    access: PolicyTarget,
    /// The labels by which PeerAuthentications select it.
    peers: SelectorLabels,
    /// What spans say of its workload, if requests are traced.
    spans: Spans,
    /// What metrics of a stock Envoy say of its workload.
    reporter: Option<Reporter>,
    /// How traffic reaches it and which ports are its own.
    sockets: Sockets,
    /// Timeouts and other traits of its HTTP handling.
    http: HttpTraits,
    /// Certificates in files, and sockets that serve them.
    certificates: Certificates,
    /// Whether its agent answers DNS, and where.
    resolver: Resolver,
    /// What is read of its ProxyConfig: headers, tracing, topology, connection settings, private keys.
    config: Config,
    /// What becomes of calls to hosts that it does not see.
    outbound_policy: OutboundTrafficPolicy,
    /// What decides which Gateways it runs.
    gateway: GatewayRunner,
    /// What decides which services it stands in front of.
    waypoint: Option<WaypointRunner>,
    /// What decides which secrets it may read: its proven identity.
    secrets: SecretReader,
    /// The EnvoyFilter patches of clusters that are for it.
    cluster_patches: PatchSet,
    /// The EnvoyFilter patches of listeners, and of routes inside them.
    listener_patches: PatchSet,
    /// The EnvoyFilter patches of route tables.
    route_patches: PatchSet,
    /// The EnvoyFilter patches of extension configurations.
    extension_patches: PatchSet,
}

impl Facts {
    /// Finds out about a proxy.
    pub fn new(ctx: &Ctx<'_>, proxy: &Proxy) -> Self {
        let view = &View::new(ctx, proxy);
        let settings = &*settings(ctx);
        let metadata = &proxy.metadata;
        let cluster: Arc<str> = metadata.cluster_id.as_str().into();
        let target = |kinds: &[SelectingKind]| policy_target(ctx, view, kinds);
        let gateway = view.gateway_runner(ctx);
        let config = Config::new(proxy_config(settings, metadata));
        let build = Build::new(proxy.extensions.clone());
        let PatchSets { clusters, listeners, routes, extensions } = patches::patch_sets(ctx, view);
        let caller = Caller::new(ctx, view);
        Self {
            role: view.role,
            proxyless: proxy.is_proxyless(),
            outbound_policy: scope::scope_settings(ctx, &caller.scope).outbound_policy.clone(),
            caller,
            addressing: view.addressing(&settings.flags),
            network: metadata.network.as_str().into(),
            requested_networks: metadata.requested_network_view.0.as_slice().into(),
            tunnels: Tunnels { may_open: !metadata.disable_hbone_send.0, takes: metadata.enable_hbone.0 },
            position: Position::new(ctx, view),
            gates: Gates::new(Version::parse(&metadata.istio_version)),
            domain: proxy.id.domain.as_str().into(),
            source: Source {
                namespace: metadata.namespace.as_str().into(),
                labels: SelectorLabels::for_route_sources(ctx, &view.labels),
            },
            telemetry: target(&[SelectingKind::Telemetry]),
            plugins: target(&[SelectingKind::Extension]),
            access: target(&[SelectingKind::AuthorizationPolicy, SelectingKind::RequestAuthentication]),
            peers: peer_authentication::selector_labels(ctx, &view.namespace, &view.labels),
            spans: reporting::spans(ctx, view, &config),
            reporter: build.is_known().then(|| Reporter::new(view)),
            sockets: Sockets::new(metadata),
            http: HttpTraits {
                idle_timeout: metadata.idle_timeout.as_str().into(),
                http10: metadata.http10 == "1",
                tells_client_identity: says_true(metadata, CLIENT_IDENTITY),
                asks_endpoint_pickers: asks_endpoint_pickers(ctx, view),
            },
            certificates: Certificates {
                for_backends: proxy
                    .is_gateway()
                    .then(|| ctx.get::<ClientCertificate>(&gateway).as_ref().clone())
                    .flatten(),
                ..Certificates::new(metadata)
            },
            resolver: Resolver(metadata.dns_capture.0.then(|| metadata.dns_proxy_addr.as_str().into())),
            waypoint: view.waypoint_runner(),
            secrets: SecretReader { cluster, gateway: gateway.clone() },
            gateway: if proxy.is_gateway() { gateway } else { GatewayRunner::default() },
            cluster_patches: clusters,
            listener_patches: listeners,
            route_patches: routes,
            extension_patches: extensions,
            config,
            build,
        }
    }
}

/// The configuration a proxy runs with: what it said, else the mesh's default.
fn proxy_config<'a>(settings: &'a MeshSettings, metadata: &'a NodeMetadata) -> &'a ProxyConfig {
    static NONE: std::sync::LazyLock<ProxyConfig> = std::sync::LazyLock::new(ProxyConfig::default);
    metadata.proxy_config.as_ref().or(settings.mesh.default_config.as_ref()).unwrap_or(&NONE)
}

/// Whether the proxy is of a Gateway with a route to an InferencePool.
fn asks_endpoint_pickers(ctx: &Ctx<'_>, view: &View) -> bool {
    let gateway = view.labels.get(labels::GATEWAY_NAME.name).filter(|_| view.role.kind == NodeKind::Router);
    gateway.is_some_and(|name| *ctx.get::<LeadsToPool>(&(view.namespace.clone(), name.into())))
}

fn says_true(metadata: &NodeMetadata, annotation: &str) -> bool {
    metadata.annotations.get(annotation).is_some_and(|said| said.eq_ignore_ascii_case("true"))
}
