//! Peer authentication: mutual TLS, of a mesh, a namespace, workloads, or their ports.

use canopus_base::tree::Node;

use super::code::codes;
use super::scope::Scope;
use super::selector;
use crate::istio::PeerAuthentication;

codes! {
    PORTS_WITHOUT_SELECTOR: error "peer-ports-without-selector",
        "add a selector: only single workloads can have settings per port";
    BAD_PORT: error "peer-port-out-of-range", "use a port from 1 to 65535";
    NO_PORTS: error "peer-ports-empty", "name a port, or leave portLevelMtls out";
}

/// Checks a PeerAuthentication.
pub fn check(policy: &PeerAuthentication, mut scope: Scope<'_>) {
    let spec = &policy.spec;
    let selects = spec.selector.as_ref().is_some_and(|selector| !selector.match_labels.is_empty());
    let mut scope = scope.field("spec");
    let mut ports = scope.field("portLevelMtls");
    ports.add_if(!selects && !spec.port_level_mtls.is_empty(), || {
        PORTS_WITHOUT_SELECTOR.says("mesh/namespace peer authentication cannot have port level mTLS")
    });
    for port in spec.port_level_mtls.keys().filter(|port| !(1..=65535).contains(*port)) {
        ports.entry(&port.to_string()).add(BAD_PORT.says("port must be in range 1..65535").with_value(port));
    }
    scope.optional("selector", spec.selector.as_ref(), selector::workload);
}

/// Checks what a PeerAuthentication says that is lost when it is decoded: ports that are given, but none.
pub fn check_document(document: &Node, mut scope: Scope<'_>) {
    let ports = document.get("spec").and_then(|spec| spec.get("portLevelMtls"));
    let is_empty = ports.and_then(Node::as_map).is_some_and(canopus_base::tree::Map::is_empty);
    scope
        .field("spec")
        .field("portLevelMtls")
        .add_if(is_empty, || NO_PORTS.says("port level mTLS, if defined, must have at least one element"));
}
