//! Routes of services that nobody wrote routes for.

use canopus_base::protocol::Protocol;
use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::{ClusterSpecifier, MaxStreamDuration};
use canopus_proto::envoy::config::route::v3::{Decorator, Route, RouteAction};
use canopus_proto::google::protobuf::Duration;

use super::{any_path, destination, retry};

const NAME: &str = "default";
const NO_TIMEOUT: Option<Duration> = Some(Duration::from_secs(0));

/// The route to a service, with the mesh's retries.
pub(crate) fn outbound(cluster: &str, operation: String, settings: &MeshSettings) -> Route {
    let mut action = to_cluster(cluster);
    action.retry_policy = retry::policy(settings.mesh.default_http_retry_policy.as_ref(), false);
    destination::set_timeout(&mut action, None, false);
    route(operation, action)
}

/// The route to the application itself.
pub(crate) fn inbound(
    cluster: &str,
    operation: String,
    protocol: Protocol,
    settings: &MeshSettings,
) -> Route {
    let wanted = settings.mesh.default_inbound_http_retry_policy.as_ref();
    let action = RouteAction {
        timeout: NO_TIMEOUT,
        // Without it, a gRPC client's own deadline would not count.
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: NO_TIMEOUT,
            grpc_timeout_header_max: NO_TIMEOUT,
            ..Default::default()
        }),
        // A stream of messages cannot be tried again from its start.
        retry_policy: if protocol.is_grpc() { None } else { retry::inbound_policy(wanted) },
        ..to_cluster(cluster)
    };
    route(operation, action)
}

fn to_cluster(cluster: &str) -> RouteAction {
    RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        ..Default::default()
    }
}

fn route(operation: String, action: RouteAction) -> Route {
    Route {
        name: NAME.into(),
        r#match: Some(any_path()),
        decorator: Some(Decorator { operation, ..Default::default() }),
        action: Some(Action::Route(action)),
        ..Default::default()
    }
}
