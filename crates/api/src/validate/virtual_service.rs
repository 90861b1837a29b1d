//! Virtual services.

pub mod http;
mod l4;
mod overlap;
mod unreachable;

use canopus_base::labels::is_dns_label;
use canopus_base::net::parse_ip;
use canopus_proto::istio::networking::v1alpha3::{StringMatch, VirtualService as Spec};

use super::code::codes;
use super::export_to::{self, Exporter};
use super::host;
use super::scope::Scope;
use crate::istio::VirtualService;
use crate::jwt::routing_claim;
use crate::text::quoted;

pub(super) use l4::CODES as L4_CODES;
pub use l4::route_destinations;
pub(super) use overlap::CODES as OVERLAP_CODES;
pub(super) use unreachable::CODES as UNREACHABLE_CODES;

codes! {
    DELEGATE_WITH_GATEWAYS: error "delegate-with-gateways", "remove gateways, or give hosts";
    DELEGATE_WITH_TLS: error "delegate-with-tls", "remove tls routes, or give hosts";
    DELEGATE_WITH_TCP: error "delegate-with-tcp", "remove tcp routes, or give hosts";
    LEGACY_GATEWAY: warning "virtual-service-gateway-legacy", "write the gateway as namespace/name";
    EMPTY_GATEWAY: error "virtual-service-gateway-empty", "write the gateway as namespace/name";
    GATEWAY_NAMESPACE: error "virtual-service-gateway-namespace", "give the name of a namespace";
    GATEWAY_NAME: error "virtual-service-gateway-name", "give the name of a Gateway";
    CLAIM_WITHOUT_GATEWAY: error "virtual-service-claim-without-gateway",
        "bind the VirtualService to a gateway only, or do not match on claims";
    WILDCARD_ON_MESH: error "virtual-service-wildcard-on-mesh", "name the hosts, or bind to a gateway only";
    NO_ROUTES: error "virtual-service-without-routes", "add an http, tls or tcp route";
}

/// Set on objects that the control plane makes from Kubernetes' routes.
const SEMANTICS: &str = "internal.istio.io/route-semantics";
/// The name that stands for the sidecars of the mesh.
const MESH: &str = "mesh";

/// What a check of a part has to know of the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Another virtual service refers to this one.
    pub delegate: bool,
    /// The control plane made it from Kubernetes' routes, so destinations are known to be good.
    pub from_kubernetes: bool,
}

/// Checks a VirtualService.
pub fn check(service: &VirtualService, mut scope: Scope<'_>) {
    let spec = &service.spec;
    let context = Context {
        delegate: spec.hosts.is_empty(),
        from_kubernetes: service.meta.annotation(SEMANTICS) == Some("gateway"),
    };
    let mut scope = scope.field("spec");
    if context.delegate {
        delegate(spec, scope.again());
    }
    gateway_names(&spec.gateways, context.from_kubernetes, scope.field("gateways"));
    let on_gateway = !spec.gateways.is_empty() && is_on_gateway(spec);
    if !on_gateway {
        claims(spec, scope.again());
    }
    hosts(spec, on_gateway, scope.field("hosts"));
    if spec.http.is_empty() && spec.tcp.is_empty() && spec.tls.is_empty() {
        scope.add(NO_ROUTES.says("http, tcp or tls must be provided in virtual service"));
    }
    scope.each("http", &spec.http, |route, scope| http::route(route, context, scope));
    scope.each("tls", &spec.tls, |route, scope| l4::tls(route, spec, context, scope));
    scope.each("tcp", &spec.tcp, |route, scope| l4::tcp(route, context, scope));
    export_to::check(&spec.export_to, &service.meta.namespace, Exporter::Other, scope.field("exportTo"));
    unreachable::http(&spec.http, scope.field("http"));
    unreachable::tcp(&spec.tcp, scope.field("tcp"));
    unreachable::tls(&spec.tls, scope.field("tls"));
}

