//! Service entries.

mod resolution;

use std::collections::BTreeSet;

use canopus_base::protocol::Protocol;
use canopus_proto::istio::networking::v1alpha3::ServiceEntry as Spec;
use canopus_proto::istio::networking::v1alpha3::service_entry::Resolution;

use super::code::codes;
use super::export_to::{self, Exporter};
use super::scope::Scope;
use super::{address, host, port, selector};
use crate::istio::ServiceEntry;
use crate::meta::Meta;
use crate::text::quoted;

pub(super) use resolution::CODES as RESOLUTION_CODES;

codes! {
    SELECTOR_AND_ENDPOINTS: error "service-entry-selector-and-endpoints",
        "use either workloadSelector or endpoints";
    NO_HOSTS: error "service-entry-without-hosts", "add a host";
    WILDCARD: error "service-entry-wildcard", "name a domain, as in *.example.com";
    SUBNET: error "service-entry-subnet", "use resolution NONE or STATIC, or single addresses";
    DUPLICATE_PORT_NAME: error "service-entry-port-name-twice", "give each port a name of its own";
    DUPLICATE_PORT: error "service-entry-port-twice", "list each port once";
    NO_ADDRESSES: warning "service-entry-tcp-without-addresses",
        "give addresses: connections to this port can be told apart by nothing else";
    MANY_HOSTS: error "service-entry-many-hosts-on-tcp",
        "use one ServiceEntry for each host, or a protocol that names the host";
}

/// A user's wish about allocation of addresses.
const ALLOCATION_LABEL: &str = "networking.istio.io/enable-autoallocate-ip";

/// Checks a ServiceEntry.
pub fn check(entry: &ServiceEntry, mut scope: Scope<'_>) {
    let mut scope = scope.field("spec");
    let bad_selector = scope.fails(|mut scope| {
        scope.optional("workloadSelector", entry.spec.workload_selector.as_ref(), |selector, scope| {
            selector::networking(selector, "service entry", scope);
        });
    });
    // Parity: Istio looks no further than a selector it refuses.
    rest(entry, if bad_selector { scope.ours() } else { scope });
}

fn rest(entry: &ServiceEntry, mut scope: Scope<'_>) {
    let spec = &entry.spec;
    if spec.workload_selector.is_some() && !spec.endpoints.is_empty() {
        let message = "only one of WorkloadSelector or Endpoints is allowed in Service Entry";
        scope.add(SELECTOR_AND_ENDPOINTS.says(message));
    }
    hosts(spec, scope.again());
    addresses(spec, scope.again());
    let port_names = ports(spec, &entry.meta, scope.again());
    resolution::check(entry, &port_names, scope.again());
    if spec.resolution() != Resolution::None && spec.hosts.len() > 1 {
        told_apart(spec, scope.again());
    }
    let namespace = &entry.meta.namespace;
    export_to::check(&spec.export_to, namespace, Exporter::ServiceEntry, scope.field("exportTo"));
}

fn hosts(spec: &Spec, mut scope: Scope<'_>) {
    scope
        .field("hosts")
        .add_if(spec.hosts.is_empty(), || NO_HOSTS.says("service entry must have at least one host"));
    scope.each("hosts", &spec.hosts, |host, mut scope| {
        if host == "*" {
            return scope.add(WILDCARD.says(format!("invalid host {host}")).with_value(host));
        }
        scope.require(host::wildcard(host));
        if spec.resolution() != Resolution::DynamicDns {
            scope.advise(host::whole_wildcard(host));
        }
    });
}

fn addresses(spec: &Spec, mut scope: Scope<'_>) {
    scope.each("addresses", &spec.addresses, |text, mut scope| scope.require(address::subnet(text)));
    let has_subnet = spec.addresses.iter().any(|text| text.contains('/'));
    if has_subnet && !matches!(spec.resolution(), Resolution::None | Resolution::Static) {
        let message = "CIDR addresses are allowed only for NONE/STATIC resolution types";
        scope.field("addresses").add(SUBNET.says(message));
    }
}

/// Checks the ports and returns their names.
fn ports<'a>(spec: &'a Spec, meta: &Meta, mut scope: Scope<'_>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    let addressless = spec.addresses.is_empty() && !allocates_addresses(spec, meta, &scope);
    for (index, port) in spec.ports.iter().enumerate() {
        let mut scope = scope.field("ports");
        let mut scope = scope.item(index);
        scope.field("name").add_if(!names.insert(port.name.as_str()), || {
            let message = format!("service entry port name {} already defined", quoted(&port.name));
            DUPLICATE_PORT_NAME.says(message).with_value(&port.name)
        });
        scope.field("number").add_if(!numbers.insert(port.number), || {
            let message = format!("service entry port {} already defined", port.number);
            DUPLICATE_PORT.says(message).with_value(port.number)
        });
        if port.target_port != 0 {
            scope.field("targetPort").require(port::number(port.target_port));
        }
        if addressless && matches!(port.protocol.as_str(), "" | "TCP") {
            let message = "addresses are required for ports serving TCP (or unset) protocol when IP \
                           Autoallocation is not enabled";
            scope.add(NO_ADDRESSES.says(message));
        }
        scope.field("name").require(port::name(&port.name));
        scope.field("protocol").require(port::protocol(&port.protocol));
        scope.field("number").require(port::number(port.number));
    }
    names
}

/// Whether addresses will be given to a service that has none.
fn allocates_addresses(spec: &Spec, meta: &Meta, scope: &Scope<'_>) -> bool {
    let opted_out = meta.label(ALLOCATION_LABEL).is_some_and(|wish| wish.eq_ignore_ascii_case("false"));
    scope.settings().allocates_addresses && spec.resolution() != Resolution::None && !opted_out
}

/// Hosts can be told apart only if each port's protocol names them.
fn told_apart(spec: &Spec, mut scope: Scope<'_>) {
    let opaque = spec.ports.iter().position(|port| {
        let protocol = Protocol::parse(&port.protocol);
        !protocol.is_http() && !protocol.is_tls()
    });
    if let Some(index) = opaque {
        let fault = MANY_HOSTS.says("multiple hosts provided with non-HTTP, non-TLS ports");
        scope.field("ports").item(index).add(fault);
    }
}
