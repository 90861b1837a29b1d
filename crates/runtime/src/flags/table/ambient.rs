//! Ambient mode: ztunnel, waypoints and HBONE.

super::flags! {
    Ambient

    /// Whether waypoints learn about peers from the baggage header.
    AMBIENT_ENABLE_BAGGAGE: Bool = "false", when(PILOT_ENABLE_AMBIENT, "false");

    /// Whether ztunnel is given dry-run policies, which versions before 1.29 would enforce.
    AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY: Bool = "false", when(PILOT_ENABLE_AMBIENT, "false");

    /// Whether ambient traffic crosses networks.
    AMBIENT_ENABLE_MULTI_NETWORK: Bool = "false", when(PILOT_ENABLE_AMBIENT, "false");

    /// Whether ingress gateways route to other networks, given that ambient crosses networks.
    AMBIENT_ENABLE_MULTI_NETWORK_INGRESS: Bool = "false", when(PILOT_ENABLE_AMBIENT, "false");

    /// Whether waypoints route to other networks, given that ambient crosses networks.
    AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT: Bool = "false", when(PILOT_ENABLE_AMBIENT, "true");

    /// Whether what ambient makes of an object is written to its status.
    AMBIENT_ENABLE_STATUS: Bool = "false", when(PILOT_ENABLE_AMBIENT, "true");

    /// Whether a changed address is pushed to the waypoints it concerns instead of to all.
    AMBIENT_SCOPED_ADDRESS_PUSHES: Bool = "true";

    /// Whether gateways send through a service's waypoint if the service is labelled for it.
    ENABLE_INGRESS_WAYPOINT_ROUTING: Bool = "false", when(PILOT_ENABLE_AMBIENT, "true");

    /// Whether policies that select workloads are enforced at layer 4 in front of a waypoint.
    ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES: Bool = "false";

    /// Whether workloads with a waypoint accept that waypoint alone unless a policy allows others.
    PILOT_AUTO_ALLOW_WAYPOINT_POLICY: Bool = "false", when(PILOT_ENABLE_AMBIENT, "false");

    /// Whether ambient mode exists; without it the flags that depend on it are off whatever they say.
    PILOT_ENABLE_AMBIENT: Bool = "false";

    /// Whether waypoints are configured.
    PILOT_ENABLE_AMBIENT_WAYPOINTS: Bool = "false", when(PILOT_ENABLE_AMBIENT, "true");

    /// Whether proxies may send over HBONE.
    PILOT_ENABLE_SENDING_HBONE: Bool = "false", when(PILOT_ENABLE_AMBIENT, "true");

    /// Whether sidecars may receive over HBONE.
    PILOT_ENABLE_SIDECAR_LISTENING_HBONE: Bool = "false", when(PILOT_ENABLE_AMBIENT, "true");

    /// HTTP/2 window of an outgoing HBONE connection, in bytes; 0 leaves it to the proxy.
    PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE: Int = "0", within(0.0, 4294967295.0), when(PILOT_ENABLE_AMBIENT, "0");

    /// HTTP/2 window of an outgoing HBONE stream, in bytes; 0 leaves it to the proxy.
    PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE: Int = "0", within(0.0, 4294967295.0), when(PILOT_ENABLE_AMBIENT, "0");

    /// Whether HBONE is chosen where a destination also takes plain mutual TLS.
    PILOT_PREFER_SENDING_HBONE: Bool = "false", when(PILOT_ENABLE_AMBIENT, "false");
}
