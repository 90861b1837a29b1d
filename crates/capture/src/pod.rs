//! The settings of a pod with a sidecar, as its annotations and its proxy's container say them.
//!
//! This is what the CNI plugin has in the place of a command line.

use std::collections::BTreeMap;
use std::str::FromStr;

use canopus_base::net::parse_prefix;

use crate::command_line::{CommandLine, go_bool};
use crate::config::{InterfaceName, PortRange, items};

/// What the plugin knows of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pod {
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// The variables of its proxy's container.
    pub proxy_environment: BTreeMap<String, String>,
    /// The user its proxy runs as.
    pub proxy_uid: Option<u32>,
    /// The group its proxy runs as.
    pub proxy_gid: Option<u32>,
}

/// An annotation with a value that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("annotation {key}: {reason}")]
pub struct AnnotationError {
    key: &'static str,
    reason: String,
}

/// Ports of the proxy itself, never captured inbound.
const PROXY_PORTS: [&str; 3] = ["15020", "15021", "15090"];

/// The port excluded in both directions when no annotation says otherwise.
const STATUS_PORT: &str = "15020";

const REROUTE: &str = "istio.io/reroute-virtual-interfaces";
const KUBEVIRT: &str = "traffic.sidecar.istio.io/kubevirtInterfaces";
const MODE: &str = "sidecar.istio.io/interceptionMode";

impl Pod {
    /// The settings as a command line would have them.
    pub fn command_line(&self) -> Result<CommandLine, AnnotationError> {
        let reroute = if self.annotations.contains_key(REROUTE) { REROUTE } else { KUBEVIRT };
        let excluded_inbound = self.ports("traffic.sidecar.istio.io/excludeInboundPorts", STATUS_PORT)?;
        let captures_dns = self.flag("ISTIO_META_DNS_CAPTURE");
        Ok(CommandLine {
            proxy_uid: Some(proxy_id(self.proxy_uid)),
            proxy_gid: Some(proxy_id(self.proxy_gid)),
            istio_inbound_interception_mode: Some(self.mode()?),
            istio_inbound_ports: Some(self.ports("traffic.sidecar.istio.io/includeInboundPorts", "*")?),
            istio_local_exclude_ports: Some(with_proxy_ports(&excluded_inbound)),
            istio_outbound_ports: Some(self.ports("traffic.sidecar.istio.io/includeOutboundPorts", "")?),
            istio_local_outbound_ports_exclude: Some(
                self.ports("traffic.sidecar.istio.io/excludeOutboundPorts", STATUS_PORT)?,
            ),
            istio_service_cidr: Some(self.ranges("traffic.sidecar.istio.io/includeOutboundIPRanges", "*")?),
            istio_service_exclude_cidr: Some(
                self.ranges("traffic.sidecar.istio.io/excludeOutboundIPRanges", "")?,
            ),
            kube_virt_interfaces: Some(self.interfaces(reroute)?),
            istio_exclude_interfaces: Some(self.interfaces("traffic.sidecar.istio.io/excludeInterfaces")?),
            redirect_dns: Some(captures_dns),
            // The pod's DNS servers are not known before it runs.
            capture_all_dns: Some(captures_dns),
            drop_invalid: Some(self.flag("INVALID_DROP")),
            dual_stack: Some(self.flag("ISTIO_DUAL_STACK")),
            cni_mode: Some(true),
            ..CommandLine::default()
        })
    }

    fn annotation(&self, key: &'static str, default: &str) -> String {
        self.annotations.get(key).map_or(default, |value| value.trim()).to_owned()
    }

    fn mode(&self) -> Result<String, AnnotationError> {
        match self.annotation(MODE, "REDIRECT") {
            mode if matches!(mode.as_str(), "REDIRECT" | "TPROXY") => Ok(mode),
            mode => Err(AnnotationError { key: MODE, reason: format!("{mode:?} is not REDIRECT or TPROXY") }),
        }
    }

    fn ports(&self, key: &'static str, default: &str) -> Result<String, AnnotationError> {
        self.list(key, default, |item| PortRange::from_str(item).map(drop))
    }

    fn interfaces(&self, key: &'static str) -> Result<String, AnnotationError> {
        self.list(key, "", |item| InterfaceName::from_str(item).map(drop))
    }

    fn ranges(&self, key: &'static str, default: &str) -> Result<String, AnnotationError> {
        self.list(key, default, |item| parse_prefix(item).map(drop).map_err(|error| error.to_string()))
    }

    /// A list whose items are checked here, so that the error names the annotation.
    fn list(
        &self,
        key: &'static str,
        default: &str,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<String, AnnotationError> {
        let value = self.annotation(key, default);
        if value != "*" {
            items(&value).try_for_each(check).map_err(|reason| AnnotationError { key, reason })?;
        }
        Ok(value)
    }

    /// A variable of the proxy's container; false if it is no boolean.
    fn flag(&self, name: &str) -> bool {
        let Some(text) = self.proxy_environment.get(name) else { return false };
        go_bool(text).unwrap_or_else(|reason| {
            tracing::warn!("ignoring {name}={text:?} of the proxy's container: {reason}");
            false
        })
    }
}

/// Root means that nothing was set: a proxy never runs as root.
fn proxy_id(id: Option<u32>) -> String {
    id.filter(|&id| id != 0).unwrap_or(1337).to_string()
}

fn with_proxy_ports(excluded: &str) -> String {
    let mut ports = Vec::new();
    for port in items(excluded).chain(PROXY_PORTS) {
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    ports.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: &[(&str, &str)]) -> Pod {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Pod { annotations: annotations.collect(), ..Pod::default() }
    }

    #[test]
    fn proxy_ports_are_excluded_once_each() {
        let line =
            pod(&[("traffic.sidecar.istio.io/excludeInboundPorts", "80,15090, 80")]).command_line().unwrap();
        assert_eq!(line.istio_local_exclude_ports.as_deref(), Some("80,15090,15020,15021"));
        assert_eq!(
            pod(&[]).command_line().unwrap().istio_local_exclude_ports.as_deref(),
            Some("15020,15021,15090")
        );
    }

    #[test]
    fn old_name_of_virtual_interfaces_counts_without_the_new_one() {
        let both = pod(&[(REROUTE, "net1"), (KUBEVIRT, "net2")]).command_line().unwrap();
        assert_eq!(both.kube_virt_interfaces.as_deref(), Some("net1"));
        let old = pod(&[(KUBEVIRT, "net2")]).command_line().unwrap();
        assert_eq!(old.kube_virt_interfaces.as_deref(), Some("net2"));
    }

    #[test]
    fn bad_annotation_is_named() {
        let error = pod(&[(MODE, "NONE")]).command_line().unwrap_err();
        assert_eq!(
            error.to_string(),
            "annotation sidecar.istio.io/interceptionMode: \"NONE\" is not REDIRECT or TPROXY"
        );
        let error = pod(&[("traffic.sidecar.istio.io/includeOutboundIPRanges", "10.0.0.0")])
            .command_line()
            .unwrap_err();
        assert!(
            error.to_string().starts_with("annotation traffic.sidecar.istio.io/includeOutboundIPRanges: ")
        );
    }

    #[test]
    fn root_is_not_taken_for_the_proxys_user() {
        let line = Pod { proxy_uid: Some(0), proxy_gid: Some(7), ..Pod::default() }.command_line().unwrap();
        assert_eq!((line.proxy_uid.as_deref(), line.proxy_gid.as_deref()), (Some("1337"), Some("7")));
    }
}
