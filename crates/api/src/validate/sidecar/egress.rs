//! Listeners for what goes out, and the hosts they know.

use std::collections::{BTreeMap, BTreeSet};

use canopus_proto::istio::networking::v1alpha3::{CaptureMode, IstioEgressListener, SidecarPort};

use crate::validate::code::codes;
use crate::validate::host::NamedBy;
use crate::validate::scope::Scope;
use crate::validate::{address, host};

codes! {
    CATCH_ALL_NOT_LAST: error "sidecar-catch-all-not-last", "move the listener without a port to the end";
    DUPLICATE_SOCKET: error "sidecar-socket-twice", "use each socket for one listener";
    NO_SOCKET: error "sidecar-port-without-number", "give the port a number, or bind to unix://path";
    SOCKET_CAPTURED: error "sidecar-socket-captured", "use captureMode DEFAULT or NONE";
    NO_HOSTS: error "sidecar-egress-without-hosts", "add a host such as ./* or istio-system/*";
    DUPLICATE_HOST: warning "sidecar-host-twice", "remove hosts that others include";
    HOST_BESIDE_ALL: warning "sidecar-host-beside-all", "remove the other hosts, */* includes them";
}

pub(super) fn check(listeners: &[IstioEgressListener], namespace: &str, mut scope: Scope<'_>) {
    let mut numbers = BTreeSet::new();
    let mut sockets = BTreeSet::new();
    for (index, listener) in listeners.iter().enumerate() {
        let mut scope = scope.item(index);
        match &listener.port {
            None => scope.field("port").add_if(index + 1 != listeners.len(), || {
                let message =
                    "sidecar: the egress listener with empty port should be the last listener in the list";
                CATCH_ALL_NOT_LAST.says(message)
            }),
            Some(port) => {
                super::target_port(port, scope.field("port"));
                bound(listener, port, scope.again());
                if port.number == 0 {
                    scope.field("bind").add_if(!sockets.insert(listener.bind.as_str()), || {
                        let message = "sidecar: unix domain socket values for listeners must be unique";
                        DUPLICATE_SOCKET.says(message).with_value(&listener.bind)
                    });
                } else if !numbers.insert(port.number) {
                    super::same_port(port, scope.again());
                }
            }
        }
        hosts(&listener.hosts, namespace, scope.field("hosts"));
    }
}

/// Where a listener with a port listens: on the network, or with port 0 on a socket.
fn bound(listener: &IstioEgressListener, port: &SidecarPort, mut scope: Scope<'_>) {
    super::port_words(port, scope.field("port"));
    if port.number != 0 {
        return super::on_network(port, &listener.bind, scope);
    }
    match listener.bind.strip_prefix(address::UNIX) {
        Some(socket) => scope.field("bind").require(address::unix_socket(socket)),
        None => {
            let message = "sidecar: ports with 0 value must have a unix domain socket bind address";
            scope.field("bind").add(NO_SOCKET.says(message).with_value(&listener.bind));
        }
    }
    let captured =
        !matches!(CaptureMode::try_from(listener.capture_mode), Ok(CaptureMode::Default | CaptureMode::None));
    scope.field("captureMode").add_if(captured, || {
        SOCKET_CAPTURED.says("sidecar: captureMode must be DEFAULT/NONE for unix domain socket listeners")
    });
}

fn hosts(hosts: &[String], own_namespace: &str, mut scope: Scope<'_>) {
    if hosts.is_empty() {
        return scope.add(NO_HOSTS.says("sidecar: egress listener must contain at least one host"));
    }
    let mut known = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (index, entry) in hosts.iter().enumerate() {
        let mut scope = scope.item(index);
        if let Some((namespace, name)) =
            entry.split_once('/').filter(|(namespace, _)| !namespace.starts_with('~'))
        {
            let namespace = if namespace == "." { own_namespace } else { namespace };
            let names = known.entry(namespace).or_default();
            let included = match name {
                "*" => !names.is_empty(),
                name => names.contains(name) || names.contains("*"),
            };
            scope.add_if(included, || {
                DUPLICATE_HOST.says(format!("duplicated egress host: {entry}")).with_value(entry)
            });
            names.insert(name);
        }
        host::namespaced(entry, NamedBy::Sidecar, scope);
    }
    let all = known.get("*").is_some_and(|names| names.contains("*"));
    scope.add_if(all && known.len() != 1, || {
        HOST_BESIDE_ALL.says("`*/*` host select all resources, no other hosts can be added")
    });
}
