//! Routes of services that nobody wrote routes for.

use std::sync::LazyLock;

use canopus_base::protocol::Protocol;
use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::route::v3::route_action::{HashPolicy, MaxStreamDuration};
use canopus_proto::envoy::config::route::v3::{Route, RouteAction};
use canopus_proto::fields::{decorator, route, route_action};
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::networking::v1alpha3::HttpRetry;
use canopus_proto::wire::ProtoWriter;

use super::{RouteList, any_path, destination, retry};

const NAME: &str = "default";
const NO_TIMEOUT: Option<Duration> = Some(Duration::from_secs(0));

/// Room for the route to an application.
const INBOUND_SIZE: usize = 384;

/// Room for the numbers and lengths of fields, and for what a virtual host adds.
const ROOM: usize = 48;

/// Routes to services, with the mesh's retries: all alike but for where they lead.
pub(crate) struct Outbound {
    action: RouteAction,
    encoded_action: ProtoWriter<RouteAction>,
}

impl Outbound {
    /// What they have in common.
    pub(crate) fn new(settings: &MeshSettings) -> Self {
        let retry_policy = retry::policy(settings.mesh.default_http_retry_policy.as_ref(), false);
        let mut action = RouteAction { retry_policy, ..Default::default() };
        destination::disable_timeout(&mut action);
        Self { encoded_action: ProtoWriter::from_message(&action), action }
    }

    /// The route to a cluster, and the name of its spans, both in parts; `hash` says how endpoints are chosen, if that is
    /// said.
    pub(crate) fn route(&self, cluster: &[&str], operation: &[&str], hash: Option<HashPolicy>) -> RouteList {
        let hashed = hash.map(|policy| {
            ProtoWriter::from_message(&RouteAction { hash_policy: vec![policy], ..self.action.clone() })
        });
        let action = hashed.as_ref().unwrap_or(&self.encoded_action);
        let names = cluster.iter().chain(operation).map(|part| part.len()).sum::<usize>();
        let size = ANY_PATH.len() + action.len() + names;
        let mut routes = RouteList::with_capacity(size + ROOM);
        routes.push(true, size, |fields| {
            fields.append(&*ANY_PATH);
            fields.nested_of_about(route::ROUTE, action.len(), |fields| {
                fields.string_of_parts(route_action::CLUSTER, cluster);
                fields.append(action);
            });
            fields.nested(route::DECORATOR, |fields| fields.string_of_parts(decorator::OPERATION, operation));
            fields.string(route::NAME, NAME);
        });
        routes
    }
}

/// The route to the application itself; `operation` are the parts of the name of its spans.
pub(crate) fn inbound(
    cluster: &str,
    operation: &[&str],
    protocol: Protocol,
    settings: &MeshSettings,
) -> RouteList {
    // A stream of messages cannot be tried again from its start.
    let retries = match &settings.mesh.default_inbound_http_retry_policy {
        _ if protocol.is_grpc() => ProtoWriter::default(),
        None => INBOUND_RETRIES.clone(),
        wanted => inbound_retries(wanted.as_ref()),
    };
    let mut routes = RouteList::with_capacity(INBOUND_SIZE);
    routes.push(true, retries.len(), |fields| {
        fields.append(&*ANY_PATH);
        fields.nested(route::ROUTE, |fields| {
            fields.string(route_action::CLUSTER, cluster);
            fields.append(&*NO_TIMEOUTS);
            fields.append(&retries);
        });
        fields.nested(route::DECORATOR, |fields| fields.string_of_parts(decorator::OPERATION, operation));
        fields.string(route::NAME, NAME);
    });
    routes
}

/// A route that matches every request.
static ANY_PATH: LazyLock<ProtoWriter<Route>> = LazyLock::new(|| {
    let mut matching = ProtoWriter::default();
    matching.message(route::MATCH, &any_path());
    matching
});

/// An action without timeouts.
static NO_TIMEOUTS: LazyLock<ProtoWriter<RouteAction>> = LazyLock::new(|| {
    ProtoWriter::from_message(&RouteAction {
        timeout: NO_TIMEOUT,
        // Without it, a gRPC client's own deadline would not count.
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: NO_TIMEOUT,
            grpc_timeout_header_max: NO_TIMEOUT,
            ..Default::default()
        }),
        ..Default::default()
    })
});

/// An action that is tried again as applications usually want it.
static INBOUND_RETRIES: LazyLock<ProtoWriter<RouteAction>> = LazyLock::new(|| inbound_retries(None));

fn inbound_retries(wanted: Option<&HttpRetry>) -> ProtoWriter<RouteAction> {
    ProtoWriter::from_message(&RouteAction {
        retry_policy: retry::inbound_policy(wanted),
        ..Default::default()
    })
}
