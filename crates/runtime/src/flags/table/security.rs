//! Certificates, identities, tokens, and who may ask for what.

super::flags! {
    Security

    /// Audience a token must have, where tokens are checked against an issuer.
    AUDIENCE: Text = "";

    /// Address ranges from which token keys are never fetched.
    BLOCKED_CIDRS_IN_JWKS_URIS: List = "";

    /// Whether keys of token issuers are fetched from loopback addresses and from the control plane's own.
    CANOPUS_ALLOW_LOCAL_JWKS: Bool = "false";

    /// Certificate service, as host:port, to which `EXTERNAL_CA=ISTIOD_RA_ISTIO_API` hands requests.
    CANOPUS_EXTERNAL_CA_ADDRESS: Text = "";

    /// File with the token that is presented to that service; without, no token is.
    CANOPUS_EXTERNAL_CA_TOKEN_FILE: Text = "";

    /// How long a new root takes to reach every proxy, or a certificate's default lifetime if that is longer.
    CANOPUS_ROOT_PROPAGATION: Duration = "1h";

    /// How long a replica may go on signing without a look at the stored root; a rotation waits for as long.
    CANOPUS_ROOT_STALENESS: Duration = "24h";

    /// Service accounts, as namespace/name, that may request certificates for the pods of their node.
    CA_TRUSTED_NODE_ACCOUNTS: List = "";

    /// Domain of the signers to which certificate requests are handed on.
    CERT_SIGNER_DOMAIN: Text = "";

    /// Whether checks of the root certificate start at a random moment, so that replicas do not collide.
    CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR: Bool = "true";

    /// Lifetime of a root certificate the control plane signs for itself.
    CITADEL_SELF_SIGNED_CA_CERT_TTL: Duration = "87600h";

    /// Bits of the key of such a root certificate.
    CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE: Int = "2048";

    /// How often such a root certificate is checked for renewal; 0 never renews it.
    CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL: Duration = "1h";

    /// Share of its lifetime, in percent, before the end of which such a root certificate is renewed.
    CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE: Int = "20";

    /// Standard that restricts TLS versions, ciphers and curves everywhere; empty restricts nothing.
    COMPLIANCE_POLICY: Text = "";

    /// Namespaces beside the control plane's own whose workloads may read all debug endpoints.
    DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES: List = "";

    /// Lifetime of a workload certificate whose request asks for none.
    DEFAULT_WORKLOAD_CERT_TTL: Duration = "24h";

    /// Whether this control plane signs workload certificates.
    ENABLE_CA_SERVER: Bool = "true";

    /// Whether the root certificate is distributed as a ClusterTrustBundle instead of ConfigMaps.
    ENABLE_CLUSTER_TRUST_BUNDLE_API: Bool = "false";

    /// Whether debug endpoints show a workload only what belongs to its namespace.
    ENABLE_DEBUG_ENDPOINT_AUTH: Bool = "true";

    /// Whether debug endpoints are served over HTTP.
    ENABLE_DEBUG_ON_HTTP: Bool = "true";

    /// Whether configuration is served over xDS to control planes alone.
    ENABLE_XDS_API_GENERATOR_AUTH: Bool = "true";

    /// Kind of external authority that signs: `ISTIOD_RA_KUBERNETES_API` (Kubernetes) or `ISTIOD_RA_ISTIO_API` (a certificate service).
    EXTERNAL_CA: Text = "";

    /// Host names of the control plane's certificate beside its service names.
    ISTIOD_CUSTOM_HOST: List = "";

    /// Whether peers may have certificates of several roots.
    ISTIO_MULTIROOT_MESH: Bool = "false";

    /// Whether a workload must have the identity of the WorkloadEntry it registers as.
    ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY: Bool = "true";

    /// Whether servers of token keys need no valid certificate.
    JWKS_RESOLVER_INSECURE_SKIP_VERIFY: Bool = "false";

    /// Rule by which callers with a token of an outside issuer are authenticated, as JSON.
    JWT_RULE: Text = "";

    /// Kubernetes signer that signs workload certificates.
    K8S_SIGNER: Text = "";

    /// Longest lifetime a workload certificate may have.
    MAX_WORKLOAD_CERT_TTL: Duration = "2160h";

    /// ConfigMap that holds the root certificate in each namespace.
    PILOT_CA_CERT_CONFIGMAP: Text = "istio-ca-root-cert";

    /// Who issues the control plane's own certificate: `istiod`, `k8s.io/<signer>`, or another word for none.
    PILOT_CERT_PROVIDER: Text = "istiod";

    /// ConfigMap that holds the revocation list in each namespace.
    PILOT_CRL_CONFIGMAP: Text = "istio-ca-crl";

    /// Whether a revocation list beside a plugged-in CA is distributed.
    PILOT_ENABLE_CA_CRL: Bool = "true";

    /// Whether a workload may have several external authorisers, each for its own paths.
    PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS: Bool = "false";

    /// Whether a proxy may claim only the namespace and account its credentials prove.
    PILOT_ENABLE_XDS_IDENTITY_CHECK: Bool = "true";

    /// Who fetches token keys: the control plane (`istiod`, `false`), the proxy (`envoy`), or the proxy for keys inside
    /// the mesh and the control plane for others (`hybrid`, `true`).
    PILOT_JWT_ENABLE_REMOTE_JWKS: Choice = "false", one_of(&["false", "istiod", "true", "hybrid", "envoy"]);

    /// How often token keys are fetched again.
    PILOT_JWT_PUB_KEY_REFRESH_INTERVAL: Duration = "20m";

    /// Whether peers of any trust domain pass mutual TLS.
    PILOT_SKIP_VALIDATE_TRUST_DOMAIN: Bool = "false";

    /// Directory with a plugged-in CA.
    ROOT_CA_DIR: Text = "./etc/cacerts";

    /// Audiences of which a token must have one before a certificate is issued.
    TOKEN_AUDIENCES: List = "istio-ca";

    /// Issuer whose tokens are accepted.
    TOKEN_ISSUER: Text = "";

    /// Address ranges from which the client certificate in a forwarding header is believed.
    TRUSTED_GATEWAY_CIDR: List = "";

    /// Whether endpoints that change the control plane's state are served.
    UNSAFE_ENABLE_ADMIN_ENDPOINTS: Bool = "false";

    /// Whether costly internal checks run, which end the process when they fail.
    UNSAFE_PILOT_ENABLE_RUNTIME_ASSERTIONS: Bool = "false";

    /// Whether the self-signed root is kept in the secret `cacerts`.
    USE_CACERTS_FOR_SELF_SIGNED_CA: Bool = "false";

    /// Whether CA files are read from the configuration cluster.
    USE_REMOTE_CERTS: Bool = "false";

    /// Whether xDS clients must prove who they are.
    XDS_AUTH: Bool = "true";

    /// Whether that holds on plaintext connections as well.
    XDS_AUTH_PLAINTEXT: Bool = "false";
}
