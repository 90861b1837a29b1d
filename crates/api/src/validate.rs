//! What makes an object acceptable: every rule Istio's admission applies, as pure functions.
//!
//! [`validate`] checks a whole object and reports everything that is wrong with it, each finding with the field it is
//! about, a [`Code`] of the [`catalogue`] and the words Istio has for it. Each kind has a module of its own with `check`,
//! and functions for the parts of it that are also met elsewhere. A part alone is checked with [`fragment`]:
//!
//! ```
//! use canopus_api::validate::{self, host};
//!
//! let report = validate::fragment(|mut scope| scope.require(host::fqdn("not a name")));
//! assert_eq!(report.error_text().unwrap(), r#"domain name "not a name" invalid (label "not a name" invalid)"#);
//! ```
//!
//! How the pieces fit: a leaf check is a function from a value to `Result<(), Fault>`; a check of something with fields
//! takes a [`Scope`], which knows the report and where in the object we are. Order matters: findings are in the order in
//! which Istio words them, because clients see them as one text.

pub mod catalogue;
pub mod code;
pub mod locate;
pub mod report;
pub mod scope;

// Checks that several kinds share.
pub mod address;
pub mod connection_pool;
pub mod destination;
pub mod duration;
pub mod export_to;
pub mod extension_provider;
pub mod header;
pub mod host;
pub mod labels;
pub mod locality;
mod metadata;
pub mod outlier_detection;
pub mod percent;
pub mod port;
pub mod reader;
pub mod regex;
pub mod retry;
pub mod selector;
pub mod tls;
pub mod traffic_policy;

// Kinds.
pub mod authorization_policy;
pub mod destination_rule;
pub mod envoy_filter;
pub mod gateway;
pub mod mesh_config;
pub mod mesh_networks;
pub mod peer_authentication;
pub mod proxy_config;
pub mod request_authentication;
pub mod service_entry;
pub mod sidecar;
pub mod telemetry;
pub mod traffic_extension;
pub mod virtual_service;
pub mod wasm_plugin;
pub mod workload_entry;
pub mod workload_group;

#[cfg(test)]
mod tests;

pub use code::{Code, Fault, Severity};
pub use locate::locate;
pub use report::{Finding, Report};
pub use scope::Scope;

use canopus_base::tree::Node;

use crate::kinds::Object;

/// Features of the control plane that change what is acceptable. The default is Istio's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Services without addresses are given some (`PILOT_ENABLE_IP_AUTOALLOCATE`).
    pub allocates_addresses: bool,
    /// The gateways of a network may be host names (`RESOLVE_HOSTNAME_GATEWAYS`).
    pub resolves_gateway_names: bool,
}

impl Settings {
    /// What Istio has when nothing is set.
    pub const DEFAULT: Self = Self { allocates_addresses: true, resolves_gateway_names: true };
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Reports all faults of an object.
pub fn validate(object: &Object) -> Report {
    validate_with(object, &Settings::DEFAULT)
}

/// Reports all faults of an object, for a control plane with these features.
pub fn validate_with(object: &Object, settings: &Settings) -> Report {
    let mut report = Report::default();
    let mut scope = Scope::new(&mut report, settings);
    // Parity: Istio looks no further once the metadata is refused.
    let refused = metadata::check(object, &mut scope);
    spec(object, if refused { scope.ours() } else { scope });
    report
}

/// Everything wrong with an object and with the document it was decoded from: a few rules are about what decoding loses.
pub fn validate_document(object: &Object, document: &Node) -> Report {
    let mut report = validate(object);
    if let Object::PeerAuthentication(_) = object {
        peer_authentication::check_document(document, Scope::new(&mut report, &Settings::DEFAULT));
    }
    report
}

/// What is wrong with a part of an object, or with what is no object: the configuration of the mesh and its networks.
/// Paths start at that part.
pub fn fragment(check: impl FnOnce(Scope<'_>)) -> Report {
    fragment_with(&Settings::DEFAULT, check)
}

/// Like [`fragment`], for a control plane with these features.
pub fn fragment_with(settings: &Settings, check: impl FnOnce(Scope<'_>)) -> Report {
    let mut report = Report::default();
    check(Scope::new(&mut report, settings));
    report
}

/// The rules of each kind. Kinds of Kubernetes are the API server's to check.
fn spec(object: &Object, scope: Scope<'_>) {
    match object {
        Object::VirtualService(object) => virtual_service::check(object, scope),
        Object::Gateway(object) => gateway::check(object, scope),
        Object::ServiceEntry(object) => service_entry::check(object, scope),
        Object::WorkloadEntry(object) => workload_entry::check(object, scope),
        Object::WorkloadGroup(object) => workload_group::check(object, scope),
        Object::DestinationRule(object) => destination_rule::check(object, scope),
        Object::Sidecar(object) => sidecar::check(object, scope),
        Object::EnvoyFilter(object) => envoy_filter::check(object, scope),
        Object::ProxyConfig(object) => proxy_config::check(object, scope),
        Object::AuthorizationPolicy(object) => authorization_policy::check(object, scope),
        Object::RequestAuthentication(object) => request_authentication::check(object, scope),
        Object::PeerAuthentication(object) => peer_authentication::check(object, scope),
        Object::Telemetry(object) => telemetry::check(object, scope),
        Object::WasmPlugin(object) => wasm_plugin::check(object, scope),
        Object::TrafficExtension(object) => traffic_extension::check(object, scope),
        _ => {}
    }
}
