//! Gateways, by Istio's API and by the Gateway API.

super::flags! {
    Gateway

    /// Whether routes may go to inference pools.
    ENABLE_GATEWAY_API_INFERENCE_EXTENSION: Bool = "false";

    /// Whether a Gateway may be bound to a deployment made by hand.
    ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT: Bool = "true";

    /// Whether policies that select by label also apply to gateways of the Gateway API.
    ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY: Bool = "true";

    /// Namespace in which the ingress controller runs.
    K8S_INGRESS_NS: Text = "istio-system";

    /// Whether the gateway class for agentgateway exists.
    PILOT_ENABLE_AGENTGATEWAY: Bool = "false";

    /// Whether alpha kinds and fields of the Gateway API are read.
    PILOT_ENABLE_ALPHA_GATEWAY_API: Bool = "false";

    /// Whether the Gateway API is served, provided that its CRDs exist.
    PILOT_ENABLE_GATEWAY_API: Bool = "true";

    /// Whether a Gateway's labels and annotations are copied to what is deployed for it.
    PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS: Bool = "true";

    /// Whether Gateways are deployed automatically.
    PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER: Bool = "true";

    /// Whether the default gateway classes are created and kept.
    PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER: Bool = "true";

    /// Whether status is written to Gateway API objects.
    PILOT_ENABLE_GATEWAY_API_STATUS: Bool = "true";

    /// Whether TLS listeners of gateways also speak HTTP/3 where the service has the same port over UDP.
    PILOT_ENABLE_QUIC_LISTENERS: Bool = "false";

    /// Whether managed Gateways keep apart from Istio Gateways of other namespaces.
    PILOT_ENABLE_STRICT_GATEWAY_MERGING: Bool = "true";

    /// Whether gateways get only the clusters their routes name.
    PILOT_FILTER_GATEWAY_CLUSTER_CONFIG: Bool = "false";

    /// Controller name by which gateway classes choose this control plane.
    PILOT_GATEWAY_API_CONTROLLER_NAME: Text = "istio.io/gateway-controller";

    /// Name of the default gateway class.
    PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME: Text = "istio";

    /// Time a client has to finish its TLS handshake with a gateway; 0 sets no limit.
    PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT: Duration = "15s";

    /// Whether a gateway takes Gateway objects of its own namespace alone.
    PILOT_SCOPE_GATEWAY_TO_NAMESPACE: Bool = "false";
}
