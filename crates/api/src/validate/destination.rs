//! Where traffic is sent: a host, perhaps a subset and a port of it.

use canopus_base::labels::is_dns_label;
use canopus_proto::istio::networking::v1alpha3::Destination;

use super::code::{Fault, codes};
use super::scope::Scope;
use super::{host, port};

codes! {
    WILDCARD: error "destination-wildcard", "name the host to send to";
    EMPTY_SUBSET: error "subset-name-empty", "give the subset a name";
    BAD_SUBSET: error "subset-name-invalid", "use at most 63 letters, digits and dashes";
}

/// A place to send traffic to.
pub fn check(destination: &Destination, mut scope: Scope<'_>) {
    let Destination { host, subset, port } = destination;
    if host == "*" {
        scope.field("host").add(WILDCARD.says(format!("invalid destination host {host}")).with_value(host));
    } else {
        scope.field("host").require(host::wildcard(host));
    }
    if !subset.is_empty() {
        scope.field("subset").require(subset_name(subset));
    }
    scope.optional("port", port.as_ref(), |port, mut scope| {
        scope.field("number").require(port::number(port.number));
    });
}

/// The name of a subset.
pub fn subset_name(name: &str) -> Result<(), Fault> {
    if name.is_empty() {
        return Err(EMPTY_SUBSET.says("subset name cannot be empty"));
    }
    if is_dns_label(name) {
        return Ok(());
    }
    Err(BAD_SUBSET.says(format!("subset name is invalid: {name}")).with_value(name))
}
