//! Converting listeners to servers, with the routes they allow and their status.

use canopus_api::gateway_api::{
    FromNamespaces, GROUP, GatewaySpec, Listener, ListenerStatus, RouteGroupKind, TlsMode,
};
use canopus_api::{Kind, Meta};
use canopus_proto::istio::networking::v1alpha3::{Port, Server};

use super::class::Class;
use super::cluster_objects::ClusterObjects;
use super::condition::Conditions;
use super::fault::{Fault, reason};
use super::server_tls;

/// The HBONE port of waypoints.
const HBONE_PORT: u16 = 15008;
/// The message of conditions without a fault.
const FINE: &str = "No errors found";

/// The object that a listener is part of.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) kind: Kind,
    pub(super) meta: &'a Meta,
}

/// A converted listener.
pub(super) struct Built {
    /// The server; `None` for a TLS listener without TLS settings, which only reserves its name.
    pub(super) server: Option<Server>,
    pub(super) conditions: Conditions,
    /// Whether the server is served.
    pub(super) is_valid: bool,
}

/// The port of a listener. ListenerSets may leave it to the protocol.
pub(super) fn entry_port(listener: &Listener) -> Result<u16, Fault> {
    match (listener.port, &*listener.protocol) {
        (0, "HTTP") => Ok(80),
        (0, "HTTPS") => Ok(443),
        (0, other) => Err(Fault::new(
            reason::UNSUPPORTED_PROTOCOL,
            format!("protocol {other} requires a port to be set"),
        )),
        (port, _) => Ok(port),
    }
}

/// Converts a listener to a server.
pub(super) fn build(
    cluster: &ClusterObjects<'_>,
    owner: Owner<'_>,
    gateway: &GatewaySpec,
    listener: &Listener,
    class: Class,
) -> Built {
    let mut conditions = Conditions::default();
    conditions.expect("Accepted", "Accepted", FINE);
    conditions.expect("Programmed", "Programmed", FINE);
    conditions.set("Conflicted", false, "NoConflicts", FINE);
    conditions.expect("ResolvedRefs", "ResolvedRefs", FINE);
    let mut is_valid = true;

    let (tls, fault) = server_tls::build(cluster, owner, gateway, listener);
    if let Some(fault) = fault {
        is_valid = false;
        conditions.fail("ResolvedRefs", &fault);
        conditions.fail("Programmed", &Fault::new(reason::INVALID, "Bad TLS configuration"));
        let about_clients = [
            reason::INVALID_CA_CERTIFICATE_REF,
            reason::INVALID_CA_CERTIFICATE_KIND,
            reason::REF_NOT_PERMITTED,
        ];
        if about_clients.contains(&fault.reason) {
            conditions.fail("Accepted", &Fault::new(reason::NO_VALID_CA_CERTIFICATE, fault.message));
        }
    }
    let port = entry_port(listener).unwrap_or_else(|fault| {
        is_valid = false;
        conditions.fail("Accepted", &fault);
        0
    });
    let protocol = protocol(listener, class).unwrap_or_else(|fault| {
        is_valid = false;
        conditions.fail("Accepted", &fault);
        ""
    });
    if let Some(fault) = unexpected(listener, class) {
        conditions.fail("Accepted", &fault);
    }
    let holds_a_place = tls.is_none() && matches!(&*listener.protocol, "HTTPS" | "TLS");
    if holds_a_place && owner.kind == Kind::ListenerSet {
        is_valid = false;
        let message = format!("protocol is {} but no TLS section is defined", listener.protocol);
        conditions.fail("Accepted", &Fault::new(reason::UNSUPPORTED_PROTOCOL, message));
        conditions.fail("Programmed", &Fault::new(reason::INVALID, "Bad TLS configuration"));
    }
    let server = (!holds_a_place).then(|| Server {
        port: Some(Port {
            name: "default".to_owned(),
            number: port.into(),
            protocol: protocol.to_owned(),
            ..Default::default()
        }),
        hosts: hosts(cluster, &owner.meta.namespace, listener),
        tls,
        ..Default::default()
    });
    Built { server, conditions, is_valid }
}

/// The conditions of a conflicting listener.
pub(super) fn conflicted(why: &'static str) -> Conditions {
    let fault = Fault::new(why, "Listener has a conflict with another listener attached to the same Gateway");
    let mut conditions = Conditions::default();
    conditions.fail("Accepted", &fault);
    conditions.fail("Programmed", &fault);
    conditions.set("Conflicted", true, why, fault.message);
    conditions
}

