//! Names of statistics that the mesh's configuration chooses.

use canopus_mesh::service::{Port, Service};

/// What a pattern such as `%SERVICE%_%SERVICE_PORT%` becomes for one port of a service.
pub(super) fn render(
    pattern: &str,
    service: &Service,
    subset: &str,
    port: &Port,
    target_port: u32,
) -> String {
    let (short, name) = if service.is_kubernetes() {
        (format!("{}.{}", service.name, service.namespace), service.name.to_string())
    } else {
        (service.host.to_string(), service.host.to_string())
    };
    let values = [
        ("%SERVICE%", short),
        ("%SERVICE_NAME%", name),
        ("%SERVICE_FQDN%", service.host.to_string()),
        ("%SUBSET_NAME%", subset.to_owned()),
        ("%TARGET_PORT%", target_port.to_string()),
        ("%SERVICE_PORT%", port.number.to_string()),
        ("%SERVICE_PORT_NAME%", port.name.to_string()),
    ];
    values.iter().fold(pattern.to_owned(), |text, (variable, value)| text.replace(variable, value))
}
