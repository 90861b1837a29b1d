//! The table of kinds. Everything that has to know all kinds is made from it: decoding, printing, what sources watch, and
//! the page of kinds in the documentation.

mod lookup;
mod object;

use std::sync::Arc;

use canopus_base::tree::Node;

use crate::decode::{DecodeError, Decoded, Options, Problem};
use crate::meta::{Meta, Relevance};
use crate::registry::{Category, Column, Info, Scope};
use crate::resource::Resource;
use crate::{gateway_api, inference, istio, kube, mcs};

use object::read_typed;

pub use lookup::LookupError;
pub use object::{ObjectKey, Typed};

/// Makes the kinds, the object that is of any of them, and the conversions between.
macro_rules! kinds {
    ($($variant:ident($type:ty) { $($info:tt)* })+) => {
        /// Every kind the mesh reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = concat!("Objects of type [`", stringify!($type), "`].")] $variant,)+
        }

        impl Kind {
            /// All kinds, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The row of the registry.
            pub const fn info(self) -> &'static Info {
                const ROWS: &[Info] = &[$(Info { $($info)* ..Info::BASE }),+];
                &ROWS[self as usize]
            }
        }

        /// An object of any kind. Cloning shares it.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object {
            $(#[doc = concat!("A [`", stringify!($type), "`].")] $variant(Arc<$type>),)+
        }

        impl Object {
            /// The kind.
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$variant(_) => Kind::$variant,)+
                }
            }

            /// The metadata.
            pub fn meta(&self) -> &Meta {
                match self {
                    $(Self::$variant(object) => &object.meta,)+
                }
            }

            /// Whether nothing but the resource version of the metadata differs.
            pub fn same_but_for_version(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$variant(this), Self::$variant(other)) => {
                        Arc::ptr_eq(this, other)
                            || (this.meta.same_but_for_version(&other.meta)
                                && this.spec == other.spec
                                && this.status == other.status)
                    })+
                    _ => false,
                }
            }

            /// Whether nothing differs of what counts.
            pub fn same_where_it_counts(&self, other: &Self, counts: &Relevance) -> bool {
                match (self, other) {
                    $((Self::$variant(this), Self::$variant(other)) => {
                        Arc::ptr_eq(this, other)
                            || (this.meta.same_where_it_counts(&other.meta, counts)
                                && this.spec == other.spec
                                && (!counts.status || this.status == other.status))
                    })+
                    _ => false,
                }
            }

            /// The document of this object, in the version to write, without what is at its default.
            pub fn to_node(&self) -> Node {
                match self {
                    $(Self::$variant(object) => object.write(Kind::$variant.info()),)+
                }
            }

            pub(crate) fn read(kind: Kind, node: &Node, options: Options) -> Result<Decoded<Self>, Vec<Problem>> {
                match kind {
                    $(Kind::$variant => {
                        let decoded: Decoded<$type> = Resource::read(node, options)?;
                        Ok(decoded.map(|object| Self::$variant(Arc::new(object))))
                    })+
                }
            }
        }

        $(impl Typed for $type {
            const KIND: Kind = Kind::$variant;

            fn meta(&self) -> &Meta {
                &self.meta
            }

            fn downcast(object: &Object) -> Option<&Arc<Self>> {
                match object {
                    Object::$variant(object) => Some(object),
                    _ => None,
                }
            }

            fn into_object(this: Arc<Self>) -> Object {
                Object::$variant(this)
            }

            fn read(node: &Node, options: Options) -> Result<Decoded<Self>, DecodeError> {
                read_typed(Self::KIND, node, options)
            }
        })+
    };
}

const fn column(name: &'static str, path: &'static str) -> Column {
    Column { name, path }
}

const NETWORKING: &str = "networking.istio.io";
const SECURITY: &str = "security.istio.io";
const EXTENSIONS: &str = "extensions.istio.io";

