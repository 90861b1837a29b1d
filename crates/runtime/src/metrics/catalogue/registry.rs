//! Sources of services and configuration.

super::metrics! {
    REGISTRY

    /// Events on services, endpoints, pods, nodes and namespaces.
    Counter PILOT_K8S_REG_EVENTS = "pilot_k8s_reg_events"["event", "type"];

    /// Events on configuration objects.
    Counter PILOT_K8S_CFG_EVENTS = "pilot_k8s_cfg_events"["event", "type"];

    /// Endpoints seen before their pod.
    Counter PILOT_K8S_ENDPOINTS_WITH_NO_PODS = "pilot_k8s_endpoints_with_no_pods"[];

    /// Endpoints still waiting for their pod.
    Gauge PILOT_K8S_ENDPOINTS_PENDING_POD = "pilot_k8s_endpoints_pending_pod"[];

    /// Proxies for which no service was found, by reason.
    Counter PILOT_K8S_PROXIES_WITH_NO_SERVICE_TARGETS = "pilot_k8s_proxies_with_no_service_targets"["reason"];

    /// Workload entries registered on connection.
    Counter AUTO_REGISTRATION_SUCCESS_TOTAL = "auto_registration_success_total"[];

    /// Workload entries updated on connection.
    Counter AUTO_REGISTRATION_UPDATES_TOTAL = "auto_registration_updates_total"[];

    /// Workloads that disconnected after registering.
    Counter AUTO_REGISTRATION_UNREGISTER_TOTAL = "auto_registration_unregister_total"[];

    /// Workload entries deleted after their grace period.
    Counter AUTO_REGISTRATION_DELETES_TOTAL = "auto_registration_deletes_total"[];

    /// Registrations that failed.
    Counter AUTO_REGISTRATION_ERRORS_TOTAL = "auto_registration_errors_total"[];

    /// Clusters watched, local and remote.
    Gauge ISTIOD_MANAGED_CLUSTERS = "istiod_managed_clusters"["cluster_type"];

    /// Sync state of each remote cluster: one for the state it is in, zero for the others.
    Gauge ISTIOD_REMOTE_CLUSTER_SYNC_STATUS = "istiod_remote_cluster_sync_status"["cluster", "cluster_type", "status"];

    /// Remote clusters that start-up stopped waiting for.
    Counter REMOTE_CLUSTER_SYNC_TIMEOUTS_TOTAL = "remote_cluster_sync_timeouts_total"["cluster"];

    /// Events on the secrets that hold access to remote clusters.
    Counter REMOTE_CLUSTER_SECRET_EVENTS_TOTAL = "remote_cluster_secret_events_total"["event"];

    /// Watches that failed, by cluster.
    Counter CONTROLLER_SYNC_ERRORS_TOTAL = "controller_sync_errors_total"["cluster"];

    /// Items waiting in a controller's queue.
    Gauge PILOT_WORKER_QUEUE_DEPTH = "pilot_worker_queue_depth"["queueID"];

    /// Seconds an item waits in a controller's queue.
    Histogram PILOT_WORKER_QUEUE_LATENCY = "pilot_worker_queue_latency"["queueID"]
        in [0.01, 0.1, 0.2, 0.5, 1.0, 3.0, 5.0];

    /// Seconds a controller works on an item.
    Histogram PILOT_WORKER_QUEUE_DURATION = "pilot_worker_queue_duration"["queueID"]
        in [0.01, 0.1, 0.2, 0.5, 1.0, 3.0, 5.0];
}
