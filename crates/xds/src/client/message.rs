//! Messages of both protocol variants in one form, as a client sees them.

use canopus_proto::Any;
use canopus_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};

use crate::session::{Request, Wish};
use crate::types;

/// A message from the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// The type of all its resources.
    pub type_url: String,
    /// The nonce to answer with.
    pub nonce: String,
    /// The version of the server's state.
    pub version: String,
    /// Resources that are new or changed, or all of them, depending on protocol and type.
    pub resources: Vec<Received>,
    /// Names of resources that do not exist (delta only).
    pub removed: Vec<String>,
    /// The server's name for itself.
    pub identifier: Option<String>,
}

/// A resource in an [`Update`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Received {
    /// Name of the resource.
    pub name: String,
    /// Version of the resource (delta only).
    pub version: String,
    /// Other names of the resource (delta only).
    pub aliases: Vec<String>,
    /// The resource.
    pub body: Any,
}

impl Update {
    /// The names of its resources.
    pub fn names(&self) -> Vec<&str> {
        self.resources.iter().map(|resource| resource.name.as_str()).collect()
    }
}

impl From<DeltaDiscoveryResponse> for Update {
    fn from(response: DeltaDiscoveryResponse) -> Self {
        let resources = response.resources.into_iter().map(|resource| Received {
            name: resource.name,
            version: resource.version,
            aliases: resource.aliases,
            body: resource.resource.unwrap_or_default(),
        });
        Self {
            type_url: response.type_url,
            nonce: response.nonce,
            version: response.system_version_info,
            resources: resources.collect(),
            removed: response.removed_resources,
            identifier: response.control_plane.map(|plane| plane.identifier),
        }
    }
}

impl From<DiscoveryResponse> for Update {
    fn from(response: DiscoveryResponse) -> Self {
        let resources = response.resources.into_iter().map(|body| Received {
            name: own_name(&body).unwrap_or_default(),
            body,
            ..Received::default()
        });
        Self {
            type_url: response.type_url,
            nonce: response.nonce,
            version: response.version_info,
            resources: resources.collect(),
            removed: Vec::new(),
            identifier: response.control_plane.map(|plane| plane.identifier),
        }
    }
}

/// The name inside a resource, which state-of-the-world messages do not repeat outside.
fn own_name(body: &Any) -> Option<String> {
    use canopus_proto::envoy::config::cluster::v3::Cluster;
    use canopus_proto::envoy::config::core::v3::TypedExtensionConfig;
    use canopus_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
    use canopus_proto::envoy::config::listener::v3::Listener;
    use canopus_proto::envoy::config::route::v3::RouteConfiguration;
    use canopus_proto::envoy::extensions::transport_sockets::tls::v3::Secret;
    match body.type_url.as_str() {
        types::CLUSTER => body.unpack().ok().map(|it: Cluster| it.name),
        types::ENDPOINT => body.unpack().ok().map(|it: ClusterLoadAssignment| it.cluster_name),
        types::LISTENER => body.unpack().ok().map(|it: Listener| it.name),
        types::ROUTE => body.unpack().ok().map(|it: RouteConfiguration| it.name),
        types::SECRET => body.unpack().ok().map(|it: Secret| it.name),
        types::EXTENSION => body.unpack().ok().map(|it: TypedExtensionConfig| it.name),
        _ => None,
    }
}

/// The request as a state-of-the-world message.
pub(super) fn to_sotw(request: Request) -> DiscoveryRequest {
    let (resource_names, version_info) = match request.wish {
        Wish::Exactly { names, version } => (names, version),
        Wish::Change { subscribe, .. } => (subscribe, String::new()),
    };
    DiscoveryRequest {
        version_info,
        node: request.node,
        resource_names,
        type_url: request.type_url,
        response_nonce: request.nonce,
        error_detail: request.error,
        ..Default::default()
    }
}

/// The request as a delta message.
pub(super) fn to_delta(request: Request) -> DeltaDiscoveryRequest {
    let (subscribe, unsubscribe, held) = match request.wish {
        Wish::Exactly { names, .. } => (names, Vec::new(), Default::default()),
        Wish::Change { subscribe, unsubscribe, held } => (subscribe, unsubscribe, held),
    };
    DeltaDiscoveryRequest {
        node: request.node,
        type_url: request.type_url,
        resource_names_subscribe: subscribe,
        resource_names_unsubscribe: unsubscribe,
        initial_resource_versions: held,
        response_nonce: request.nonce,
        error_detail: request.error,
        ..Default::default()
    }
}
