//! Istio's own kinds: their specs are protobuf messages.

use canopus_proto::istio::extensions::v1alpha1 as extensions;
use canopus_proto::istio::meta::v1alpha1 as meta;
use canopus_proto::istio::networking::{v1alpha3 as networking, v1beta1};
use canopus_proto::istio::security::v1beta1 as security;
use canopus_proto::istio::telemetry::v1alpha1 as telemetry;

use crate::decode::proto;
use crate::resource::Resource;

pub use meta::IstioStatus;

/// Routes of hosts.
pub type VirtualService = Resource<networking::VirtualService, IstioStatus>;
/// Servers that a gateway opens.
pub type Gateway = Resource<networking::Gateway, IstioStatus>;
/// A service that no registry knows.
pub type ServiceEntry = Resource<networking::ServiceEntry, networking::ServiceEntryStatus>;
/// A workload that is not a pod.
pub type WorkloadEntry = Resource<networking::WorkloadEntry, IstioStatus>;
/// What workload entries that register themselves have in common.
pub type WorkloadGroup = Resource<networking::WorkloadGroup, IstioStatus>;
/// How traffic to a host is sent, once it is routed.
pub type DestinationRule = Resource<networking::DestinationRule, IstioStatus>;
/// What a proxy listens for and may reach.
pub type Sidecar = Resource<networking::Sidecar, IstioStatus>;
/// Patches of generated configuration.
pub type EnvoyFilter = Resource<networking::EnvoyFilter, IstioStatus>;
/// Settings of proxies, below the mesh's own.
pub type ProxyConfig = Resource<v1beta1::ProxyConfig, IstioStatus>;
/// Which callers may access a workload.
pub type AuthorizationPolicy = Resource<security::AuthorizationPolicy, IstioStatus>;
/// Which tokens are accepted.
pub type RequestAuthentication = Resource<security::RequestAuthentication, IstioStatus>;
/// Whether peers must use mutual TLS.
pub type PeerAuthentication = Resource<security::PeerAuthentication, IstioStatus>;
/// Metrics, traces and access logs.
pub type Telemetry = Resource<telemetry::Telemetry, IstioStatus>;
/// A WebAssembly filter.
pub type WasmPlugin = Resource<extensions::WasmPlugin, IstioStatus>;
/// A filter of the user, WebAssembly or Lua.
pub type TrafficExtension = Resource<extensions::TrafficExtension, IstioStatus>;

proto! {
    networking::VirtualService, networking::Gateway, networking::ServiceEntry, networking::ServiceEntryStatus,
    networking::WorkloadEntry, networking::WorkloadGroup, networking::DestinationRule, networking::Sidecar,
    networking::EnvoyFilter, v1beta1::ProxyConfig, security::AuthorizationPolicy, security::RequestAuthentication,
    security::PeerAuthentication, telemetry::Telemetry, extensions::WasmPlugin, extensions::TrafficExtension,
    IstioStatus,
}
