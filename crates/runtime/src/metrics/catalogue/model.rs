//! The mesh as the control plane sees it, and what is odd about it.

super::metrics! {
    MODEL

    /// Services in the model.
    Gauge PILOT_SERVICES = "pilot_services"[];

    /// Virtual services in the model.
    Gauge PILOT_VIRT_SERVICES = "pilot_virt_services"[];

    /// Workloads that no service selects.
    Gauge PILOT_NO_IP = "pilot_no_ip"[];

    /// Endpoints that are not ready.
    Gauge PILOT_ENDPOINT_NOT_READY = "pilot_endpoint_not_ready"[];

    /// Endpoints whose pod is not known.
    Gauge ENDPOINT_NO_POD = "endpoint_no_pod"[];

    /// Clusters without any endpoint.
    Gauge PILOT_EDS_NO_INSTANCES = "pilot_eds_no_instances"[];

    /// DNS clusters without an address to resolve.
    Gauge PILOT_DNS_CLUSTER_WITHOUT_ENDPOINTS = "pilot_dns_cluster_without_endpoints"[];

    /// Clusters left out because another one has their name.
    Gauge PILOT_DUPLICATE_ENVOY_CLUSTERS = "pilot_duplicate_envoy_clusters"[];

    /// Inbound listeners left out because another one has their port.
    Gauge PILOT_CONFLICT_INBOUND_LISTENER = "pilot_conflict_inbound_listener"[];

    /// Outbound TCP listeners left out because another one has their address.
    Gauge PILOT_CONFLICT_OUTBOUND_LISTENER_TCP_OVER_CURRENT_TCP =
        "pilot_conflict_outbound_listener_tcp_over_current_tcp"[];

    /// Subsets defined more than once for a host.
    Gauge PILOT_DESTRULE_SUBSETS = "pilot_destrule_subsets"[];

    /// Virtual services whose domain another one has.
    Gauge PILOT_VSERVICE_DUP_DOMAIN = "pilot_vservice_dup_domain"[];

    /// Whether each envoy filter patch was applied.
    Gauge PILOT_ENVOY_FILTER_STATUS = "pilot_envoy_filter_status"["name", "patch", "result"];

    /// Objects that were refused or ignored.
    Counter PILOT_TOTAL_REJECTED_CONFIGS = "pilot_total_rejected_configs"["name", "type"];

    /// Extension providers whose service could not be found, by provider.
    Counter PROVIDER_LOOKUP_CLUSTER_FAILURES = "provider_lookup_cluster_failures"["type"];
}
