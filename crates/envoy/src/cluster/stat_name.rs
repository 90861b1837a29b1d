//! Names of a cluster's statistics that the mesh's configuration chooses.

use canopus_mesh::service::{Port, Service};

use crate::stat_name::{Placeholders, kubernetes};

/// What a pattern such as `%SERVICE%_%SERVICE_PORT%` becomes for one port of a service.
pub(super) fn render(
    pattern: &str,
    service: &Service,
    subset: &str,
    port: &Port,
    target_port: u32,
) -> String {
    let placeholders = Placeholders {
        host: &service.host,
        kubernetes: kubernetes(service),
        subset,
        port: port.number,
        port_name: &port.name,
        target_port: Some(target_port),
    };
    placeholders.fill(pattern)
}
