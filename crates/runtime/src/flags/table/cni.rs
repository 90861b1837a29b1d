//! Traffic capture: the node agent, its plugin, and redirection in a pod.

super::flags! {
    Cni

    /// Whether pods with a network interface of their own on AWS get routes for the node's probes.
    AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE: Bool = "true";

    /// Whether the lock of legacy iptables is taken per network namespace.
    AMBIENT_USE_SCOPED_XTABLES_LOCKING: Bool = "true";

    /// File to which a dry run writes the rules.
    DRY_RUN_FILE_PATH: Text = "";

    /// User the proxy runs as, whose traffic is not captured.
    ENVOY_USER: Text = "istio-proxy";

    /// IPv4 address that probes of the node appear to come from.
    HOST_PROBE_SNAT_IP: Text = "169.254.7.127";

    /// IPv6 address that probes of the node appear to come from.
    HOST_PROBE_SNAT_IPV6: Text = "fd16:9254:7127:1337:ffff:ffff:ffff:ffff";

    /// How incoming connections are captured: `REDIRECT` or `TPROXY`.
    INBOUND_INTERCEPTION_MODE: Text = "";

    /// Packet mark of connections captured by TPROXY.
    INBOUND_TPROXY_MARK: Text = "";

    /// Loopback addresses that stand for the application itself.
    ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR: Text = "127.0.0.1/32";

    /// Groups, by name or number, whose outgoing traffic is captured.
    ISTIO_OUTBOUND_OWNER_GROUPS: List = "*";

    /// Groups whose outgoing traffic is not captured although all are.
    ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE: List = "";

    /// Namespace of the control plane.
    SYSTEM_NAMESPACE: Text = "istio-system";
}
