//! What a service entry needs for the way its endpoints are found.

use std::collections::BTreeSet;

use canopus_base::host::is_wildcard;
use canopus_base::protocol::Protocol;
use canopus_proto::istio::networking::v1alpha3::ServiceEntry as Spec;
use canopus_proto::istio::networking::v1alpha3::service_entry::{Location, Resolution};

use crate::istio::ServiceEntry;
use crate::meta::Meta;
use crate::validate::code::codes;
use crate::validate::scope::Scope;
use crate::validate::workload_entry::{self, Of};
use crate::validate::{host, labels};

codes! {
    ENDPOINTS_UNUSED: error "service-entry-endpoints-unused", "remove the endpoints, or use another resolution";
    SELECTOR_UNUSED: warning "service-entry-selector-unused", "remove workloadSelector, or use another resolution";
    NOT_RESOLVABLE: error "service-entry-host-not-resolvable", "give a full host name, or endpoints";
    TOO_MANY_ENDPOINTS: error "service-entry-too-many-endpoints", "keep one endpoint, or use resolution DNS";
    HOSTS_AND_ADDRESS: warning "service-entry-hosts-and-address", "use one ServiceEntry for each host";
    NOT_A_WILDCARD: error "service-entry-host-not-a-wildcard", "use a wildcard host, or resolution DNS";
    DYNAMIC_ADDRESSES: error "service-entry-dynamic-addresses", "remove the addresses";
    DYNAMIC_PROTOCOL: error "service-entry-dynamic-protocol", "use HTTP, TLS, GRPC or HTTP2";
    DYNAMIC_LOCATION: error "service-entry-dynamic-location", "use MESH_EXTERNAL or MESH_INTERNAL";
    DYNAMIC_WAYPOINT: error "service-entry-dynamic-waypoint", "use MESH_EXTERNAL, or no waypoint";
    UNKNOWN_RESOLUTION: error "service-entry-resolution-unknown",
        "use NONE, STATIC, DNS, DNS_ROUND_ROBIN or DYNAMIC_DNS";
}

const WAYPOINT_LABEL: &str = "istio.io/use-waypoint";

/// Checks endpoints and whatever else depends on the resolution. `ports` are the names of the service's ports.
pub(super) fn check(entry: &ServiceEntry, ports: &BTreeSet<&str>, scope: Scope<'_>) {
    let spec = &entry.spec;
    match Resolution::try_from(spec.resolution) {
        Ok(Resolution::None) => none(spec, scope),
        Ok(Resolution::Static) => fixed(spec, ports, scope),
        Ok(resolution @ (Resolution::Dns | Resolution::DnsRoundRobin)) => {
            dns(spec, resolution, ports, scope);
        }
        Ok(Resolution::DynamicDns) => dynamic(spec, &entry.meta, scope),
        Err(_) => unknown(scope),
    }
}

fn unknown(mut scope: Scope<'_>) {
    scope.field("resolution").add(UNKNOWN_RESOLUTION.says("unsupported resolution type "));
}

fn none(spec: &Spec, mut scope: Scope<'_>) {
    scope.field("endpoints").add_if(!spec.endpoints.is_empty(), || {
        ENDPOINTS_UNUSED.says("no endpoints should be provided for resolution type none")
    });
    scope.field("workloadSelector").add_if(spec.workload_selector.is_some(), || {
        SELECTOR_UNUSED.says("workloadSelector should not be set when resolution mode is NONE")
    });
}

fn fixed(spec: &Spec, ports: &BTreeSet<&str>, mut scope: Scope<'_>) {
    scope.each("endpoints", &spec.endpoints, |endpoint, scope| {
        workload_entry::workload(endpoint, Of::Service(ports), scope);
    });
}

