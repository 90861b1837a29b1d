//! Resolving the backends of routes.

use canopus_api::gateway_api::{Backend, ExternalBackend};
use canopus_api::{Kind, ObjectKey};
use canopus_proto::istio::networking::v1alpha3::{Destination, PortSelector};
use canopus_runtime::flags::{
    ENABLE_GATEWAY_API_INFERENCE_EXTENSION, ENABLE_MCS_HOST, MCS_API_GROUP, PILOT_ENABLE_ALPHA_GATEWAY_API,
};

use super::cluster_objects::ClusterObjects;
use super::fault::{Fault, reason};
use super::grant::is_granted;
use super::inference::{EndpointPicker, shadow_service_name};
use crate::reference::gateway_api::{backend_key, referenced_kind};
use crate::service::ServicesByHost;

/// The route that refers to a backend.
#[derive(Clone, Copy)]
pub(super) struct Referrer<'a> {
    pub(super) kind: Kind,
    pub(super) namespace: &'a str,
    /// Whether backends of other namespaces need a ReferenceGrant. Routes of the mesh do not.
    pub(super) needs_grant: bool,
}

/// A resolved backend. With a fault, requests to this backend fail and others are served.
pub(super) struct Resolved {
    pub(super) destination: Destination,
    pub(super) fault: Option<Fault>,
}

impl Resolved {
    fn nowhere(reason: &'static str, message: impl Into<String>) -> Self {
        Self { destination: Destination::default(), fault: Some(Fault::new(reason, message)) }
    }
}

