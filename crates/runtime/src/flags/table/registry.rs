//! Where services and configuration come from, clusters, and the controllers that care for them.

super::flags! {
    Registry

    /// Whether controllers write to the cluster: `on`, `off`, or `dry-run` to log what they would write.
    CANOPUS_CONTROLLERS: Text = "on";

    /// How long the services and endpoints of a remote cluster that cannot be reached stay in force; 0 keeps them for ever.
    CANOPUS_REMOTE_CLUSTER_DROP_AFTER: Duration = "0s";

    /// Name of this cluster.
    CLUSTER_ID: Text = "Kubernetes";

    /// Whether controllers run in one replica at a time; without, there must be only one replica.
    ENABLE_LEADER_ELECTION: Bool = "true";

    /// Whether every service is exported to the cluster set, except those kept local by mesh configuration.
    ENABLE_MCS_AUTO_EXPORT: Bool = "false";

    /// Whether `cluster.local` names reach endpoints of the caller's cluster alone.
    ENABLE_MCS_CLUSTER_LOCAL: Bool = "false", when(ENABLE_MCS_HOST, "false");

    /// Whether exported services also have a `clusterset.local` name.
    ENABLE_MCS_HOST: Bool = "false", when(ENABLE_MCS_SERVICE_DISCOVERY, "false");

    /// Whether other clusters see a service's endpoints only once it is exported.
    ENABLE_MCS_SERVICE_DISCOVERY: Bool = "false";

    /// Whether names of headless services resolve to pods of every cluster on the same network.
    ENABLE_MULTICLUSTER_HEADLESS: Bool = "true";

    /// Whether a proxy whose pod is not found by name is looked up by address.
    ENABLE_PROXY_FIND_POD_BY_IP: Bool = "false";

    /// Whether one control plane outside serves the clusters, including as their CA.
    EXTERNAL_ISTIOD: Bool = "false";

    /// Encoding of Kubernetes API traffic.
    ISTIO_KUBE_CLIENT_CONTENT_TYPE: Choice = "protobuf", one_of(&["protobuf", "json"]);

    /// The one namespace that is watched; empty watches all.
    ISTIO_WATCH_NAMESPACE: Text = "";

    /// Address of the Kubernetes API inside the cluster, set by Kubernetes; empty means outside.
    KUBERNETES_SERVICE_HOST: Text = "";

    /// Whether endpoints of external service entries carry a canonical service.
    LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES: Bool = "false";

    /// Whether access to remote clusters is read from the cluster the control plane runs in.
    LOCAL_CLUSTER_SECRET_WATCHER: Bool = "false";

    /// API group of the multi-cluster services API.
    MCS_API_GROUP: Text = "multicluster.x-k8s.io";

    /// API version of the multi-cluster services API.
    MCS_API_VERSION: Text = "v1alpha1";

    /// How often objects are analysed, where analysis runs.
    PILOT_ANALYSIS_INTERVAL: Duration = "10s", within(1.0, f64::INFINITY);

    /// Whether objects are analysed and findings written to their status.
    PILOT_ENABLE_ANALYSIS: Bool = "false";

    /// Whether WorkloadEntries of one cluster can be selected by services of another.
    PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY: Bool = "true";

    /// Whether service entries without an address get one.
    PILOT_ENABLE_IP_AUTOALLOCATE: Bool = "true";

    /// Whether Kubernetes services select WorkloadEntries.
    PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES: Bool = "true";

    /// Whether the taint of nodes whose node agent is ready is removed.
    PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS: Bool = "false";

    /// Whether TLS credentials are read from remote clusters.
    PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER: Bool = "true";

    /// Whether service entries select pods.
    PILOT_ENABLE_SERVICEENTRY_SELECT_PODS: Bool = "true";

    /// Whether workloads of a WorkloadGroup are registered when they connect.
    PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION: Bool = "true";

    /// Whether the health that such workloads report is kept.
    PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS: Bool = "true";

    /// Kinds that are not read, by resource name or as `*.group`.
    PILOT_IGNORE_RESOURCES: List = "";

    /// Kinds that are read although they are ignored otherwise.
    PILOT_INCLUDE_RESOURCES: List = "";

    /// Ways to authenticate that kubeconfigs of remote clusters may use although they run programs or read files.
    PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS: List = "";

    /// Range of IPv4 addresses given to service entries.
    PILOT_IP_AUTOALLOCATE_IPV4_PREFIX: Text = "240.240.0.0/16";

    /// Range of IPv6 addresses given to service entries.
    PILOT_IP_AUTOALLOCATE_IPV6_PREFIX: Text = "2001:2::/48";

    /// Directory with kubeconfigs of remote clusters, read instead of secrets.
    PILOT_MULTICLUSTER_KUBECONFIG_PATH: Text = "";

    /// Whether Gateway objects labelled with a network are gateways into it.
    PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API: Bool = "true";

    /// Taint that is removed from nodes.
    PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME: Text = "cni.istio.io/not-ready";

    /// Time after which a remote cluster no longer holds up readiness; 0 waits for ever.
    PILOT_REMOTE_CLUSTER_TIMEOUT: Duration = "30s";

    /// Time a registered workload may be gone before its WorkloadEntry is deleted.
    PILOT_WORKLOAD_ENTRY_GRACE_PERIOD: Duration = "10s";

    /// Whether host names of gateways to other networks are resolved by the control plane.
    RESOLVE_HOSTNAME_GATEWAYS: Bool = "true";

    /// ConfigMap with mesh configuration that applies before the usual one.
    SHARED_MESH_CONFIG: Text = "";
}
