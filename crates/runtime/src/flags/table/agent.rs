//! The agent beside a proxy.

super::flags! {
    Agent

    /// Address ranges from which Wasm modules are never fetched, beside link-local ones.
    BLOCKED_CIDRS_IN_WASM_FETCH: List = "";

    /// Address of the certificate authority; empty takes the discovery address.
    CA_ADDR: Text = "";

    /// Times a crashed proxy is started again, with growing pauses, before the agent ends with it.
    CANOPUS_ENVOY_RESTARTS: Int = "0", within(0.0, 1000.0);

    /// File with a join token, which is presented for the first certificate and names the workload.
    CANOPUS_JOIN_TOKEN_FILE: Text = "";

    /// Directory in which accepted configuration and the certificate are kept for an outage; empty keeps none.
    CANOPUS_STATE_DIRECTORY: Text = "./var/lib/istio/data/canopus";

    /// Most bytes of configuration that are kept for an outage.
    CANOPUS_STATE_MAX_BYTES: Int = "268435456", within(0.0, 1e12);

    /// Audience of exchanged tokens that name none.
    CANOPUS_STS_AUDIENCE: Text = "";

    /// Client as which the token server is asked; empty asks as nobody.
    CANOPUS_STS_CLIENT_ID: Text = "";

    /// File with the secret of that client.
    CANOPUS_STS_CLIENT_SECRET_FILE: Text = "";

    /// Root certificate file for the token server; `SYSTEM` takes the system's roots.
    CANOPUS_STS_ROOT_CA: Text = "SYSTEM";

    /// OAuth server at which tokens are exchanged for applications on `--stsPort`.
    CANOPUS_STS_TOKEN_URL: Text = "";

    /// Whether Wasm modules may be fetched from this machine and from ports of the mesh.
    CANOPUS_WASM_ALLOW_LOOPBACK: Bool = "false";

    /// Kind of certificate authority.
    CA_PROVIDER: Text = "Citadel";

    /// Root certificate file for the certificate authority; `SYSTEM` takes the system's roots.
    CA_ROOT_CA: Text = "";

    /// Cloud the proxy runs in, if it is not to be found out: `aws`, `azure`, `gcp` or `none`.
    CLOUD_PLATFORM: Text = "";

    /// How credentials for the certificate authority are obtained.
    CREDENTIAL_FETCHER_TYPE: Text = "JWT";

    /// Who vouches for credentials taken from the platform.
    CREDENTIAL_IDENTITY_PROVIDER: Text = "GoogleComputeEngine";

    /// Whether the agent runs without a proxy, as for proxyless gRPC.
    DISABLE_ENVOY: Bool = "false";

    /// Whether all name servers are asked at once.
    DNS_FORWARD_PARALLEL: Bool = "false";

    /// Time a name server has to answer.
    DNS_FORWARD_TIMEOUT: Duration = "5s";

    /// Address of the agent's name server.
    DNS_PROXY_ADDR: Text = "localhost:15053";

    /// Curve of elliptic keys.
    ECC_CURVE: Text = "P256";

    /// `ECDSA` for elliptic keys; empty for RSA.
    ECC_SIGNATURE_ALGORITHM: Text = "";

    /// Whether probes of the application reuse connections.
    ENABLE_PROBE_KEEPALIVE_CONNECTIONS: Bool = "false";

    /// Port of the proxy's own metrics.
    ENVOY_PROMETHEUS_PORT: Int = "15090", within(0.0, 65535.0);

    /// Port of merged metrics behind mutual TLS; 0 serves none.
    ENVOY_SECURE_MERGED_METRICS_PORT: Int = "0", within(0.0, 65535.0);

    /// Port of the proxy's metrics behind mutual TLS; 0 serves none.
    ENVOY_SECURE_METRICS_PORT: Int = "0", within(0.0, 65535.0);

    /// Whether the proxy's messages about deprecated fields are left out of the log.
    ENVOY_SKIP_DEPRECATED_LOGS: Bool = "true";

    /// Port of the proxy's health.
    ENVOY_STATUS_PORT: Int = "15021", within(0.0, 65535.0);

    /// Whether a draining proxy ends as soon as its last connection has.
    EXIT_ON_ZERO_ACTIVE_CONNECTIONS: Bool = "false";

    /// Quiet time after a certificate file changes before it is read.
    FILE_DEBOUNCE_DURATION: Duration = "100ms";

    /// Whether certificates are files someone else renews.
    FILE_MOUNTED_CERTS: Bool = "false";

    /// Project id, project number, cluster and zone, separated by bars, if they are not to be asked from the platform.
    GCP_METADATA: Text = "";

    /// Project that requests to Google are charged to.
    GCP_QUOTA_PROJECT: Text = "";

    /// Zone the workload runs in.
    GCP_ZONE: Text = "";

    /// Time without traffic after which a gRPC connection is probed.
    GRPC_KEEPALIVE_INTERVAL: Duration = "30s";

    /// Time the other side has to answer such a probe.
    GRPC_KEEPALIVE_TIMEOUT: Duration = "10s";

    /// Where the bootstrap for proxyless gRPC is written.
    GRPC_XDS_BOOTSTRAP: Text = "./etc/istio/proxy/grpc-bootstrap.json";

    /// Whether the proxy takes fragments off request paths, without which path rules can be evaded.
    HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED: Bool = "true";

    /// Name the control plane's certificate must have, if not that of its address.
    ISTIOD_SAN: Text = "";

    /// Whether the agent fetches Wasm modules for the proxy.
    ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION: Bool = "true";

    /// Bootstrap template file used instead of the built-in one.
    ISTIO_BOOTSTRAP: Text = "";

    /// Bootstrap file merged over the generated one.
    ISTIO_BOOTSTRAP_OVERRIDE: Text = "";

    /// Processors the container may use, rounded up; 0 if not limited.
    ISTIO_CPU_LIMIT: Int = "0";

    /// Whether HTTPS probes may use HTTP/2.
    ISTIO_ENABLE_HTTP2_PROBING: Bool = "true";

    /// Whether a proxy that crashes leaves a core file.
    ISTIO_ENVOY_ENABLE_CORE_DUMP: Bool = "false";

    /// Probes of the application that the agent performs, as JSON.
    ISTIO_KUBE_APP_PROBERS: Text = "", sensitive();

    /// Signer to ask for this workload's certificate.
    ISTIO_META_CERT_SIGNER: Text = "";

    /// Name of the cluster the workload runs in.
    ISTIO_META_CLUSTER_ID: Text = "";

    /// Whether name look-ups of the workload go through the agent.
    ISTIO_META_DNS_CAPTURE: Bool = "false";

    /// Whether the agent serves names even if none are captured.
    ISTIO_META_ENABLE_DNS_SERVER: Bool = "false";

    /// Whether the bootstrap has a cluster of the proxy's own peers, for zone-aware routing.
    ISTIO_META_ENABLE_SELF_DISCOVERY: Bool = "false";

    /// Prometheus annotations the pod had before injection, as JSON.
    ISTIO_PROMETHEUS_ANNOTATIONS: Text = "";

    /// Largest Wasm module accepted, in bytes.
    ISTIO_WASM_MAX_BINARY_SIZE_BYTES: Int = "268435456";

    /// Kind of token the workload has.
    JWT_POLICY: Text = "third-party-jwt";

    /// Time a draining proxy is kept even if it is idle.
    MINIMUM_DRAIN_DURATION: Duration = "5s";

    /// Directory to which key and certificate are written; empty writes none.
    OUTPUT_CERTS: Text = "";

    /// Whether the proxy looks up metadata of peers by address.
    PEER_METADATA_DISCOVERY: Bool = "false";

    /// Whether private keys are encoded as PKCS #8.
    PKCS8_KEY: Bool = "false";

    /// Directory with a certificate to begin with, for virtual machines.
    PROV_CERT: Text = "";

    /// Proxy configuration of this workload, as JSON or YAML.
    PROXY_CONFIG: Text = "", sensitive();

    /// Whether proxy configuration is also taken over xDS.
    PROXY_CONFIG_XDS_AGENT: Bool = "false";

    /// Whether probes of the application go to localhost instead of the pod's address.
    REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION: Bool = "false";

    /// Share of a certificate's lifetime that is left when it is renewed.
    SECRET_GRACE_PERIOD_RATIO: Float = "0.5";

    /// Random part of that share, so that workloads do not renew together.
    SECRET_GRACE_PERIOD_RATIO_JITTER: Float = "0.01";

    /// Certificate lifetime to ask for.
    SECRET_TTL: Duration = "24h";

    /// Trust domain of the workload.
    TRUST_DOMAIN: Text = "cluster.local";

    /// Times a fetch of a Wasm module is repeated.
    WASM_HTTP_REQUEST_MAX_RETRIES: Int = "5";

    /// Time a fetch of a Wasm module may take.
    WASM_HTTP_REQUEST_TIMEOUT: Duration = "15s";

    /// Registries that Wasm modules may be fetched from without valid TLS.
    WASM_INSECURE_REGISTRIES: List = "";

    /// Time an unused Wasm module is kept.
    WASM_MODULE_EXPIRY: Duration = "24h";

    /// How often unused Wasm modules are looked for.
    WASM_PURGE_INTERVAL: Duration = "1h";

    /// Name of the socket of an outside workload identity provider.
    WORKLOAD_IDENTITY_SOCKET_FILE: Text = "socket";

    /// Bits of RSA keys.
    WORKLOAD_RSA_KEY_SIZE: Int = "2048";

    /// Who provides credentials for xDS, if not the certificate.
    XDS_AUTH_PROVIDER: Text = "";

    /// Root certificate file for xDS; `SYSTEM` takes the system's roots.
    XDS_ROOT_CA: Text = "";
}
