//! Services: ports whose names tell no protocol.

use canopus_api::kube::{Service, ServiceType};
use canopus_api::labels;
use canopus_base::protocol::Protocol;

use super::in_mesh;
use crate::catalogue;
use crate::findings::Findings;
use crate::world::World;

/// Services of gateways that a control plane manages.
const MANAGED: [&str; 3] =
    ["istio.io-gateway-controller", "istio.io-mesh-controller", "istio.io-eastwest-controller"];

pub(crate) fn port_names(world: &World, findings: &mut Findings) {
    for (resource, service) in world.each::<Service>() {
        let managed = resource.labels().get(&labels::GATEWAY_MANAGED);
        if in_mesh::is_control_plane(resource) || managed.is_some_and(|by| MANAGED.contains(&by)) {
            continue;
        }
        let is_external = service.spec.r#type == ServiceType::ExternalName;
        for (index, port) in service.spec.ports.iter().enumerate() {
            let transport = port.protocol.to_string();
            let protocol =
                Protocol::from_port(port.port.into(), &port.name, &transport, port.app_protocol.as_deref());
            let is_named_tcp = &*port.name == "tcp";
            let is_questionable = protocol.is_unsupported() || (is_external && is_named_tcp);
            if !is_questionable {
                continue;
            }
            let index = index.to_string();
            let path = ["spec", "ports", &index, "port"];
            if is_external {
                let kind = &catalogue::EXTERNAL_NAME_SERVICE_TYPE_INVALID_PORT_NAME;
                findings.add_at(kind, resource, &path, &[]);
            } else {
                let target = port.target_port.as_ref().map_or_else(|| "0".to_owned(), ToString::to_string);
                let parameters = [(&port.name).into(), (&port.port).into(), target.into()];
                let kind = &catalogue::PORT_NAME_IS_NOT_UNDER_NAMING_CONVENTION;
                findings.add_at(kind, resource, &path, &parameters);
            }
        }
    }
}
