//! Routes of services that nobody wrote routes for.

use canopus_base::protocol::Protocol;
use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::{
    ClusterSpecifier, HashPolicy, MaxStreamDuration,
};
use canopus_proto::envoy::config::route::v3::{Decorator, Route, RouteAction};
use canopus_proto::google::protobuf::Duration;

use super::{RouteList, any_path, destination, field, retry};
use crate::pieces::Pieces;

const NAME: &str = "default";
const NO_TIMEOUT: Option<Duration> = Some(Duration::from_secs(0));

/// The field of a route's action that says where it leads.
const CLUSTER: u32 = 1;

/// Routes to services, with the mesh's retries: all alike but for where they lead.
pub(crate) struct Outbound {
    matched: Pieces,
    action: RouteAction,
    encoded_action: Pieces,
}

impl Outbound {
    /// What they have in common.
    pub(crate) fn new(settings: &MeshSettings) -> Self {
        let retry_policy = retry::policy(settings.mesh.default_http_retry_policy.as_ref(), false);
        let mut action = RouteAction { retry_policy, ..Default::default() };
        destination::set_timeout(&mut action, None, false);
        let mut matched = Pieces::default();
        matched.message(field::MATCH, &any_path());
        Self { matched, encoded_action: Pieces::of(&action), action }
    }

    /// The route to a cluster; `hash` says how its endpoints are chosen, if that is said.
    pub(crate) fn route(&self, cluster: &str, operation: String, hash: Option<HashPolicy>) -> RouteList {
        let mut action = Pieces::default();
        action.text(CLUSTER, cluster);
        match hash {
            Some(policy) => {
                action.fields(&RouteAction { hash_policy: vec![policy], ..self.action.clone() });
            }
            None => action.append(self.encoded_action.as_slice()),
        }
        let mut route = self.matched.clone();
        route.body(field::ROUTE, action.as_slice());
        route.message(field::DECORATOR, &Decorator { operation, ..Default::default() });
        route.text(field::NAME, NAME);
        let mut routes = RouteList::default();
        routes.push(&route, true);
        routes
    }
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
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
        timeout: NO_TIMEOUT,
        // Without it, a gRPC client's own deadline would not count.
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: NO_TIMEOUT,
            grpc_timeout_header_max: NO_TIMEOUT,
            ..Default::default()
        }),
        // A stream of messages cannot be tried again from its start.
        retry_policy: if protocol.is_grpc() { None } else { retry::inbound_policy(wanted) },
        ..Default::default()
    };
    Route {
        name: NAME.into(),
        r#match: Some(any_path()),
        decorator: Some(Decorator { operation, ..Default::default() }),
        action: Some(Action::Route(action)),
        ..Default::default()
    }
}
