//! UDPRoutes, which are not served: their status says so for each parent that is ours.

use canopus_api::gateway_api::{Gateway, ListenerSet, ParentReference, RouteParentStatus, UdpRoute};
use canopus_api::{Kind, ObjectKey};
use canopus_runtime::flags::PILOT_GATEWAY_API_CONTROLLER_NAME;

use super::class::Class;
use super::cluster_objects::ClusterObjects;
use super::condition::Conditions;
use super::fault::{Fault, reason};
use super::gateway::parent_gateway;
use crate::reference::gateway_api::parent_key;

const REFUSAL: &str = "UDPRoute is not served: gateways of this class take no UDP traffic; publish the port with a Service of \
                       type LoadBalancer, or use a GatewayClass of another controller";

/// The status of a route by parent. Entries of other controllers stay.
pub(super) fn parents(cluster: &ClusterObjects<'_>, route: &UdpRoute) -> Vec<RouteParentStatus> {
    let controller = cluster.settings.flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME);
    let is_ours = |entry: &&RouteParentStatus| &*entry.controller_name == controller;
    let present = &route.status.parents;
    let mut parents: Vec<_> = present.iter().filter(|entry| !is_ours(entry)).cloned().collect();
    for reference in &route.spec.parent_refs {
        let key = parent_key(reference, &route.meta.namespace);
        if !key.is_some_and(|key| is_served(cluster, &key)) {
            continue;
        }
        let has_reference = |entry: &&RouteParentStatus| is_ours(entry) && entry.parent_ref == *reference;
        let before = present.iter().find(has_reference).map(|entry| entry.conditions.as_slice());
        parents.push(refused(route, reference, controller, before.unwrap_or_default()));
    }
    parents
}

fn refused(
    route: &UdpRoute,
    reference: &ParentReference,
    controller: &str,
    before: &[canopus_api::value::Condition],
) -> RouteParentStatus {
    let mut conditions = Conditions::default();
    conditions.expect("Accepted", "Accepted", "Route was valid");
    conditions.fail("Accepted", &Fault::new(reason::NOT_ALLOWED_BY_LISTENERS, REFUSAL));
    RouteParentStatus {
        parent_ref: reference.clone(),
        controller_name: controller.into(),
        conditions: conditions.write(route.meta.generation, before),
    }
}

/// Whether an object is a Gateway of ours, or a ListenerSet of one.
fn is_served(cluster: &ClusterObjects<'_>, key: &ObjectKey) -> bool {
    let gateway = match key.kind {
        Kind::KubernetesGateway => cluster.object::<Gateway>(&key.namespace, &key.name),
        Kind::ListenerSet => cluster
            .object::<ListenerSet>(&key.namespace, &key.name)
            .and_then(|set| parent_gateway(cluster, &set)),
        _ => None,
    };
    gateway.is_some_and(|gateway| Class::named(cluster, &gateway.spec.gateway_class_name).is_some())
}
