//! Who configuration is generated for.
//!
//! Each family of resources has an audience type that holds exactly the facts the family may depend on. Generators get an
//! audience and nothing else, so what is not in it cannot be looked at: the compiler keeps it so. Proxies of equal audiences
//! share every byte of the family.
//!
//! [`Facts`] is the one list of facts there are. Every audience is a choice of them that names all: those it uses and those
//! it does without. A new fact therefore compiles only once it is decided for every family. The facts themselves are
//! reduced to what can matter in this world before any family sees them ([`canopus_mesh::audience`], [`facts`]).
//!
//! Patches of EnvoyFilters apply to what was generated, so they are no facts of the families they patch: a patch for one
//! workload gives that workload resources of its own and generates nothing anew.
//!
//! `docs/audiences.md` is written from [`FAMILIES`].

mod facts;
mod patches;
mod reporting;
mod settings;
mod shared;

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::attachment::PolicyTarget;
use canopus_mesh::audience::{
    Addressing, Caller, GatewayRunner, Position, Role, SelectorLabels, WaypointRunner, is_reduction_disabled,
};
use canopus_mesh::credential::SecretReader;
use canopus_mesh::proxy::Proxy;
use canopus_mesh::scope::ScopeKey;
use canopus_proto::istio::networking::v1alpha3::OutboundTrafficPolicy;

pub use self::facts::{FACTS, Facts};
pub(crate) use self::patches::is_for as patch_is_for;
pub use self::patches::{PatchId, PatchSet};
pub(crate) use self::reporting::{Reporter, Spans, WorkloadTags};
pub(crate) use self::settings::{
    Build, CertificateFiles, Certificates, Config, Gates, HttpTraits, Interception, Resolver, Sockets,
    Source, Tunnels,
};
pub use self::shared::Shared;
pub(crate) use self::shared::intern;

/// A family of resources, and the facts that it may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// What is generated.
    pub name: &'static str,
    /// The fields of [`Facts`] that its audience has.
    pub facts: &'static [&'static str],
}

