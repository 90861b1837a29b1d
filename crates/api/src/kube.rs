//! Kubernetes' own kinds. Each type holds only what a mesh reads of its object.

mod config_map;
mod endpoints;
mod namespace;
mod pod;
mod secret;
mod service;

pub use config_map::{ConfigMap, ConfigMapData};
pub use endpoints::{
    AddressType, Endpoint, EndpointConditions, EndpointPort, EndpointSlice, EndpointSliceData,
    ObjectReference,
};
pub use namespace::{Namespace, NamespaceSpec, NamespaceStatus};
pub use pod::{
    Container, ContainerPort, ContainerState, ContainerStatus, ContainerTerminated, ContainerWaiting, Pod,
    PodIp, PodPhase, PodSpec, PodStatus,
};
pub use secret::{Secret, SecretBytes, SecretData};
pub use service::{
    LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec, ServiceStatus, ServiceType,
    TransportProtocol,
};