/// Resolves the backends of a rule, without those of weight 0. The returned fault concerns some backends only.
/// `seen` reads the fields that all kinds of references share, `make` builds the destination.
pub(super) fn destinations<'a, R, D>(
    cluster: &ClusterObjects<'_>,
    route: Referrer<'_>,
    references: &'a [R],
    seen: impl Fn(&'a R) -> Backend<'a>,
    make: impl Fn(&'a R, Destination, i32) -> Result<D, Fault>,
) -> Result<(Vec<D>, Option<Fault>), Fault> {
    let used: Vec<_> = references
        .iter()
        .map(|reference| (reference, seen(reference)))
        .filter(|(_, backend)| backend.weight != 0)
        .collect();
    let is_single = used.len() == 1;
    let mut found = Vec::with_capacity(used.len());
    let mut fault = None;
    for (reference, backend) in used {
        let resolved = resolve(cluster, route, &backend)?;
        fault = resolved.fault.or(fault);
        found.push(make(reference, resolved.destination, if is_single { 0 } else { backend.weight })?);
    }
    Ok((found, fault))
}

/// The result of [`resolve`]: `Err` if the whole rule cannot be used.
pub(super) type Resolution = Result<Resolved, Fault>;

/// Resolves a backend.
pub(super) fn resolve(
    cluster: &ClusterObjects<'_>,
    route: Referrer<'_>,
    backend: &Backend<'_>,
) -> Resolution {
    if let Some(fault) = missing_grant(cluster, route, backend) {
        return Ok(Resolved { destination: Destination::default(), fault: Some(fault) });
    }
    let flags = &cluster.settings.flags;
    let namespace = backend.namespace.unwrap_or(route.namespace);
    let invalid = |message: &str| Fault::new(reason::INVALID_DESTINATION, message);
    let (host, exists) = match (backend.group, backend.kind) {
        ("", "Service") => {
            if backend.name.contains('.') {
                let message = "service name invalid; the name of the Service must be used, not the hostname.";
                return Err(invalid(message));
            }
            let exists = cluster.exists(Kind::Service, namespace, backend.name);
            (cluster.service_host(backend.name, namespace), exists)
        }
        ("networking.istio.io", "Hostname") => {
            if backend.namespace.is_some() {
                return Err(invalid("namespace may not be set with Hostname type"));
            }
            (backend.name.to_owned(), cluster.host_exists(backend.name, namespace))
        }
        (group, "ServiceImport") if group == flags.get(MCS_API_GROUP) => {
            let exists = cluster.exists(Kind::Service, namespace, backend.name);
            if flags.get(ENABLE_MCS_HOST) {
                (format!("{}.{namespace}.svc.clusterset.local", backend.name), exists)
            } else {
                (cluster.service_host(backend.name, namespace), exists)
            }
        }
        (group, kind) => match referenced_kind(group, kind) {
            Some(Kind::ExternalBackend) => return Ok(external(cluster, namespace, backend)),
            Some(Kind::InferencePool) => return pool(cluster, namespace, backend),
            _ => {
                let message = format!("referencing unsupported backendRef: group {group:?} kind {kind:?}");
                return Ok(Resolved::nowhere(reason::INVALID_KIND, message));
            }
        },
    };
    let Some(port) = backend.port else { return Err(invalid("port is required in backendRef")) };
    let fault = (!exists).then(|| not_found(&host));
    Ok(Resolved { destination: destination(host, port.into()), fault })
}

fn not_found(host: &str) -> Fault {
    Fault::new(reason::BACKEND_NOT_FOUND, format!("backend({host}) not found"))
}

fn destination(host: String, port: u32) -> Destination {
    Destination { host, port: Some(PortSelector { number: port }), ..Default::default() }
}

fn missing_grant(cluster: &ClusterObjects<'_>, route: Referrer<'_>, backend: &Backend<'_>) -> Option<Fault> {
    let namespace = backend.namespace.filter(|namespace| *namespace != route.namespace)?;
    let is_allowed = || {
        let key = backend_key(backend, route.namespace);
        key.is_some_and(|key: ObjectKey| is_granted(cluster, route.kind, route.namespace, &key))
    };
    if !route.needs_grant || is_allowed() {
        return None;
    }
    let message = format!(
        "backendRef {}/{namespace} not accessible to a {} in namespace {:?} (missing a ReferenceGrant?)",
        backend.name,
        route.kind.info().kind,
        route.namespace
    );
    Some(Fault::new(reason::REF_NOT_PERMITTED, message))
}

/// Resolves an XBackend. A ServiceEntry must define its host, too.
fn external(cluster: &ClusterObjects<'_>, namespace: &str, backend: &Backend<'_>) -> Resolved {
    let name = backend.name;
    if !cluster.settings.flags.get(PILOT_ENABLE_ALPHA_GATEWAY_API) {
        let message = "The Alpha Gateway API is not enabled, XBackend is invalid. To enable, set \
                       PILOT_ENABLE_ALPHA_GATEWAY_API to true in istiod.";
        return Resolved::nowhere(reason::INVALID_KIND, message);
    }
    let Some(object) = cluster.object::<ExternalBackend>(namespace, name) else {
        return Resolved::nowhere(reason::BACKEND_NOT_FOUND, format!("backend({name}) not found"));
    };
    let outside =
        object.spec.external_hostname.as_ref().filter(|_| &*object.spec.r#type == "ExternalHostname");
    let Some(outside) = outside else {
        let message = format!("backend({name}) type: expected ExternalHostname, got {}", object.spec.r#type);
        return Resolved::nowhere(reason::INVALID_KIND, message);
    };
    let port = object.spec.port.port;
    if let Some(other) = backend.port.filter(|asked| *asked != port) {
        let message = format!("backend({name}) does not expose port {other}, expected {port}");
        return Resolved::nowhere(reason::BACKEND_NOT_FOUND, message);
    }
    let host = outside.hostname.to_string();
    let fault = (!cluster.host_exists(&host, namespace)).then(|| not_found(&host));
    Resolved { destination: destination(host, port.into()), fault }
}

/// Resolves an InferencePool to its shadow Service.
fn pool(cluster: &ClusterObjects<'_>, namespace: &str, backend: &Backend<'_>) -> Resolution {
    let name = backend.name;
    if !cluster.settings.flags.get(ENABLE_GATEWAY_API_INFERENCE_EXTENSION) {
        let message = "InferencePool is not enabled. To enable, set ENABLE_GATEWAY_API_INFERENCE_EXTENSION to true in \
                       istiod";
        return Ok(Resolved::nowhere(reason::INVALID_KIND, message));
    }
    if name.contains('.') {
        let message =
            "InferencePool.Name invalid; the name of the InferencePool must be used, not the hostname.";
        return Err(Fault::new(reason::INVALID_DESTINATION, message));
    }
    if !cluster.exists(Kind::InferencePool, namespace, name) {
        return Ok(Resolved::nowhere(reason::BACKEND_NOT_FOUND, format!("backend({name}) not found")));
    }
    let host = cluster.service_host(&shadow_service_name(name), namespace);
    let services = cluster.ctx.get::<ServicesByHost>(&host.as_str().into());
    let Some(service) = services.get(namespace) else {
        return Ok(Resolved::nowhere(reason::BACKEND_NOT_FOUND, format!("backend({host}) not found")));
    };
    if EndpointPicker::of(service).is_none() {
        let message = "InferencePool service invalid, extensionRef labels not found";
        return Err(Fault::new(reason::INVALID_DESTINATION, message));
    }
    let port = service.ports.first().map_or(0, |port| port.number);
    Ok(Resolved { destination: destination(host, port), fault: None })
}
