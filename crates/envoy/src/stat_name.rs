//! Names of statistics that users shape with patterns such as `%SERVICE%_%SERVICE_PORT%`.

use canopus_mesh::service::Service;

/// What a pattern's placeholders stand for.
pub struct Placeholders<'a> {
    /// `%SERVICE_FQDN%`.
    pub host: &'a str,
    /// Name and namespace of the Kubernetes service, if it is one.
    pub kubernetes: Option<(&'a str, &'a str)>,
    /// `%SUBSET_NAME%`.
    pub subset: &'a str,
    /// `%SERVICE_PORT%`.
    pub port: u32,
    /// `%SERVICE_PORT_NAME%`.
    pub port_name: &'a str,
    /// `%TARGET_PORT%`, where it is one.
    pub target_port: Option<u32>,
}

impl Placeholders<'_> {
    /// The name that a pattern makes.
    pub fn fill(&self, pattern: &str) -> String {
        let short = match self.kubernetes {
            Some((name, namespace)) => format!("{name}.{namespace}"),
            None => self.host.to_owned(),
        };
        let name = self.kubernetes.map_or(self.host, |(name, _)| name);
        let filled = pattern
            .replace("%SERVICE%", &short)
            .replace("%SERVICE_NAME%", name)
            .replace("%SERVICE_FQDN%", self.host)
            .replace("%SUBSET_NAME%", self.subset)
            .replace("%SERVICE_PORT%", &self.port.to_string())
            .replace("%SERVICE_PORT_NAME%", self.port_name);
        match self.target_port {
            Some(port) => filled.replace("%TARGET_PORT%", &port.to_string()),
            None => filled,
        }
    }
}

/// Name and namespace of a service that is of Kubernetes.
pub(crate) fn kubernetes(service: &Service) -> Option<(&str, &str)> {
    service.is_kubernetes().then(|| (&*service.name, &*service.namespace))
}
