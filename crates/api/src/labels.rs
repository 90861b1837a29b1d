//! The labels that mean something to the mesh.

use crate::catalogue::keys;

keys! {
    // Published

    /// `istio` if the workload takes mutual TLS, `disabled` if it does not. Set by injection.
    SECURITY_TLS_MODE = "security.istio.io/tlsMode", Alpha on ["Pod"] deprecated hidden;
    /// The service a workload counts as in telemetry.
    CANONICAL_NAME = "service.istio.io/canonical-name", Alpha on ["Pod"];
    /// The port of a network gateway, if it is not 15443.
    GATEWAY_PORT = "networking.istio.io/gatewayPort", Alpha on ["Service"];
    /// The version a workload counts as in telemetry.
    CANONICAL_REVISION = "service.istio.io/canonical-revision", Alpha on ["Pod"];
    /// The workload a pod counts as in telemetry, in place of its owner.
    WORKLOAD_NAME = "service.istio.io/workload-name", Alpha on ["Pod", "WorkloadEntry"];
    /// The control-plane revision, or tag of one, that looks after the object.
    REVISION = "istio.io/rev", Beta on ["Namespace", "Gateway", "Pod"];
    /// The revision tag that a webhook stands for.
    TAG = "istio.io/tag", Alpha on ["MutatingWebhookConfiguration"];
    /// The component an installed object belongs to.
    OPERATOR_COMPONENT = "operator.istio.io/component", Alpha on ["Any"] hidden;
    /// `Reconcile` on objects that the installer keeps as they should be.
    OPERATOR_MANAGED = "operator.istio.io/managed", Alpha on ["Any"] hidden;
    /// The version that installed the object.
    OPERATOR_VERSION = "operator.istio.io/version", Alpha on ["Any"] hidden;
    /// The subzone of a node, the third part of its locality.
    TOPOLOGY_SUBZONE = "topology.istio.io/subzone", Beta on ["Node"];
    /// The network of pods, or the network a gateway service leads to.
    TOPOLOGY_NETWORK = "topology.istio.io/network", Beta on ["Namespace", "Pod", "Service"];
    /// The cluster of a workload.
    TOPOLOGY_CLUSTER = "topology.istio.io/cluster", Alpha on ["Pod"];
    /// The locality of a workload in place of its node's, with dots for slashes.
    TOPOLOGY_LOCALITY = "topology.istio.io/locality", Alpha on ["Pod"];
    /// Whether a sidecar is injected.
    SIDECAR_INJECT = "sidecar.istio.io/inject", Beta on ["Pod"];
    /// Which controller made the objects of a gateway.
    GATEWAY_MANAGED = "gateway.istio.io/managed", Stable on ["ServiceAccount", "Deployment", "Service"];
    /// The gateway an object was made for.
    GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name", Stable
        on ["ServiceAccount", "Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"];
    /// The class of the gateway an object was made for.
    GATEWAY_CLASS_NAME = "gateway.networking.k8s.io/gateway-class-name", Stable
        on ["ServiceAccount", "Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"];
    /// `ambient` enrols workloads without a sidecar, `none` keeps them out.
    DATAPLANE_MODE = "istio.io/dataplane-mode", Stable on ["Pod", "Namespace"];
    /// The waypoint that traffic to the object goes through.
    USE_WAYPOINT = "istio.io/use-waypoint", Stable
        on ["Pod", "WorkloadEntry", "Service", "ServiceEntry", "Namespace"];
    /// The namespace of that waypoint, if it is another.
    USE_WAYPOINT_NAMESPACE = "istio.io/use-waypoint-namespace", Beta
        on ["Pod", "WorkloadEntry", "Service", "ServiceEntry", "Namespace"];
    /// A second waypoint that gets a share of the connections.
    USE_WAYPOINT_CANARY = "istio.io/use-waypoint-canary", Alpha on ["Service", "ServiceEntry", "Namespace"];
    /// The namespace of the second waypoint, if it is another.
    USE_WAYPOINT_CANARY_NAMESPACE = "istio.io/use-waypoint-canary-namespace", Alpha
        on ["Service", "ServiceEntry", "Namespace"];
    /// Whether ingress gateways go through the waypoint too.
    INGRESS_USE_WAYPOINT = "istio.io/ingress-use-waypoint", Beta on ["Service", "ServiceEntry", "Namespace"];
    /// What a waypoint is for: `service`, `workload`, `all` or `none`.
    WAYPOINT_FOR = "istio.io/waypoint-for", Stable on ["GatewayClass", "Gateway"];
    /// Whether an entry without addresses gets one.
    ENABLE_AUTOALLOCATE_IP = "networking.istio.io/enable-autoallocate-ip", Beta on ["ServiceEntry"];

    // Read, but in no published list

    /// `enabled` or `disabled`: whether pods of the namespace get a sidecar.
    INJECTION = "istio-injection", Stable on ["Namespace"];
    /// `http` if the workload ends HBONE tunnels itself.
    TUNNEL = "networking.istio.io/tunnel", Internal on ["Pod", "WorkloadEntry"];
    /// An older name of the locality label.
    LEGACY_LOCALITY = "istio-locality", Internal on ["Pod", "WorkloadEntry"] deprecated;
    /// The cookie, and its path behind a colon, that keeps a client with one endpoint.
    PERSISTENT_SESSION = "istio.io/persistent-session", Alpha on ["Service"];
    /// The header that keeps a client with one endpoint.
    PERSISTENT_SESSION_HEADER = "istio.io/persistent-session-header", Alpha on ["Service"];
    /// Marks a pod that should get no new sessions.
    DRAINING = "istio.io/draining", Alpha on ["Pod"];
    /// The class whose gateways take their defaults from this object.
    DEFAULTS_FOR_CLASS = "gateway.istio.io/defaults-for-class", Alpha on ["ConfigMap"];
    /// The pool a shadow service was made for.
    INFERENCE_POOL_NAME = "istio.io/inferencepool-name", Internal on ["Service"] hidden;
    /// The endpoint picker of that pool.
    INFERENCE_POOL_EXTENSION_SERVICE = "istio.io/inferencepool-extension-service", Internal on ["Service"] hidden;
    /// The port of that endpoint picker.
    INFERENCE_POOL_EXTENSION_PORT = "istio.io/inferencepool-extension-port", Internal on ["Service"] hidden;
    /// What happens when that endpoint picker does not answer.
    INFERENCE_POOL_FAILURE_MODE = "istio.io/inferencepool-extension-failure-mode", Internal on ["Service"] hidden;
    /// Marks the secrets that hold the access to remote clusters.
    MULTI_CLUSTER_SECRET = "istio/multiCluster", Stable on ["Secret"];
    /// The service of an endpoint slice.
    KUBERNETES_SERVICE_NAME = "kubernetes.io/service-name", Stable on ["EndpointSlice"];
    /// Marks slices and endpoints of headless services.
    KUBERNETES_HEADLESS = "service.kubernetes.io/headless", Stable on ["EndpointSlice", "Endpoints"];
    /// The region of a node.
    KUBERNETES_REGION = "topology.kubernetes.io/region", Stable on ["Node"];
    /// The zone of a node.
    KUBERNETES_ZONE = "topology.kubernetes.io/zone", Stable on ["Node"];
    /// The host of a node.
    KUBERNETES_HOSTNAME = "kubernetes.io/hostname", Stable on ["Node"];
    /// Forces a push when the object changes, whatever changed.
    ALWAYS_PUSH = "internal.istio.io/always-push", Internal on ["Any"] hidden;
}
