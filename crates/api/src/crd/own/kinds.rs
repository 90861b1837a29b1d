//! What the registry of kinds does not say about Istio's.

use crate::Kind;

/// One kind to define.
pub(super) struct Definition {
    pub(super) kind: Kind,
    /// The protobuf message of the spec.
    pub(super) message: &'static str,
    /// The version in which objects are stored.
    pub(super) storage: &'static str,
    /// Whether an object without a spec is refused.
    pub(super) needs_spec: bool,
    /// The value of the label that says which part of Istio the definition is of.
    pub(super) part_of: Option<&'static str>,
}

const fn networking(kind: Kind, message: &'static str) -> Definition {
    Definition { kind, message, storage: "v1", needs_spec: false, part_of: None }
}

const fn security(kind: Kind, message: &'static str) -> Definition {
    Definition { part_of: Some("security"), ..networking(kind, message) }
}

const fn extension(kind: Kind, message: &'static str) -> Definition {
    Definition { storage: "v1alpha1", needs_spec: true, ..networking(kind, message) }
}

/// Istio's kinds.
pub(super) const ALL: [Definition; 15] = [
    networking(Kind::VirtualService, "istio.networking.v1alpha3.VirtualService"),
    networking(Kind::Gateway, "istio.networking.v1alpha3.Gateway"),
    Definition {
        needs_spec: true,
        ..networking(Kind::ServiceEntry, "istio.networking.v1alpha3.ServiceEntry")
    },
    Definition {
        needs_spec: true,
        ..networking(Kind::WorkloadEntry, "istio.networking.v1alpha3.WorkloadEntry")
    },
    Definition {
        needs_spec: true,
        ..networking(Kind::WorkloadGroup, "istio.networking.v1alpha3.WorkloadGroup")
    },
    networking(Kind::DestinationRule, "istio.networking.v1alpha3.DestinationRule"),
    networking(Kind::Sidecar, "istio.networking.v1alpha3.Sidecar"),
    Definition {
        storage: "v1alpha3",
        ..networking(Kind::EnvoyFilter, "istio.networking.v1alpha3.EnvoyFilter")
    },
    Definition {
        storage: "v1beta1",
        ..networking(Kind::ProxyConfig, "istio.networking.v1beta1.ProxyConfig")
    },
    security(Kind::AuthorizationPolicy, "istio.security.v1beta1.AuthorizationPolicy"),
    security(Kind::RequestAuthentication, "istio.security.v1beta1.RequestAuthentication"),
    security(Kind::PeerAuthentication, "istio.security.v1beta1.PeerAuthentication"),
    Definition {
        storage: "v1alpha1",
        part_of: Some("telemetry"),
        ..networking(Kind::Telemetry, "istio.telemetry.v1alpha1.Telemetry")
    },
    extension(Kind::WasmPlugin, "istio.extensions.v1alpha1.WasmPlugin"),
    extension(Kind::TrafficExtension, "istio.extensions.v1alpha1.TrafficExtension"),
];
