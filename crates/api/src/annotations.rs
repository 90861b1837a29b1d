//! The annotations that mean something to the mesh.

use crate::catalogue::keys;

keys! {
    // Published

    /// Whether the agent serves the application's metrics together with the proxy's.
    PROMETHEUS_MERGE_METRICS = "prometheus.istio.io/merge-metrics", Alpha on ["Pod"];
    /// Kubernetes accounts that may run the service outside the cluster.
    KUBERNETES_SERVICE_ACCOUNTS = "alpha.istio.io/kubernetes-serviceaccounts", Alpha on ["Service"] deprecated hidden;
    /// Other identities that may run the service.
    CANONICAL_SERVICE_ACCOUNTS = "alpha.istio.io/canonical-serviceaccounts", Alpha on ["Service"] deprecated hidden;
    /// The namespaces that see the service: `*`, `.`, `~` or a list.
    EXPORT_TO = "networking.istio.io/exportTo", Alpha on ["Service"];
    /// Whether a sidecar is injected; the label of this name is preferred.
    SIDECAR_INJECT = "sidecar.istio.io/inject", Beta on ["Pod"] deprecated;
    /// What injection did. Written by it.
    SIDECAR_STATUS = "sidecar.istio.io/status", Alpha on ["Pod"];
    /// Whether HTTP probes are sent through the agent.
    REWRITE_APP_HTTP_PROBERS = "sidecar.istio.io/rewriteAppHTTPProbers", Alpha on ["Pod"];
    /// The control plane the sidecar connects to.
    DISCOVERY_ADDRESS = "sidecar.istio.io/discoveryAddress", Alpha on ["Pod"] deprecated;
    /// The image of the sidecar.
    PROXY_IMAGE = "sidecar.istio.io/proxyImage", Alpha on ["Pod"];
    /// The kind of that image: `distroless`, `debug`.
    PROXY_IMAGE_TYPE = "sidecar.istio.io/proxyImageType", Alpha on ["Pod"];
    /// The CPU the sidecar asks for.
    PROXY_CPU = "sidecar.istio.io/proxyCPU", Alpha on ["Pod"];
    /// The CPU the sidecar may use.
    PROXY_CPU_LIMIT = "sidecar.istio.io/proxyCPULimit", Alpha on ["Pod"];
    /// The memory the sidecar asks for.
    PROXY_MEMORY = "sidecar.istio.io/proxyMemory", Alpha on ["Pod"];
    /// The memory the sidecar may use.
    PROXY_MEMORY_LIMIT = "sidecar.istio.io/proxyMemoryLimit", Alpha on ["Pod"];
    /// How inbound connections reach the proxy: `REDIRECT`, `TPROXY` or `NONE`.
    INTERCEPTION_MODE = "sidecar.istio.io/interceptionMode", Alpha on ["Pod"];
    /// A config map with settings that are laid over the proxy's bootstrap.
    BOOTSTRAP_OVERRIDE = "sidecar.istio.io/bootstrapOverride", Alpha on ["Pod"];
    /// Prefixes of further statistics that the proxy keeps.
    STATS_INCLUSION_PREFIXES = "sidecar.istio.io/statsInclusionPrefixes", Alpha on ["Pod"] deprecated;
    /// Suffixes of further statistics that the proxy keeps.
    STATS_INCLUSION_SUFFIXES = "sidecar.istio.io/statsInclusionSuffixes", Alpha on ["Pod"] deprecated;
    /// Regular expressions of further statistics that the proxy keeps.
    STATS_INCLUSION_REGEXPS = "sidecar.istio.io/statsInclusionRegexps", Alpha on ["Pod"] deprecated;
    /// Buckets of histograms by prefix of their names, as JSON.
    STATS_HISTOGRAM_BUCKETS = "sidecar.istio.io/statsHistogramBuckets", Alpha on ["Pod"];
    /// How often the proxy pushes statistics to sinks.
    STATS_FLUSH_INTERVAL = "sidecar.istio.io/statsFlushInterval", Alpha on ["Pod"];
    /// After how long without use a time series of the standard metrics goes.
    STATS_EVICTION_INTERVAL = "sidecar.istio.io/statsEvictionInterval", Alpha on ["Pod"];
    /// How many bins a histogram of the standard metrics has.
    STATS_HISTOGRAM_BINS = "sidecar.istio.io/statsHistogramBins", Alpha on ["Pod"];
    /// Volumes for the sidecar, as JSON.
    USER_VOLUME = "sidecar.istio.io/userVolume", Alpha on ["Pod"];
    /// Volume mounts for the sidecar, as JSON.
    USER_VOLUME_MOUNT = "sidecar.istio.io/userVolumeMount", Alpha on ["Pod"];
    /// The port of the agent's health endpoint; zero for none.
    STATUS_PORT = "status.sidecar.istio.io/port", Alpha on ["Pod"];
    /// How much the proxy logs.
    LOG_LEVEL = "sidecar.istio.io/logLevel", Alpha on ["Pod"];
    /// How much single parts of the proxy log.
    COMPONENT_LOG_LEVEL = "sidecar.istio.io/componentLogLevel", Alpha on ["Pod"];
    /// How much the agent logs.
    AGENT_LOG_LEVEL = "sidecar.istio.io/agentLogLevel", Alpha on ["Pod"];
    /// Whether the sidecar is an init container that stays.
    NATIVE_SIDECAR = "sidecar.istio.io/nativeSidecar", Alpha on ["Pod"];
    /// Seconds before the sidecar is first asked whether it is ready.
    READINESS_INITIAL_DELAY_SECONDS = "readiness.status.sidecar.istio.io/initialDelaySeconds", Alpha on ["Pod"];
    /// Seconds between asking the sidecar whether it is ready.
    READINESS_PERIOD_SECONDS = "readiness.status.sidecar.istio.io/periodSeconds", Alpha on ["Pod"];
    /// How often the sidecar may fail to be ready before it counts.
    READINESS_FAILURE_THRESHOLD = "readiness.status.sidecar.istio.io/failureThreshold", Alpha on ["Pod"];
    /// The application's ports that must be configured before the sidecar is ready.
    READINESS_APPLICATION_PORTS = "readiness.status.sidecar.istio.io/applicationPorts", Alpha on ["Pod"];
    /// Labels of the nodes whose addresses lead into the network of a NodePort gateway.
    NODE_SELECTOR = "traffic.istio.io/nodeSelector", Stable on ["Service"];
    /// Address ranges that outbound traffic is captured for; `*` for all.
    INCLUDE_OUTBOUND_IP_RANGES = "traffic.sidecar.istio.io/includeOutboundIPRanges", Alpha on ["Pod"];
    /// Address ranges that outbound traffic is not captured for.
    EXCLUDE_OUTBOUND_IP_RANGES = "traffic.sidecar.istio.io/excludeOutboundIPRanges", Alpha on ["Pod"];
    /// Ports that inbound traffic is captured on; `*` for all.
    INCLUDE_INBOUND_PORTS = "traffic.sidecar.istio.io/includeInboundPorts", Alpha on ["Pod"];
    /// Ports that inbound traffic is not captured on.
    EXCLUDE_INBOUND_PORTS = "traffic.sidecar.istio.io/excludeInboundPorts", Alpha on ["Pod"];
    /// Network interfaces whose traffic is not captured.
    EXCLUDE_INTERFACES = "traffic.sidecar.istio.io/excludeInterfaces", Alpha on ["Pod"];
    /// Ports that outbound traffic is captured for, whatever the address.
    INCLUDE_OUTBOUND_PORTS = "traffic.sidecar.istio.io/includeOutboundPorts", Alpha on ["Pod"];
    /// Ports that outbound traffic is not captured for.
    EXCLUDE_OUTBOUND_PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts", Alpha on ["Pod"];
    /// Virtual interfaces whose inbound traffic counts as outbound; `istio.io/reroute-virtual-interfaces` is preferred.
    KUBEVIRT_INTERFACES = "traffic.sidecar.istio.io/kubevirtInterfaces", Alpha on ["Pod"] deprecated;
    /// The controller that serves an ingress.
    INGRESS_CLASS = "kubernetes.io/ingress.class", Stable on ["Ingress"];
    /// Codes of analysis messages that are not reported about the object; `*` for all.
    ANALYZE_SUPPRESS = "galley.istio.io/analyze-suppress", Alpha on ["Any"];
    /// Settings of this one proxy, as YAML of a ProxyConfig.
    PROXY_CONFIG = "proxy.istio.io/config", Beta on ["Pod"];
    /// Whether a policy is only tried out.
    DRY_RUN = "istio.io/dry-run", Alpha on ["AuthorizationPolicy"];
    /// The revision a proxy is connected to. Written by injection.
    REVISION = "istio.io/rev", Alpha on ["Pod"];
    /// What the user wrote into the proxy's container before injection.
    PROXY_OVERRIDES = "proxy.istio.io/overrides", Alpha on ["Pod"] hidden;
    /// The injection templates to use.
    INJECT_TEMPLATES = "inject.istio.io/templates", Alpha on ["Pod"];
    /// Further tags that are taken from statistics' names.
    EXTRA_STAT_TAGS = "sidecar.istio.io/extraStatTags", Alpha on ["Pod"] deprecated;
    /// The group a workload entry registered itself for.
    AUTO_REGISTRATION_GROUP = "istio.io/autoRegistrationGroup", Alpha on ["WorkloadEntry"] hidden;
    /// The control-plane instance the workload is or was connected to.
    WORKLOAD_CONTROLLER = "istio.io/workloadController", Alpha on ["WorkloadEntry"] hidden;
    /// When the workload connected.
    CONNECTED_AT = "istio.io/connectedAt", Alpha on ["WorkloadEntry"] hidden;
    /// When the workload went away.
    DISCONNECTED_AT = "istio.io/disconnectedAt", Alpha on ["WorkloadEntry"] hidden;
    /// The clusters whose control planes may lead in this remote one; `*` for any.
    CONTROL_PLANE_CLUSTERS = "topology.istio.io/controlPlaneClusters", Alpha on ["Namespace"];
    /// Which generation of the gateway controller last looked after the gateway.
    GATEWAY_CONTROLLER_VERSION = "gateway.istio.io/controller-version", Alpha on ["Any"] hidden;
    /// `enabled` once a pod is part of the ambient mesh. Written by the node agent.
    AMBIENT_REDIRECTION = "ambient.istio.io/redirection", Beta on ["Pod"];
    /// How traffic reaches a waypoint that does not take HBONE: `<protocol>` or `<protocol>/<port>`.
    WAYPOINT_INBOUND_BINDING = "ambient.istio.io/waypoint-inbound-binding", Alpha on ["GatewayClass", "Gateway"] hidden;
    /// The name of the account that is made for a gateway.
    GATEWAY_SERVICE_ACCOUNT = "gateway.istio.io/service-account", Alpha on ["Gateway"] hidden;
    /// The name of the objects that are made for a gateway.
    GATEWAY_NAME_OVERRIDE = "gateway.istio.io/name-override", Alpha on ["Gateway"] hidden;
    /// The type of the service that is made for a gateway.
    SERVICE_TYPE = "networking.istio.io/service-type", Alpha on ["Gateway"] hidden;
    /// Which endpoints are preferred: `PreferClose`, `PreferSameZone`, `PreferSameNode`, `Any`.
    TRAFFIC_DISTRIBUTION = "networking.istio.io/traffic-distribution", Alpha
        on ["Namespace", "Service", "ServiceEntry"];
    /// The share of new connections, of a hundred, that the second waypoint gets.
    USE_WAYPOINT_CANARY_WEIGHT = "istio.io/use-waypoint-canary-weight", Alpha
        on ["Service", "ServiceEntry", "Namespace"];
    /// Whether inbound traffic of a pod in the ambient mesh is left alone.
    BYPASS_INBOUND_CAPTURE = "ambient.istio.io/bypass-inbound-capture", Alpha on ["Pod"];
    /// Virtual interfaces whose inbound traffic counts as outbound.
    REROUTE_VIRTUAL_INTERFACES = "istio.io/reroute-virtual-interfaces", Alpha on ["Pod"];
    /// Whether DNS of a pod in the ambient mesh is captured.
    AMBIENT_DNS_CAPTURE = "ambient.istio.io/dns-capture", Alpha on ["Pod"] hidden;
    /// How statistics are compressed: `brotli`, `gzip`, `zstd`.
    STATS_COMPRESSION = "sidecar.istio.io/statsCompression", Alpha on ["Pod"] deprecated;

    // Read, but in no published list

    /// Further places that the agent gathers the application's metrics from.
    PROMETHEUS_SCRAPE_TARGETS = "prometheus.istio.io/scrape-targets", Alpha on ["Pod"];
    /// The port on which metrics are served over mutual TLS.
    PROMETHEUS_SECURE_PORT = "prometheus.istio.io/secure-port", Alpha on ["Pod"];
    /// Whether the control plane waits for the workload's health before it sends traffic.
    HEALTH_CHECKS_ENABLED = "proxy.istio.io/health-checks-enabled", Alpha on ["WorkloadEntry"] hidden;
    /// Whether a waypoint tells backends who the client is.
    XFCC_INCLUDE_CLIENT_IDENTITY = "ambient.istio.io/xfcc-include-client-identity", Alpha on ["Gateway"] hidden;
    /// What a gateway's status says its address is: `IPAddress` or `Hostname`.
    ADDRESS_TYPE = "networking.istio.io/address-type", Alpha on ["Gateway"] hidden;
    /// How the addresses behind one host name are connected to.
    CONNECT_STRATEGY = "istio.io/connect-strategy", Alpha on ["ServiceEntry"];
    /// Whether a policy that names a gateway is passed over.
    IGNORE_POLICY_ATTACHMENT = "istio.io/ignore-policy-attachment", Alpha
        on ["BackendTLSPolicy", "XBackendTrafficPolicy"];
    /// Which ingress class is used where none is named.
    DEFAULT_INGRESS_CLASS = "ingressclass.kubernetes.io/is-default-class", Stable on ["IngressClass"];
    /// Who leads, in leader locks that are config maps.
    LEADER = "control-plane.alpha.kubernetes.io/leader", Stable on ["ConfigMap"] hidden;
    /// The Gateway API release a CRD belongs to.
    GATEWAY_API_BUNDLE_VERSION = "gateway.networking.k8s.io/bundle-version", Stable
        on ["CustomResourceDefinition"] hidden;
    /// The parents of a route that was made from Gateway API.
    INTERNAL_PARENTS = "internal.istio.io/parents", Internal on ["VirtualService", "Gateway"] hidden;
    /// The namespaces of those parents.
    INTERNAL_PARENT_NAMESPACE = "internal.istio.io/parent-namespace", Internal on ["VirtualService", "Gateway"] hidden;
    /// How a route is to be understood: `gateway`, `ingress`.
    INTERNAL_ROUTE_SEMANTICS = "internal.istio.io/route-semantics", Internal on ["VirtualService"] hidden;
    /// How a gateway is to be understood: `gateway`.
    INTERNAL_GATEWAY_SEMANTICS = "internal.istio.io/gateway-semantics", Internal on ["Gateway"] hidden;
    /// How a service is to be understood: `inferencepool`.
    INTERNAL_SERVICE_SEMANTICS = "internal.istio.io/service-semantics", Internal on ["Service"] hidden;
    /// The service of a gateway that was made from Gateway API.
    INTERNAL_GATEWAY_SERVICE = "internal.istio.io/gateway-service", Internal on ["Gateway"] hidden;
    /// The account of a gateway that was made from Gateway API.
    INTERNAL_SERVICE_ACCOUNT_NAME = "internal.istio.io/service-account-name", Internal on ["Gateway"] hidden;
    /// Makes admission refuse the object, to test that it is asked.
    WEBHOOK_ALWAYS_REJECT = "internal.istio.io/webhook-always-reject", Internal on ["Any"] hidden;
}
