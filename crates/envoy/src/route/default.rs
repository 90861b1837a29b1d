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

/// Room for the numbers and lengths of fields, and for what a virtual host adds.
const ROOM: usize = 48;

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
        destination::disable_timeout(&mut action);
        let mut matched = Pieces::default();
        matched.message(field::MATCH, &any_path());
        Self { matched, encoded_action: Pieces::of(&action), action }
    }

    /// The route to a cluster, and the name of its spans, both in parts; `hash` says how endpoints are chosen, if that is
    /// said.
    pub(crate) fn route(&self, cluster: &[&str], operation: &[&str], hash: Option<HashPolicy>) -> RouteList {
        let hashed =
            hash.map(|policy| Pieces::of(&RouteAction { hash_policy: vec![policy], ..self.action.clone() }));
        let action = hashed.as_ref().unwrap_or(&self.encoded_action);
        let names = cluster.iter().chain(operation).map(|part| part.len()).sum::<usize>();
        let mut routes = RouteList::with_capacity(self.matched.len() + action.len() + names + ROOM);
        routes.push(true, |route| {
            route.append(self.matched.as_slice());
            route.nested(field::ROUTE, |route| {
                route.joined(CLUSTER, cluster);
                route.append(action.as_slice());
            });
            route.nested(field::DECORATOR, |decorator| decorator.joined(field::OPERATION, operation));
            route.text(field::NAME, NAME);
        });
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