kinds! {
    // Istio

    VirtualService(istio::VirtualService) {
        kind: "VirtualService", plural: "virtualservices", short_names: &["vs"],
        group: NETWORKING, versions: &["v1", "v1beta1", "v1alpha3"], category: Category::Istio,
        columns: &[column("Gateways", ".spec.gateways"), column("Hosts", ".spec.hosts")],
    }
    Gateway(istio::Gateway) {
        kind: "Gateway", plural: "gateways", short_names: &["gw"],
        group: NETWORKING, versions: &["v1", "v1beta1", "v1alpha3"], category: Category::Istio,
    }
    ServiceEntry(istio::ServiceEntry) {
        kind: "ServiceEntry", plural: "serviceentries", short_names: &["se"],
        group: NETWORKING, versions: &["v1", "v1beta1", "v1alpha3"], category: Category::Istio,
        columns: &[
            column("Hosts", ".spec.hosts"),
            column("Location", ".spec.location"),
            column("Resolution", ".spec.resolution"),
        ],
    }
    WorkloadEntry(istio::WorkloadEntry) {
        kind: "WorkloadEntry", plural: "workloadentries", short_names: &["we"],
        group: NETWORKING, versions: &["v1", "v1beta1", "v1alpha3"], category: Category::Istio,
        columns: &[column("Address", ".spec.address")],
    }
    WorkloadGroup(istio::WorkloadGroup) {
        kind: "WorkloadGroup", plural: "workloadgroups", short_names: &["wg"],
        group: NETWORKING, versions: &["v1", "v1beta1", "v1alpha3"], category: Category::Istio,
    }
    DestinationRule(istio::DestinationRule) {
        kind: "DestinationRule", plural: "destinationrules", short_names: &["dr"],
        group: NETWORKING, versions: &["v1", "v1beta1", "v1alpha3"], category: Category::Istio,
        columns: &[column("Host", ".spec.host")],
    }
    Sidecar(istio::Sidecar) {
        kind: "Sidecar", plural: "sidecars",
        group: NETWORKING, versions: &["v1", "v1beta1", "v1alpha3"], category: Category::Istio,
    }
    EnvoyFilter(istio::EnvoyFilter) {
        kind: "EnvoyFilter", plural: "envoyfilters",
        group: NETWORKING, versions: &["v1alpha3"], category: Category::Istio,
    }
    ProxyConfig(istio::ProxyConfig) {
        kind: "ProxyConfig", plural: "proxyconfigs",
        group: NETWORKING, versions: &["v1beta1"], category: Category::Istio,
    }
    AuthorizationPolicy(istio::AuthorizationPolicy) {
        kind: "AuthorizationPolicy", plural: "authorizationpolicies", short_names: &["ap"],
        group: SECURITY, versions: &["v1", "v1beta1"], category: Category::Istio,
        columns: &[column("Action", ".spec.action")],
    }
    RequestAuthentication(istio::RequestAuthentication) {
        kind: "RequestAuthentication", plural: "requestauthentications", short_names: &["ra"],
        group: SECURITY, versions: &["v1", "v1beta1"], category: Category::Istio,
    }
    PeerAuthentication(istio::PeerAuthentication) {
        kind: "PeerAuthentication", plural: "peerauthentications", short_names: &["pa"],
        group: SECURITY, versions: &["v1", "v1beta1"], category: Category::Istio,
        columns: &[column("Mode", ".spec.mtls.mode")],
    }
    Telemetry(istio::Telemetry) {
        kind: "Telemetry", plural: "telemetries", short_names: &["telemetry"],
        group: "telemetry.istio.io", versions: &["v1", "v1alpha1"], category: Category::Istio,
    }
    WasmPlugin(istio::WasmPlugin) {
        kind: "WasmPlugin", plural: "wasmplugins",
        group: EXTENSIONS, versions: &["v1alpha1"], category: Category::Istio,
    }
    TrafficExtension(istio::TrafficExtension) {
        kind: "TrafficExtension", plural: "trafficextensions",
        group: EXTENSIONS, versions: &["v1alpha1"], category: Category::Istio,
    }

    // Kubernetes

    Service(kube::Service) {
        kind: "Service", plural: "services", short_names: &["svc"],
        columns: &[
            column("Type", ".spec.type"),
            column("Cluster-IP", ".spec.clusterIP"),
            column("Port(s)", ".spec.ports[*].port"),
        ],
    }
    EndpointSlice(kube::EndpointSlice) {
        kind: "EndpointSlice", plural: "endpointslices", group: "discovery.k8s.io",
        columns: &[
            column("AddressType", ".addressType"),
            column("Ports", ".ports[*].port"),
            column("Endpoints", ".endpoints[*].addresses[0]"),
        ],
    }
    Pod(kube::Pod) {
        kind: "Pod", plural: "pods", short_names: &["po"],
        columns: &[column("Status", ".status.phase"), column("IP", ".status.podIP"), column("Node", ".spec.nodeName")],
    }
    Namespace(kube::Namespace) {
        kind: "Namespace", plural: "namespaces", short_names: &["ns"], scope: Scope::Cluster,
        columns: &[column("Status", ".status.phase")],
    }
    Secret(kube::Secret) {
        kind: "Secret", plural: "secrets", columns: &[column("Type", ".type")],
    }
    ConfigMap(kube::ConfigMap) {
        kind: "ConfigMap", plural: "configmaps", short_names: &["cm"],
    }
    Endpoints(kube::Endpoints) {
        kind: "Endpoints", plural: "endpoints", short_names: &["ep"],
        columns: &[column("Endpoints", ".subsets[*].addresses[*].ip")],
    }
    Node(kube::Node) {
        kind: "Node", plural: "nodes", short_names: &["no"], scope: Scope::Cluster,
        columns: &[column("Version", ".status.nodeInfo.kubeletVersion")],
    }
    ServiceAccount(kube::ServiceAccount) {
        kind: "ServiceAccount", plural: "serviceaccounts", short_names: &["sa"],
    }
    Deployment(kube::Deployment) {
        kind: "Deployment", plural: "deployments", short_names: &["deploy"], group: "apps",
        columns: &[
            column("Ready", ".status.readyReplicas"),
            column("Up-to-date", ".status.updatedReplicas"),
            column("Available", ".status.availableReplicas"),
        ],
    }
    DaemonSet(kube::DaemonSet) {
        kind: "DaemonSet", plural: "daemonsets", short_names: &["ds"], group: "apps",
        columns: &[
            column("Desired", ".status.desiredNumberScheduled"),
            column("Ready", ".status.numberReady"),
            column("Available", ".status.numberAvailable"),
        ],
    }
    StatefulSet(kube::StatefulSet) {
        kind: "StatefulSet", plural: "statefulsets", short_names: &["sts"], group: "apps",
        columns: &[column("Ready", ".status.readyReplicas")],
    }
    HorizontalPodAutoscaler(kube::HorizontalPodAutoscaler) {
        kind: "HorizontalPodAutoscaler", plural: "horizontalpodautoscalers", short_names: &["hpa"],
        group: "autoscaling", versions: &["v2"],
        columns: &[
            column("Reference", ".spec.scaleTargetRef.name"),
            column("MinPods", ".spec.minReplicas"),
            column("MaxPods", ".spec.maxReplicas"),
        ],
    }
    PodDisruptionBudget(kube::PodDisruptionBudget) {
        kind: "PodDisruptionBudget", plural: "poddisruptionbudgets", short_names: &["pdb"], group: "policy",
        columns: &[
            column("Min available", ".spec.minAvailable"),
            column("Max unavailable", ".spec.maxUnavailable"),
        ],
    }
    Ingress(kube::Ingress) {
        kind: "Ingress", plural: "ingresses", short_names: &["ing"], group: "networking.k8s.io",
        columns: &[
            column("Class", ".spec.ingressClassName"),
            column("Hosts", ".spec.rules[*].host"),
            column("Address", ".status.loadBalancer.ingress[*].ip"),
        ],
    }
    IngressClass(kube::IngressClass) {
        kind: "IngressClass", plural: "ingressclasses", group: "networking.k8s.io", scope: Scope::Cluster,
        columns: &[column("Controller", ".spec.controller")],
    }
    Lease(kube::Lease) {
        kind: "Lease", plural: "leases", group: "coordination.k8s.io",
        columns: &[column("Holder", ".spec.holderIdentity")],
    }
    CertificateSigningRequest(kube::CertificateSigningRequest) {
        kind: "CertificateSigningRequest", plural: "certificatesigningrequests", short_names: &["csr"],
        group: "certificates.k8s.io", scope: Scope::Cluster,
        columns: &[column("SignerName", ".spec.signerName"), column("Requestor", ".spec.username")],
    }
    ClusterTrustBundle(kube::ClusterTrustBundle) {
        kind: "ClusterTrustBundle", plural: "clustertrustbundles",
        group: "certificates.k8s.io", versions: &["v1beta1"], scope: Scope::Cluster,
        columns: &[column("SignerName", ".spec.signerName")],
    }
    MutatingWebhookConfiguration(kube::MutatingWebhookConfiguration) {
        kind: "MutatingWebhookConfiguration", plural: "mutatingwebhookconfigurations",
        group: "admissionregistration.k8s.io", scope: Scope::Cluster,
        columns: &[column("Webhooks", ".webhooks[*].name")],
    }
    ValidatingWebhookConfiguration(kube::ValidatingWebhookConfiguration) {
        kind: "ValidatingWebhookConfiguration", plural: "validatingwebhookconfigurations",
        group: "admissionregistration.k8s.io", scope: Scope::Cluster,
        columns: &[column("Webhooks", ".webhooks[*].name")],
    }
    CustomResourceDefinition(kube::CustomResourceDefinition) {
        kind: "CustomResourceDefinition", plural: "customresourcedefinitions", short_names: &["crd", "crds"],
        group: "apiextensions.k8s.io", scope: Scope::Cluster,
    }

    // Gateway API

    GatewayClass(gateway_api::GatewayClass) {
        kind: "GatewayClass", plural: "gatewayclasses", short_names: &["gc"],
        group: gateway_api::GROUP, versions: &["v1", "v1beta1", "v1alpha2"], scope: Scope::Cluster,
        category: Category::GatewayApi,
        columns: &[
            column("Controller", ".spec.controllerName"),
            column("Accepted", ".status.conditions[?(@.type==\"Accepted\")].status"),
        ],
    }
    KubernetesGateway(gateway_api::Gateway) {
        kind: "Gateway", plural: "gateways", short_names: &["gtw"],
        group: gateway_api::GROUP, versions: &["v1", "v1beta1", "v1alpha2"], category: Category::GatewayApi,
        columns: &[
            column("Class", ".spec.gatewayClassName"),
            column("Address", ".status.addresses[*].value"),
            column("Programmed", ".status.conditions[?(@.type==\"Programmed\")].status"),
        ],
    }
    ListenerSet(gateway_api::ListenerSet) {
        kind: "ListenerSet", plural: "listenersets", short_names: &["lset"],
        group: gateway_api::GROUP, category: Category::GatewayApi,
        columns: &[
            column("Accepted", ".status.conditions[?(@.type==\"Accepted\")].status"),
            column("Programmed", ".status.conditions[?(@.type==\"Programmed\")].status"),
        ],
    }
    HttpRoute(gateway_api::HttpRoute) {
        kind: "HTTPRoute", plural: "httproutes",
        group: gateway_api::GROUP, versions: &["v1", "v1beta1", "v1alpha2"], category: Category::GatewayApi,
        columns: &[column("Hostnames", ".spec.hostnames")],
    }
    GrpcRoute(gateway_api::GrpcRoute) {
        kind: "GRPCRoute", plural: "grpcroutes",
        group: gateway_api::GROUP, versions: &["v1", "v1alpha2"], category: Category::GatewayApi,
        min_bundle: Some((1, 1)),
        columns: &[column("Hostnames", ".spec.hostnames")],
    }
    TcpRoute(gateway_api::TcpRoute) {
        kind: "TCPRoute", plural: "tcproutes",
        group: gateway_api::GROUP, versions: &["v1", "v1alpha2"], category: Category::GatewayApi,
        min_bundle: Some((1, 6)),
    }
    TlsRoute(gateway_api::TlsRoute) {
        kind: "TLSRoute", plural: "tlsroutes",
        group: gateway_api::GROUP, versions: &["v1", "v1alpha3", "v1alpha2"], category: Category::GatewayApi,
        min_bundle: Some((1, 5)),
    }
    UdpRoute(gateway_api::UdpRoute) {
        kind: "UDPRoute", plural: "udproutes",
        group: gateway_api::GROUP, versions: &["v1alpha2", "v1"], category: Category::GatewayApi,
    }
    BackendTlsPolicy(gateway_api::BackendTlsPolicy) {
        kind: "BackendTLSPolicy", plural: "backendtlspolicies", short_names: &["btlspolicy"],
        group: gateway_api::GROUP, versions: &["v1", "v1alpha3"], category: Category::GatewayApi,
        min_bundle: Some((1, 4)),
    }
    ReferenceGrant(gateway_api::ReferenceGrant) {
        kind: "ReferenceGrant", plural: "referencegrants", short_names: &["refgrant"],
        group: gateway_api::GROUP, versions: &["v1beta1", "v1", "v1alpha2"], category: Category::GatewayApi,
    }
    BackendTrafficPolicy(gateway_api::BackendTrafficPolicy) {
        kind: "XBackendTrafficPolicy", plural: "xbackendtrafficpolicies", short_names: &["xbtrafficpolicy"],
        group: gateway_api::EXPERIMENTAL_GROUP, versions: &["v1alpha1"], category: Category::GatewayApi,
    }
    ExternalBackend(gateway_api::ExternalBackend) {
        kind: "XBackend", plural: "xbackends", short_names: &["xbackend"],
        group: gateway_api::EXPERIMENTAL_GROUP, versions: &["v1alpha1"], category: Category::GatewayApi,
    }

    // Multi-cluster services

    ServiceExport(mcs::ServiceExport) {
        kind: "ServiceExport", plural: "serviceexports", short_names: &["svcex"],
        group: "multicluster.x-k8s.io", versions: &["v1alpha1"], category: Category::MultiCluster,
    }
    ServiceImport(mcs::ServiceImport) {
        kind: "ServiceImport", plural: "serviceimports", short_names: &["svcim"],
        group: "multicluster.x-k8s.io", versions: &["v1alpha1"], category: Category::MultiCluster,
        columns: &[column("Type", ".spec.type"), column("IP", ".spec.ips")],
    }

    // Gateway API Inference Extension

    InferencePool(inference::InferencePool) {
        kind: "InferencePool", plural: "inferencepools", short_names: &["infpool"],
        group: "inference.networking.k8s.io", category: Category::Inference,
    }
}
