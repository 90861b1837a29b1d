//! Deprecated fields and removed kinds.

use canopus_api::istio::{Sidecar, VirtualService};
use canopus_api::kube::CustomResourceDefinition;

use crate::catalogue;
use crate::findings::Findings;
use crate::world::World;

const REMOVED_GROUP: &str = "rbac.istio.io";
const REMOVED_KINDS: [&str; 4] = ["ClusterRbacConfig", "RbacConfig", "ServiceRole", "ServiceRoleBinding"];

pub(crate) fn analyze(world: &World, findings: &mut Findings) {
    for (resource, service) in world.each::<VirtualService>() {
        let delays = service.spec.http.iter().filter_map(|route| route.fault.as_ref()?.delay.as_ref());
        #[expect(deprecated, reason = "this looks for users of the deprecated field")]
        for _ in delays.filter(|delay| delay.percent > 0) {
            let detail = "HTTPRoute.fault.delay.percent is deprecated; use HTTPRoute.fault.delay.percentage";
            findings.add(&catalogue::DEPRECATED, resource, &[detail.into()]);
        }
    }
    for (resource, sidecar) in world.each::<Sidecar>() {
        let policy = sidecar.spec.outbound_traffic_policy.as_ref();
        if policy.is_some_and(|policy| policy.egress_proxy.is_some()) {
            let detail = "OutboundTrafficPolicy.EgressProxy ignored";
            findings.add(&catalogue::DEPRECATED, resource, &[detail.into()]);
        }
    }
    for (resource, definition) in world.each::<CustomResourceDefinition>() {
        let (group, kind) = (&*definition.spec.group, &*definition.spec.names.kind);
        if group == REMOVED_GROUP && REMOVED_KINDS.contains(&kind) {
            let detail = format!("Custom resource type {group} {kind} is removed");
            findings.add(&catalogue::DEPRECATED, resource, &[detail.into()]);
        }
    }
}