/// What makes no sense when others decide where it applies.
fn delegate(spec: &Spec, mut scope: Scope<'_>) {
    scope.field("gateways").add_if(!spec.gateways.is_empty(), || {
        DELEGATE_WITH_GATEWAYS.says("delegate virtual service must have no gateways specified")
    });
    scope.field("tls").add_if(!spec.tls.is_empty(), || {
        DELEGATE_WITH_TLS.says("delegate virtual service must have no tls route specified")
    });
    scope.field("tcp").add_if(!spec.tcp.is_empty(), || {
        DELEGATE_WITH_TCP.says("delegate virtual service must have no tcp route specified")
    });
}

/// Whether it is bound to gateways alone. Parity: bound to nothing at all counts too.
fn is_on_gateway(spec: &Spec) -> bool {
    !spec.gateways.iter().any(|gateway| gateway == MESH)
}

/// Names of gateways: `namespace/name`, `mesh`, or a name alone.
fn gateway_names(names: &[String], from_kubernetes: bool, mut scope: Scope<'_>) {
    for (index, name) in names.iter().enumerate() {
        let mut scope = scope.item(index);
        let Some((namespace, gateway)) = name.split_once('/') else {
            if let [gateway, namespace, ..] = name.split('.').collect::<Vec<_>>()[..] {
                let preferred = quoted(&format!("{namespace}/{gateway}"));
                let message = format!(
                    "using legacy gatewayName format {}; prefer the <namespace>/<name> format: {preferred}",
                    quoted(name)
                );
                scope.add(LEGACY_GATEWAY.says(message).with_value(name));
            }
            scope.require(host::fqdn(name));
            // Parity: Istio looks at no name behind one without a namespace, so objects with bad ones exist.
            return;
        };
        scope.add_if(namespace.is_empty() || gateway.is_empty(), || {
            EMPTY_GATEWAY.says("config namespace and gateway name cannot be empty").with_value(name)
        });
        scope.add_if(!is_dns_label(namespace), || {
            GATEWAY_NAMESPACE
                .says(format!("invalid value for namespace: {}", quoted(namespace)))
                .with_value(name)
        });
        scope.add_if(!is_dns_label(gateway) && !from_kubernetes, || {
            GATEWAY_NAME.says(format!("invalid value for gateway name: {}", quoted(gateway))).with_value(name)
        });
    }
}

/// Claims of tokens are known at gateways only.
fn claims(spec: &Spec, mut scope: Scope<'_>) {
    scope.each("http", &spec.http, |route, mut scope| {
        scope.each("match", &route.r#match, |matching, mut scope| {
            let claim = |name: &str, _: &StringMatch, mut scope: Scope<'_>| {
                scope.add_if(routing_claim(name).is_some(), || {
                    let gateways = spec.gateways.join(" ");
                    let message = format!(
                        "JWT claim based routing (key: {name}) is only supported for gateway, found no gateways: \
                         [{gateways}]"
                    );
                    CLAIM_WITHOUT_GATEWAY.says(message).with_value(name)
                });
            };
            scope.each_entry("headers", &matching.headers, claim);
            scope.each_entry("withoutHeaders", &matching.without_headers, claim);
        });
    });
}

fn hosts(spec: &Spec, on_gateway: bool, mut scope: Scope<'_>) {
    let has_sni = spec.tls.iter().flat_map(|tls| &tls.r#match).any(|matching| !matching.sni_hosts.is_empty());
    let mut all_valid = true;
    for (index, name) in spec.hosts.iter().enumerate() {
        let checked = if on_gateway { host::gateway_wildcard(name, has_sni) } else { host::wildcard(name) };
        let checked = match checked {
            Err(_) if parse_ip(name).is_ok() => Ok(()),
            Ok(()) if !on_gateway && name == "*" => {
                let message = "wildcard host * is not allowed for virtual services bound to the mesh gateway";
                Err(WILDCARD_ON_MESH.says(message).with_value(name))
            }
            checked => checked,
        };
        all_valid &= checked.is_ok();
        scope.item(index).require(checked);
    }
    if all_valid {
        overlap::check(&spec.hosts, scope);
    }
}
