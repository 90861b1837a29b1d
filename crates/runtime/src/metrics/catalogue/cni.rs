//! The node agent.

super::metrics! {
    CNI

    /// Installations of the plugin, by result.
    Counter ISTIO_CNI_INSTALLS_TOTAL = "istio_cni_installs_total"["result"];

    /// Whether the plugin is installed.
    Gauge ISTIO_CNI_INSTALL_READY = "istio_cni_install_ready"[];

    /// Pods repaired, by manner and result.
    Counter ISTIO_CNI_REPAIR_PODS_REPAIRED_TOTAL = "istio_cni_repair_pods_repaired_total"["result", "type"];

    /// Requests of the plugin, by response code.
    Counter ISTIO_CNI_PLUGIN_REQUESTS_TOTAL = "istio_cni_plugin_requests_total"["response_code"];

    /// Pod events handled.
    Counter NODEAGENT_RECONCILE_EVENTS_TOTAL = "nodeagent_reconcile_events_total"["type"];

    /// Connections of ztunnel.
    Gauge ZTUNNEL_CONNECTED = "ztunnel_connected"[];
}
