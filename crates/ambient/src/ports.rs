//! The workload ports that service ports lead to.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::kube::{Pod, TransportProtocol};
use canopus_proto::istio::workload::{Port, PortList};

use crate::service::ServiceInfo;

/// The ports of a pod by service. Named ports that the pod does not have are left out.
pub(crate) fn pod_ports(pod: &Pod, services: &[Arc<ServiceInfo>]) -> BTreeMap<String, PortList> {
    by_service(services, |info, port, (name, target)| {
        if !target.is_empty() {
            return named(pod, target);
        }
        if info.is_kube || name.is_empty() {
            return Some(port.target_port);
        }
        named(pod, name).or(Some(or_service_port(port)))
    })
}

/// The ports of an entry by service. The entry may override port numbers.
pub(crate) fn entry_ports(
    own: &BTreeMap<String, u32>,
    services: &[Arc<ServiceInfo>],
) -> BTreeMap<String, PortList> {
    by_service(services, |info, port, (name, target)| {
        if info.is_kube && !target.is_empty() {
            return own.get(target).copied();
        }
        let own = own.get(name).copied();
        Some(own.unwrap_or(if info.is_kube { port.target_port } else { or_service_port(port) }))
    })
}

fn by_service(
    services: &[Arc<ServiceInfo>],
    target: impl Fn(&ServiceInfo, &Port, &(String, String)) -> Option<u32>,
) -> BTreeMap<String, PortList> {
    let unnamed = (String::new(), String::new());
    let ports = |info: &ServiceInfo| {
        let ports = info.service.ports.iter().filter_map(|port| {
            let names = info.port_names.get(&port.service_port).unwrap_or(&unnamed);
            let target_port = target(info, port, names)?;
            Some(Port { service_port: port.service_port, target_port, ..Default::default() })
        });
        PortList { ports: ports.collect() }
    };
    services.iter().map(|info| (info.key(), ports(info))).collect()
}

fn or_service_port(port: &Port) -> u32 {
    if port.target_port == 0 { port.service_port } else { port.target_port }
}

/// Resolves a named port against the containers of a pod, including restartable init containers.
fn named(pod: &Pod, name: &str) -> Option<u32> {
    let init = pod.spec.init_containers.iter();
    let staying = init.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let mut ports = pod.spec.containers.iter().chain(staying).flat_map(|container| &container.ports);
    let port = ports.find(|port| &*port.name == name && port.protocol == TransportProtocol::Tcp)?;
    Some(port.container_port.into())
}