/// Declares an audience: the facts that it has, with their types, and those it does without.
macro_rules! audience {
    (
        $(#[$doc:meta])*
        $vis:vis struct $name:ident as $family:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
        }
        without { $($other:ident),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        $vis struct $name {
            $($(#[$field_doc])* pub(crate) $field: $type,)*
        }

        impl $name {
            const FAMILY: Family = Family { name: $family, facts: &[$(stringify!($field)),*] };

            fn new(facts: &Facts) -> Self {
                let Facts { $($field,)* $($other: _,)* } = facts;
                Self { $($field: $field.clone(),)* }
            }
        }
    };
}

/// Declares how an audience of several families is made for one of them: with some facts, without others.
macro_rules! family {
    ($audience:ident::$make:ident as $constant:ident $family:literal {
        $($field:ident),* $(,)?
    } without { $($other:ident),* $(,)? } never { $($never:ident),* $(,)? }) => {
        const $constant: Family = Family { name: $family, facts: &[$(stringify!($field)),*] };

        impl $audience {
            fn $make(facts: &Facts) -> Self {
                let Facts { $($field,)* $($other: _,)* $($never: _,)* } = facts;
                Self { $($field: $field.clone().into(),)* $($other: Default::default(),)* }
            }
        }
    };
}

audience! {
    /// The facts that endpoint assignments depend on.
    pub struct EndpointAudience as "endpoints" {
        role: Role,
        proxyless: bool,
        caller: Caller,
        addressing: Addressing,
        network: Arc<str>,
        requested_networks: Arc<[String]>,
        tunnels: Tunnels,
        position: Position,
    }
    without {
        outbound_policy, build, gates, domain, source, telemetry, plugins, access, peers, spans, reporter, sockets, http,
        certificates, resolver, config, gateway, waypoint, secrets, cluster_patches, listener_patches,
        route_patches, extension_patches,
    }
}

audience! {
    /// The facts that name tables depend on.
    pub struct NameTableAudience as "name tables" {
        caller: Caller,
        addressing: Addressing,
        network: Arc<str>,
    }
    without {
        outbound_policy, role, proxyless, requested_networks, tunnels, position, build, gates, domain, source, telemetry, plugins,
        access, peers, spans, reporter, sockets, http, certificates, resolver, config, gateway, waypoint, secrets,
        cluster_patches, listener_patches, route_patches, extension_patches,
    }
}

audience! {
    /// The facts that clusters depend on, except the endpoints that some of them hold.
    pub struct ClusterAudience as "clusters" {
        role: Role,
        caller: Caller,
        addressing: Addressing,
        build: Build,
        tunnels: Tunnels,
        certificates: Certificates,
        resolver: Resolver,
        config: Config,
        gateway: GatewayRunner,
        waypoint: Option<WaypointRunner>,
        proxyless: bool,
        network: Arc<str>,
        requested_networks: Arc<[String]>,
        position: Position,
    }
    without {
        outbound_policy, gates, domain, source, telemetry, plugins, access, peers, spans, reporter, sockets, http, secrets,
        cluster_patches, listener_patches, route_patches, extension_patches,
    }
}

audience! {
    /// The facts that the clusters of a sidecar's own workload depend on.
    pub struct InboundClusterAudience as "inbound clusters" {
        role: Role,
        caller: Caller,
        addressing: Addressing,
        build: Build,
        sockets: Sockets,
        certificates: Certificates,
        config: Config,
    }
    without {
        outbound_policy, proxyless, network, requested_networks, tunnels, position, gates, domain, source, telemetry, plugins, access,
        peers, spans, reporter, http, resolver, gateway, waypoint, secrets, cluster_patches, listener_patches, route_patches,
        extension_patches,
    }
}

audience! {
    /// The facts that route tables depend on.
    pub struct RouteAudience as "routes" {
        role: Role,
        proxyless: bool,
        caller: Caller,
        addressing: Addressing,
        build: Build,
        domain: Arc<str>,
        source: Source,
        config: Config,
        gateway: GatewayRunner,
    }
    without {
        outbound_policy, network, requested_networks, tunnels, position, gates, telemetry, plugins, access, peers, spans, reporter,
        sockets, http, certificates, resolver, waypoint, secrets, cluster_patches, listener_patches, route_patches,
        extension_patches,
    }
}

audience! {
    /// The facts that decide which secrets a proxy gets.
    pub struct SecretAudience as "secrets" {
        secrets: SecretReader,
        build: Build,
        config: Config,
    }
    without {
        outbound_policy, role, proxyless, caller, addressing, network, requested_networks, tunnels, position, gates, domain, source,
        telemetry, plugins, access, peers, spans, reporter, sockets, http, certificates, resolver, gateway,
        waypoint, cluster_patches, listener_patches, route_patches, extension_patches,
    }
}

audience! {
    /// The facts that configurations of extensions depend on.
    pub struct ExtensionAudience as "extensions" {
        addressing: Addressing,
        build: Build,
        plugins: PolicyTarget,
        secrets: SecretReader,
        waypoint: Option<WaypointRunner>,
        extension_patches: PatchSet,
    }
    without {
        outbound_policy, role, proxyless, caller, network, requested_networks, tunnels, position, gates, domain, source, telemetry,
        access, peers, spans, reporter, sockets, http, certificates, resolver, config, gateway, cluster_patches,
        listener_patches, route_patches,
    }
}

/// Who listeners are made for. Listeners of all sorts handle connections and requests alike; what only some sorts may look
/// at is absent for the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerAudience {
    pub(crate) role: Role,
    pub(crate) caller: Caller,
    pub(crate) addressing: Addressing,
    pub(crate) network: Arc<str>,
    pub(crate) build: Build,
    pub(crate) gates: Gates,
    pub(crate) domain: Arc<str>,
    pub(crate) source: Source,
    pub(crate) telemetry: PolicyTarget,
    pub(crate) plugins: PolicyTarget,
    /// Where requests and connections arrive whose callers are checked.
    pub(crate) access: Option<PolicyTarget>,
    /// Where the proxy terminates mutual TLS of the mesh.
    pub(crate) peers: Option<SelectorLabels>,
    pub(crate) spans: Spans,
    pub(crate) reporter: Option<Reporter>,
    pub(crate) tunnels: Tunnels,
    pub(crate) sockets: Sockets,
    pub(crate) http: HttpTraits,
    pub(crate) certificates: Certificates,
    pub(crate) resolver: Resolver,
    pub(crate) config: Config,
    pub(crate) outbound_policy: OutboundTrafficPolicy,
    /// For proxies that run Gateways.
    pub(crate) gateway: Option<GatewayRunner>,
    /// For waypoints.
    pub(crate) waypoint: Option<WaypointRunner>,
}

family! {
    ListenerAudience::outbound as OUTBOUND "outbound listeners" {
        role, caller, addressing, network, build, gates, domain, source, telemetry, plugins, spans, reporter, tunnels,
        sockets, http, certificates, resolver, config, outbound_policy,
    } without {
        access, peers, gateway, waypoint,
    } never {
        proxyless, requested_networks, position, secrets, cluster_patches, listener_patches, route_patches,
        extension_patches,
    }
}

family! {
    ListenerAudience::inbound as INBOUND "inbound listeners" {
        role, caller, addressing, network, build, gates, domain, source, telemetry, plugins, access, peers, spans,
        reporter, tunnels, sockets, http, certificates, resolver, config, outbound_policy,
    } without {
        gateway, waypoint,
    } never {
        proxyless, requested_networks, position, secrets, cluster_patches, listener_patches, route_patches,
        extension_patches,
    }
}

family! {
    ListenerAudience::gateway as GATEWAY "listeners of gateways and waypoints" {
        role, caller, addressing, network, build, gates, domain, source, telemetry, plugins, access, peers, spans,
        reporter, tunnels, sockets, http, certificates, resolver, config, outbound_policy, gateway, waypoint,
    } without {} never {
        proxyless, requested_networks, position, secrets, cluster_patches, listener_patches, route_patches,
        extension_patches,
    }
}

impl EndpointAudience {
    /// The same where it is settled which service is meant and which rule is for the caller.
    pub(crate) fn without_caller(self) -> Self {
        Self { caller: nobody(), ..self }
    }
}

/// The caller for traffic that comes in: DestinationRules that select workloads are for what these call.
fn for_any_workload(ctx: &Ctx<'_>, caller: &Caller) -> Caller {
    let labels = if is_reduction_disabled(ctx) { caller.labels.clone() } else { SelectorLabels::default() };
    Caller { labels, ..caller.clone() }
}

/// The caller where it makes no difference who calls.
fn nobody() -> Caller {
    let scope = ScopeKey::Gateways(Arc::default());
    Caller { namespace: Arc::default(), scope, labels: SelectorLabels::default() }
}

impl RouteAudience {
    /// Whether they are for a gRPC library rather than an Envoy.
    pub fn is_proxyless(&self) -> bool {
        self.proxyless
    }
}

impl ListenerAudience {
    /// The audience of the route tables inside a waypoint's own listeners.
    pub(crate) fn routes(&self) -> RouteAudience {
        RouteAudience {
            role: self.role,
            proxyless: false,
            caller: self.caller.clone(),
            addressing: self.addressing.clone(),
            build: self.build.clone(),
            domain: self.domain.clone(),
            source: self.source.clone(),
            config: self.config.clone(),
            gateway: self.gateway.clone().unwrap_or_default(),
        }
    }

    /// The same for traffic that comes in: rules and routes that select callers are for what the workload calls.
    fn for_server(self, ctx: &Ctx<'_>) -> Self {
        if is_reduction_disabled(ctx) {
            return self;
        }
        let caller = for_any_workload(ctx, &self.caller);
        Self { caller, domain: Arc::default(), source: Source::default(), ..self }
    }

    /// The scope of the proxy.
    pub(crate) fn scope(&self) -> &ScopeKey {
        &self.caller.scope
    }
}

impl Shared<ListenerAudience> {
    /// The same for what handles connections: spans are of requests.
    pub(crate) fn for_connections(&self, ctx: &Ctx<'_>) -> Self {
        if self.spans == Spans::default() {
            return self.clone();
        }
        intern(ctx, ListenerAudience { spans: Spans::default(), ..ListenerAudience::clone(self) })
    }

    /// The same for listeners, or parts of them, that follow neither from the services the proxy sees nor from the rules for
    /// them.
    pub(crate) fn without_caller(&self, ctx: &Ctx<'_>) -> Self {
        if is_reduction_disabled(ctx) {
            return self.clone();
        }
        let (caller, domain, source) = (nobody(), Arc::default(), Source::default());
        intern(ctx, ListenerAudience { caller, domain, source, ..ListenerAudience::clone(self) })
    }

    /// The same where policies of access count.
    pub(crate) fn with_access(&self, ctx: &Ctx<'_>, access: Option<PolicyTarget>) -> Self {
        intern(ctx, ListenerAudience { access, ..ListenerAudience::clone(self) })
    }
}

impl ClusterAudience {
    /// The audience of endpoints that clusters hold themselves.
    pub(crate) fn endpoints(&self) -> EndpointAudience {
        EndpointAudience {
            role: self.role,
            proxyless: self.proxyless,
            caller: self.caller.clone(),
            addressing: self.addressing.clone(),
            network: self.network.clone(),
            requested_networks: self.requested_networks.clone(),
            tunnels: self.tunnels,
            position: self.position.clone(),
        }
    }
}

/// Every family, for documentation.
pub const FAMILIES: [Family; 10] = [
    ClusterAudience::FAMILY,
    InboundClusterAudience::FAMILY,
    EndpointAudience::FAMILY,
    OUTBOUND,
    INBOUND,
    GATEWAY,
    RouteAudience::FAMILY,
    NameTableAudience::FAMILY,
    SecretAudience::FAMILY,
    ExtensionAudience::FAMILY,
];

/// The audiences that a proxy belongs to, one for each family.
#[derive(Clone, Debug, PartialEq)]
pub struct Audiences {
    /// Audience of clusters.
    pub clusters: Shared<ClusterAudience>,
    /// Audience of the clusters of the proxy's own workload.
    pub inbound_clusters: Shared<InboundClusterAudience>,
    /// What is patched of both.
    pub cluster_patches: PatchSet,
    /// Audience of endpoint assignments.
    pub endpoints: Shared<EndpointAudience>,
    /// Audience of listeners.
    pub listeners: Listening,
    /// What is patched of them.
    pub listener_patches: PatchSet,
    /// Audience of route tables.
    pub routes: TableAudience,
    /// Audience of name tables.
    pub names: Shared<NameTableAudience>,
    /// Audience of secrets.
    pub secrets: Shared<SecretAudience>,
    /// Audience of extension configurations.
    pub extensions: Shared<ExtensionAudience>,
}

/// The audience that route tables are generated for, and the patches that apply to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableAudience {
    /// The audience of the tables before patches.
    pub routes: Shared<RouteAudience>,
    /// What is patched of them.
    pub patches: PatchSet,
}

/// The audiences of a proxy's listeners.
#[derive(Clone, Debug, PartialEq)]
pub enum Listening {
    /// A sidecar's.
    Sidecar {
        /// For what its workload calls.
        outbound: Shared<ListenerAudience>,
        /// For what comes in for its workload.
        inbound: Shared<ListenerAudience>,
    },
    /// A gateway's.
    Gateway(Shared<ListenerAudience>),
    /// A waypoint's.
    Waypoint(Shared<ListenerAudience>),
    /// The proxy has no listeners.
    Nowhere,
}

impl Audiences {
    /// What decides which Gateways the proxy runs, if it is a gateway.
    pub fn gateway(&self) -> Option<&GatewayRunner> {
        self.listeners.arriving()?.gateway.as_ref()
    }

    /// What decides which secrets the proxy may read.
    pub fn secret_reader(&self) -> &SecretReader {
        &self.secrets.secrets
    }
}

impl Listening {
    /// The audience of listeners at which requests arrive; `None` if the proxy has none.
    pub fn arriving(&self) -> Option<&Shared<ListenerAudience>> {
        match self {
            Self::Sidecar { inbound, .. } => Some(inbound),
            Self::Gateway(audience) | Self::Waypoint(audience) => Some(audience),
            Self::Nowhere => None,
        }
    }
}

/// [`Audiences`] of all proxies. Equal audiences are one allocation.
pub struct AudiencesOf;

impl Query for AudiencesOf {
    const NAME: &'static str = "audiences_of";
    type Key = Proxy;
    type Value = Audiences;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Audiences {
        let facts = &Facts::new(ctx, proxy);
        let listeners = |make: fn(&Facts) -> ListenerAudience| intern(ctx, make(facts));
        Audiences {
            clusters: intern(ctx, ClusterAudience::new(facts)),
            inbound_clusters: {
                let audience = InboundClusterAudience::new(facts);
                let caller = for_any_workload(ctx, &audience.caller);
                intern(ctx, InboundClusterAudience { caller, ..audience })
            },
            cluster_patches: facts.cluster_patches.clone(),
            endpoints: intern(ctx, EndpointAudience::new(facts)),
            listeners: match facts.role.kind {
                NodeKind::Sidecar => Listening::Sidecar {
                    outbound: listeners(ListenerAudience::outbound),
                    inbound: intern(ctx, ListenerAudience::inbound(facts).for_server(ctx)),
                },
                NodeKind::Router => Listening::Gateway(listeners(ListenerAudience::gateway)),
                NodeKind::Waypoint => Listening::Waypoint(listeners(ListenerAudience::gateway)),
                NodeKind::Ztunnel | NodeKind::Agentgateway => Listening::Nowhere,
            },
            listener_patches: facts.listener_patches.clone(),
            routes: TableAudience {
                routes: intern(ctx, RouteAudience::new(facts)),
                patches: facts.route_patches.clone(),
            },
            names: intern(ctx, NameTableAudience::new(facts)),
            secrets: intern(ctx, SecretAudience::new(facts)),
            extensions: intern(ctx, ExtensionAudience::new(facts)),
        }
    }
}