/// The status of a listener, without the number of attached routes.
pub(super) fn status(
    listener: &Listener,
    mut conditions: Conditions,
    generation: i64,
    present: Option<&ListenerStatus>,
) -> ListenerStatus {
    let (supported_kinds, all_known) = supported_kinds(listener);
    if !all_known {
        conditions.set("ResolvedRefs", false, "InvalidRouteKinds", "Invalid route kinds");
    }
    let present = present.map(|status| status.conditions.as_slice()).unwrap_or_default();
    ListenerStatus {
        name: listener.name.clone(),
        attached_routes: 0,
        conditions: conditions.write(generation, present),
        supported_kinds,
    }
}

/// The kinds of routes that a listener allows, and whether all kinds it names are supported.
pub(super) fn supported_kinds(listener: &Listener) -> (Vec<RouteGroupKind>, bool) {
    let kinds: &[&str] = match &*listener.protocol {
        "HTTP" | "HTTPS" => &["HTTPRoute", "GRPCRoute"],
        "TCP" => &["TCPRoute"],
        "TLS" if listener.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Terminate) => {
            &["TLSRoute", "TCPRoute"]
        }
        "TLS" => &["TLSRoute"],
        _ => &[],
    };
    let supported = kinds.iter().map(|kind| RouteGroupKind { group: GROUP.into(), kind: (*kind).into() });
    let asked = &listener.allowed_routes.kinds;
    if asked.is_empty() {
        return (supported.collect(), true);
    }
    let both: Vec<_> = supported.filter(|kind| asked.contains(kind)).collect();
    let all_known = both.len() == asked.len();
    (both, all_known)
}

/// The protocol of the server.
fn protocol(listener: &Listener, class: Class) -> Result<&str, Fault> {
    let unsupported = |message| Fault::new(reason::UNSUPPORTED_PROTOCOL, message);
    match &*listener.protocol {
        known @ ("HTTP" | "HTTPS" | "TLS" | "TCP") => Ok(known),
        "HBONE" if class.takes_tunnels() => Ok("HBONE"),
        "HBONE" => Err(unsupported("protocol \"HBONE\" is only supported for waypoint proxies".to_owned())),
        other => {
            let upper = other.to_uppercase();
            let hint = match upper.as_str() {
                "HTTP" | "HTTPS" | "TLS" | "TCP" | "HBONE" => {
                    format!(". hint: {upper:?} (uppercase) may be supported")
                }
                _ => String::new(),
            };
            Err(unsupported(format!("protocol {other:?} is unsupported{hint}")))
        }
    }
}

/// The fault of a listener that its class does not expect. Such listeners still work.
fn unexpected(listener: &Listener, class: Class) -> Option<Fault> {
    let ends_tls = |mode| listener.tls.as_ref().is_some_and(|tls| tls.mode == mode);
    let is_tunnel = listener.port == HBONE_PORT && &*listener.protocol == "HBONE";
    let (is_expected, message) = match class {
        Class::Waypoint => (is_tunnel, "Expected a single listener on port 15008 with protocol \"HBONE\""),
        Class::EastWest => {
            let is_expected = if listener.port == HBONE_PORT {
                is_tunnel && ends_tls(TlsMode::Terminate)
            } else {
                &*listener.protocol == "TLS" && ends_tls(TlsMode::Passthrough)
            };
            let message = "East-west gateway listeners must be either port 15008 with protocol \"HBONE\" and \
                           TLS.Mode == Terminate, or TLS with TLS.Mode == Passthrough";
            (is_expected, message)
        }
        Class::Gateway | Class::Remote => return None,
    };
    (!is_expected).then(|| Fault::new(reason::UNSUPPORTED_PROTOCOL, message))
}

/// The host of the listener for each namespace whose routes may attach; `~` means none.
fn hosts(cluster: &ClusterObjects<'_>, namespace: &str, listener: &Listener) -> Vec<String> {
    let host = listener.hostname.as_deref().unwrap_or("*");
    let namespaces = namespaces(cluster, namespace, listener);
    if namespaces.is_empty() {
        return vec![format!("~/{host}")];
    }
    namespaces.iter().map(|namespace| format!("{namespace}/{host}")).collect()
}

/// The namespaces whose routes may attach; `*` means all.
fn namespaces(cluster: &ClusterObjects<'_>, own: &str, listener: &Listener) -> Vec<Box<str>> {
    let allowed = &listener.allowed_routes.namespaces;
    match (&allowed.from, &allowed.selector) {
        (FromNamespaces::Same, _) => vec![own.into()],
        (FromNamespaces::All, _) | (_, None) => vec!["*".into()],
        (_, Some(selector)) => {
            let Ok(selector) = selector.compile() else { return Vec::new() };
            let all = cluster.namespaces().into_iter();
            all.filter(|(_, labels)| selector.matches(labels)).map(|(name, _)| name).collect()
        }
    }
}