fn dns(spec: &Spec, resolution: Resolution, ports: &BTreeSet<&str>, mut scope: Scope<'_>) {
    let resolution_name = resolution.as_str_name();
    if spec.endpoints.is_empty() {
        let faults = spec.hosts.iter().enumerate().map(|(index, name)| (index, host::fqdn(name)));
        if let Some((index, Err(fault))) = faults.into_iter().find(|(_, checked)| checked.is_err()) {
            let message = format!(
                "hosts must be FQDN or contain only prefix wildcards if no endpoints are provided for resolution \
                 mode {resolution_name}, {fault}"
            );
            scope.field("hosts").item(index).add(NOT_RESOLVABLE.says(message).with_value(&spec.hosts[index]));
        }
    }
    if resolution == Resolution::DnsRoundRobin && spec.endpoints.len() > 1 {
        let message = format!("there must only be 0 or 1 endpoint for resolution mode {resolution_name}");
        scope.field("endpoints").add(TOO_MANY_ENDPOINTS.says(message).with_value(spec.endpoints.len()));
    }
    scope.each("endpoints", &spec.endpoints, |endpoint, mut scope| {
        workload_entry::name_or_address(&endpoint.address, scope.field("address"));
        labels::check("labels", &endpoint.labels, scope.again());
        workload_entry::ports(endpoint, Some(ports), scope);
    });
    let has_tcp = spec.ports.iter().any(|port| Protocol::parse(&port.protocol).is_tcp());
    scope.field("hosts").add_if(!spec.addresses.is_empty() && has_tcp && spec.hosts.len() > 1, || {
        let message =
            "service entry can not have more than one host specified simultaneously with address and tcp port";
        HOSTS_AND_ADDRESS.says(message)
    });
}

fn dynamic(spec: &Spec, meta: &Meta, mut scope: Scope<'_>) {
    let resolution = Resolution::DynamicDns.as_str_name();
    scope.field("hosts").add_if(spec.hosts.is_empty(), || {
        let message = format!("at least one wildcard host must be provided for resolution type {resolution}");
        NOT_A_WILDCARD.says(message)
    });
    scope.each("hosts", &spec.hosts, |host, mut scope| {
        scope.add_if(!is_wildcard(host), || {
            NOT_A_WILDCARD
                .says(format!("host must be wildcarded for resolution mode {resolution}"))
                .with_value(host)
        });
    });
    // Parity: a blank is missing in the middle of each of these two.
    scope.field("addresses").add_if(!spec.addresses.is_empty(), || {
        DYNAMIC_ADDRESSES.says(format!(
            "addresses cannot be set for resolution type {resolution}. HTTP route domains will only be \
             generatedfrom the hosts field values"
        ))
    });
    scope.field("endpoints").add_if(!spec.endpoints.is_empty(), || {
        ENDPOINTS_UNUSED.says(format!(
            "endpoints cannot be set for resolution type {resolution}. Destination IP address determined from \
             hostsfield values"
        ))
    });
    scope.each("ports", &spec.ports, |port, mut scope| {
        let protocol = Protocol::parse(&port.protocol);
        let supported = matches!(protocol, Protocol::Http | Protocol::Tls | Protocol::Grpc | Protocol::Http2);
        scope.field("protocol").add_if(!supported, || {
            let message = format!(
                "only HTTP, TLS, GRPC, and HTTP2 protocols are supported for resolution type {resolution}"
            );
            DYNAMIC_PROTOCOL.says(message).with_value(&port.protocol)
        });
    });
    location(spec, meta, scope.field("location"));
}

/// Names looked up as they come are outside the mesh, or inside it without a waypoint.
fn location(spec: &Spec, meta: &Meta, mut scope: Scope<'_>) {
    let resolution = Resolution::DynamicDns.as_str_name();
    match Location::try_from(spec.location) {
        Ok(Location::MeshExternal) => {}
        Ok(Location::MeshInternal) => scope.add_if(uses_waypoint(meta), || {
            DYNAMIC_WAYPOINT.says(format!(
                "location MESH_INTERNAL with resolution type {resolution} is not supported when using waypoints"
            ))
        }),
        Err(_) => scope.add(DYNAMIC_LOCATION.says(format!(
            "location must be MESH_EXTERNAL or MESH_INTERNAL for resolution type {resolution}"
        ))),
    }
}

fn uses_waypoint(meta: &Meta) -> bool {
    meta.label(WAYPOINT_LABEL).is_some_and(|name| !name.is_empty() && !name.eq_ignore_ascii_case("none"))
}
