//! Resource types: their URLs, the order they are pushed in, and the protocol rules each one follows.

/// `envoy.config.cluster.v3.Cluster`.
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// `envoy.config.endpoint.v3.ClusterLoadAssignment`.
pub const ENDPOINT: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// `envoy.config.listener.v3.Listener`.
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// `envoy.config.route.v3.RouteConfiguration`.
pub const ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// `envoy.extensions.transport_sockets.tls.v3.Secret`.
pub const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// `envoy.config.core.v3.TypedExtensionConfig`.
pub const EXTENSION: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
/// `envoy.config.bootstrap.v3.Bootstrap`.
pub const BOOTSTRAP: &str = "type.googleapis.com/envoy.config.bootstrap.v3.Bootstrap";
/// `istio.workload.Address`: a workload or a service.
pub const ADDRESS: &str = "type.googleapis.com/istio.workload.Address";
/// `istio.workload.Workload`.
pub const WORKLOAD: &str = "type.googleapis.com/istio.workload.Workload";
/// `istio.security.Authorization`.
pub const AUTHORIZATION: &str = "type.googleapis.com/istio.security.Authorization";
/// `istio.networking.nds.v1.NameTable`.
pub const NAME_TABLE: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";
/// `istio.mesh.v1alpha1.ProxyConfig`.
pub const PROXY_CONFIG: &str = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig";
/// `istio.v1.HealthInformation`: what an agent says about its workload.
pub const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";
/// Prefix of the types that stand for debug queries.
pub const DEBUG: &str = "istio.io/debug";

/// Whether the resources of a type are of types of their own, so that a body is an encoded `Any` rather than what is in it.
///
/// These are the types that are named by a path rather than by a message: the answers to debug queries about proxies, and
/// objects served as they are.
pub fn is_packed(type_url: &str) -> bool {
    type_url != DEBUG && !type_url.starts_with("type.googleapis.com/") && type_url.contains('/')
}

/// Types in the order a change is pushed; every other type follows in the order of its URL.
const PUSH_ORDER: [&str; 11] = [
    CLUSTER,
    ENDPOINT,
    LISTENER,
    ROUTE,
    SECRET,
    ADDRESS,
    WORKLOAD,
    AUTHORIZATION,
    EXTENSION,
    NAME_TABLE,
    PROXY_CONFIG,
];

/// Position of a type in the push order.
pub(crate) fn rank(type_url: &str) -> usize {
    PUSH_ORDER.iter().position(|known| *known == type_url).unwrap_or(PUSH_ORDER.len())
}

/// Some types, as far as they have a place in the push order; those that have none are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Types(u16);

impl Types {
    /// All of them.
    pub const ALL: Self = Self(u16::MAX);

    /// One type.
    pub fn only(type_url: &str) -> Self {
        Self(1 << rank(type_url))
    }

    /// The types that are in either.
    #[must_use]
    pub fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether there are types in both.
    pub fn intersects(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}

/// What requests of a type mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A subscription: answered now and whenever something changes.
    Watched(Rules),
    /// A question: answered once per request, never pushed.
    Query,
    /// A statement by the client: noted, never answered.
    Report,
}

/// How a watched type behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Naming nothing asks for everything; otherwise it asks for nothing.
    pub wildcard: bool,
    /// How a client learns that a resource ceased to exist.
    pub removals: Removals,
    /// The type whose resources of the same name wait for one of this type before they take effect.
    ///
    /// A proxy that gets a new cluster keeps it aside until endpoints arrive for it, and does not always ask for them
    /// again. So endpoints count as changed when their cluster does.
    pub completes: Option<&'static str>,
    /// A client that asks for single names gets what is near it before it has named any.
    pub unasked: bool,
}

/// When a delta client is told that a resource does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removals {
    /// The server announces a removal at once.
    Pushed,
    /// The server tells of a removal only when the client asks for the resource; one that disappears later stays in use.
    Answered,
    /// Never: the client drops it when nothing refers to it any more.
    Silent,
}

impl Default for Rules {
    fn default() -> Self {
        Self { wildcard: true, removals: Removals::Pushed, completes: None, unasked: false }
    }
}

impl Kind {
    /// What requests of `type_url` mean in Istio's dialect of xDS.
    pub fn for_type(type_url: &str) -> Self {
        let named = Rules { wildcard: false, ..Rules::default() };
        Self::Watched(match type_url {
            ENDPOINT => Rules { completes: Some(CLUSTER), ..named },
            ROUTE => named,
            // Parity: deleting a secret must not cut off the listeners that use it.
            SECRET => Rules { removals: Removals::Answered, ..named },
            // Parity: a proxy that is told an extension is gone fails the requests still using it.
            EXTENSION => Rules { removals: Removals::Silent, ..named },
            ADDRESS | WORKLOAD => Rules { unasked: true, ..Rules::default() },
            HEALTH => return Self::Report,
            _ if type_url.starts_with(DEBUG) => return Self::Query,
            _ => Rules::default(),
        })
    }
}
