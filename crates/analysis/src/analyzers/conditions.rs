//! Status conditions that say something does not work.

use canopus_api::Kind;
use canopus_base::tree::Node;

use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

const WAYPOINT: &[&str] = &["istio.io/WaypointBound"];
const GATEWAY_API: &[&str] = &["Accepted", "Programmed", "ResolvedRefs"];

/// Conditions that are reported when they are false.
const REPORTED: [(Kind, &[&str]); 7] = [
    (Kind::Service, WAYPOINT),
    (Kind::ServiceEntry, WAYPOINT),
    (Kind::WorkloadEntry, WAYPOINT),
    (Kind::AuthorizationPolicy, &["ZtunnelAccepted", "WaypointAccepted"]),
    (Kind::KubernetesGateway, GATEWAY_API),
    (Kind::HttpRoute, GATEWAY_API),
    (Kind::GrpcRoute, GATEWAY_API),
];

pub(crate) fn analyze(world: &World, findings: &mut Findings) {
    for (kind, reported) in REPORTED {
        for resource in world.objects_of_kind(kind) {
            for condition in conditions(resource) {
                let text = |key: &str| condition.get(key).and_then(Node::as_str).unwrap_or_default();
                let is_false = reported.contains(&text("type")) && text("status") == "False";
                let is_partly_invalid = kind == Kind::AuthorizationPolicy
                    && text("type") == "WaypointAccepted"
                    && text("reason") == "PartiallyInvalid";
                if is_false || is_partly_invalid {
                    let parameters = [text("type").into(), text("reason").into(), text("message").into()];
                    findings.add(&catalogue::NEGATIVE_CONDITION_STATUS, resource, &parameters);
                }
            }
        }
    }
}

/// The conditions of an object; of a route those for all its parents.
fn conditions(resource: &Resource) -> impl Iterator<Item = &Node> {
    let own = resource.at(&["status", "conditions"]).and_then(Node::as_list);
    let parents = resource.at(&["status", "parents"]).and_then(Node::as_list).unwrap_or_default();
    let of_parents = parents.iter().filter_map(|parent| parent.get("conditions")?.as_list()).flatten();
    own.into_iter().flatten().chain(of_parents)
}
