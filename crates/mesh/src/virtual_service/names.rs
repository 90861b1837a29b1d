//! Resolving the names in a VirtualService relative to its namespace.

use canopus_proto::istio::networking::v1alpha3::{Destination, VirtualService};

use crate::reference::{MESH, gateway_name};
use crate::world::qualified_host;

/// Expands hosts to full names and gateways to `namespace/name`.
pub(super) fn resolve(written: &VirtualService, namespace: &str, domain: &str) -> VirtualService {
    let mut spec = written.clone();
    for host in &mut spec.hosts {
        *host = qualified_host(host, namespace, domain);
    }
    resolve_gateways(&mut spec.gateways, namespace);
    let in_full = |destination: Option<&mut Destination>| {
        if let Some(destination) = destination {
            destination.host = qualified_host(&destination.host, namespace, domain);
        }
    };
    for http in &mut spec.http {
        http.r#match.iter_mut().for_each(|m| resolve_gateways(&mut m.gateways, namespace));
        http.route.iter_mut().for_each(|route| in_full(route.destination.as_mut()));
        http.mirrors.iter_mut().for_each(|mirror| in_full(mirror.destination.as_mut()));
        in_full(http.mirror.as_mut());
    }
    for tcp in &mut spec.tcp {
        tcp.r#match.iter_mut().for_each(|m| resolve_gateways(&mut m.gateways, namespace));
        tcp.route.iter_mut().for_each(|route| in_full(route.destination.as_mut()));
    }
    for tls in &mut spec.tls {
        tls.r#match.iter_mut().for_each(|m| resolve_gateways(&mut m.gateways, namespace));
        tls.route.iter_mut().for_each(|route| in_full(route.destination.as_mut()));
    }
    spec
}

fn resolve_gateways(gateways: &mut [String], namespace: &str) {
    for gateway in gateways.iter_mut().filter(|gateway| *gateway != MESH) {
        *gateway = gateway_name(gateway, namespace);
    }
}
