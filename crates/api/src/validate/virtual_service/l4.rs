//! Routes of connections: by server name, or by address and port alone.

use canopus_base::host::subset_of;
use canopus_base::net::parse_ip;
use canopus_proto::istio::networking::v1alpha3::{
    L4MatchAttributes, RouteDestination, TcpRoute, TlsMatchAttributes, TlsRoute, VirtualService as Spec,
};

use super::Context;
use crate::text::quoted;
use crate::validate::code::codes;
use crate::validate::scope::Scope;
use crate::validate::{address, destination, host, labels, percent, port};

codes! {
    TLS_WITHOUT_MATCH: error "tls-route-without-match", "match on server names";
    TLS_WITHOUT_ROUTE: error "tls-route-without-route", "give a destination";
    TLS_WITHOUT_SNI: error "tls-match-without-sni", "list sniHosts";
    SNI_IS_ADDRESS: warning "tls-match-sni-is-address", "match on a host name: clients send no address";
    SNI_NOT_A_HOST: error "tls-match-sni-not-a-host", "list the server name, or a wildcard around it, in hosts";
    TCP_WITHOUT_ROUTE: error "tcp-route-without-route", "give a destination";
    NO_DESTINATION: error "route-without-destination", "give a destination";
    NO_WEIGHT: error "route-weights-zero", "give at least one destination a weight above 0";
}

pub(super) fn tls(route: &TlsRoute, spec: &Spec, context: Context, mut scope: Scope<'_>) {
    scope.field("match").add_if(route.r#match.is_empty(), || {
        TLS_WITHOUT_MATCH.says("TLS route must have at least one match condition")
    });
    scope.each("match", &route.r#match, |matching, scope| tls_match(matching, spec, scope));
    scope.field("route").add_if(route.route.is_empty(), || TLS_WITHOUT_ROUTE.says("TLS route is required"));
    route_destinations(&route.route, context, scope.field("route"));
}

fn tls_match(matching: &TlsMatchAttributes, spec: &Spec, mut scope: Scope<'_>) {
    scope.field("sniHosts").add_if(matching.sni_hosts.is_empty(), || {
        TLS_WITHOUT_SNI.says("TLS match must have at least one SNI host")
    });
    scope.each("sniHosts", &matching.sni_hosts, |name, scope| sni_host(name, spec, scope));
    let TlsMatchAttributes { destination_subnets, port, source_labels, gateways, .. } = matching;
    scope.each("destinationSubnets", destination_subnets, |subnet, mut scope| {
        scope.require(address::subnet(subnet));
    });
    if *port != 0 {
        scope.field("port").require(port::number(*port));
    }
    labels::check("sourceLabels", source_labels, scope.again());
    super::gateway_names(gateways, false, scope.field("gateways"));
}

fn sni_host(name: &str, spec: &Spec, mut scope: Scope<'_>) {
    let checked =
        if super::is_on_gateway(spec) { host::gateway_wildcard(name, true) } else { host::wildcard(name) };
    if let Err(fault) = checked {
        if parse_ip(name).is_err() {
            return scope.add(fault);
        }
        let name_quoted = quoted(name);
        let message = format!(
            "using an IP address ({name_quoted}) goes against SNI spec and most clients do not support this"
        );
        return scope.add(SNI_IS_ADDRESS.says(message).with_value(name));
    }
    scope.add_if(!spec.hosts.iter().any(|host| subset_of(name, host)), || {
        let hosts = spec.hosts.join(", ");
        let message = format!(
            "SNI host {} is not a compatible subset of any of the virtual service hosts: [{hosts}]",
            quoted(name)
        );
        SNI_NOT_A_HOST.says(message).with_value(name)
    });
}

pub(super) fn tcp(route: &TcpRoute, context: Context, mut scope: Scope<'_>) {
    // Parity: Istio drops the warnings of TCP matches.
    scope.each("match", &route.r#match, |matching, scope| tcp_match(matching, scope.without_warnings()));
    scope.field("route").add_if(route.route.is_empty(), || TCP_WITHOUT_ROUTE.says("TCP route is required"));
    route_destinations(&route.route, context, scope.field("route"));
}

fn tcp_match(matching: &L4MatchAttributes, mut scope: Scope<'_>) {
    let L4MatchAttributes { destination_subnets, port, source_labels, gateways, .. } = matching;
    scope.each("destinationSubnets", destination_subnets, |subnet, mut scope| {
        scope.require(address::subnet(subnet));
    });
    if *port != 0 {
        scope.field("port").require(port::number(*port));
    }
    labels::check("sourceLabels", source_labels, scope.again());
    super::gateway_names(gateways, false, scope.field("gateways"));
}

/// Where connections go, and in which shares. `scope` is the list's.
pub fn route_destinations(routes: &[RouteDestination], context: Context, mut scope: Scope<'_>) {
    for (index, route) in routes.iter().enumerate() {
        let mut scope = scope.item(index);
        scope
            .field("destination")
            .add_if(route.destination.is_none(), || NO_DESTINATION.says("destination is required").listed());
        if !context.from_kubernetes {
            scope.optional("destination", route.destination.as_ref(), destination::check);
        }
        scope.field("weight").require(percent::weight(route.weight));
    }
    total_weight(routes.iter().map(|route| route.weight), scope);
}

/// Several destinations do not all have a weight of zero.
pub(super) fn total_weight(weights: impl ExactSizeIterator<Item = i32>, mut scope: Scope<'_>) {
    let several = weights.len() > 1;
    // Parity: the sum wraps around, as it does in Go.
    let total = weights.fold(0i32, i32::wrapping_add);
    scope.add_if(several && total == 0, || NO_WEIGHT.says("total destination weight = 0"));
}
