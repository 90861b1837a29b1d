//! Kubernetes' own kinds. Each type holds only what a mesh reads of its object.

mod config_map;
mod control;
mod endpoints;
mod ingress;
mod namespace;
mod node;
mod pod;
mod secret;
mod service;
mod workload;

pub use config_map::{ConfigMap, ConfigMapData};
pub use control::{
    CertificateSigningRequest, CertificateSigningRequestSpec, CertificateSigningRequestStatus,
    ClusterTrustBundle, ClusterTrustBundleSpec, CustomResourceDefinition, CustomResourceDefinitionSpec,
    CustomResourceDefinitionStatus, CustomResourceNames, CustomResourceVersion, Lease, LeaseSpec,
    LocalReference, MutatingWebhookConfiguration, MutatingWebhooks, ServiceAccount, ServiceAccountData,
    ValidatingWebhookConfiguration, ValidatingWebhooks, Webhook, WebhookClientConfig, WebhookRule,
    WebhookService,
};
pub use endpoints::{
    AddressType, Endpoint, EndpointAddress, EndpointConditions, EndpointPort, EndpointSlice,
    EndpointSliceData, EndpointSubset, Endpoints, EndpointsData, ObjectReference,
};
pub use ingress::{
    Ingress, IngressBackend, IngressClass, IngressClassSpec, IngressHttp, IngressPath, IngressPort,
    IngressRule, IngressService, IngressSpec, IngressStatus, IngressTls, PathType,
};
pub use namespace::{Namespace, NamespaceSpec, NamespaceStatus};
pub use node::{Node, NodeAddress, NodeInfo, NodeSpec, NodeStatus, Taint};
pub use pod::{
    Container, ContainerPort, ContainerState, ContainerStatus, ContainerTerminated, ContainerWaiting, Pod,
    PodIp, PodPhase, PodSpec, PodStatus,
};
pub use secret::{Secret, SecretBytes, SecretData};
pub use service::{
    LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec, ServiceStatus, ServiceType,
    TransportProtocol,
};
pub use workload::{
    DaemonSet, DaemonSetSpec, DaemonSetStatus, Deployment, DeploymentSpec, DeploymentStatus,
    HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, PodDisruptionBudget, PodDisruptionBudgetSpec,
    PodTemplate, ScaleTarget, StatefulSet, StatefulSetSpec, StatefulSetStatus,
};
