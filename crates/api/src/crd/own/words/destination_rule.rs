//! Destination rules: how services are called.

use super::Entry;

const LOAD_BALANCER: &str = "How endpoints are chosen.";
const CONNECTION_POOL: &str = "Bounds on connections and requests.";
const OUTLIER_DETECTION: &str = "When an endpoint is left out for a while.";
const TLS: &str = "How TLS is done with the service.";
const FAILOVER: &[(&str, &str)] =
    &[("from", "The region that is left."), ("to", "The region that takes over.")];
const FAILOVER_PRIORITY: &str =
    "Labels in order of weight: the more of them endpoint and client share, the better.";

pub(super) const WORDS: &[Entry] = &[
    (
        "DestinationRule",
        "How a service is called once it is known that it is.",
        &[
            ("host", "The service; a short name is taken as one in the object's own namespace."),
            ("traffic_policy", "How it is called."),
            ("subsets", "Named parts of it."),
            ("export_to", "The namespaces that see this object: `.` for its own, `*` for all."),
            ("workload_selector", "Which callers it is for; all by default."),
        ],
    ),
    (
        "TrafficPolicy",
        "How a service is called.",
        &[
            ("load_balancer", LOAD_BALANCER),
            ("connection_pool", CONNECTION_POOL),
            ("outlier_detection", OUTLIER_DETECTION),
            ("tls", TLS),
            ("port_level_settings", "What is different for some of its ports."),
            ("tunnel", "Sends connections through a tunnel."),
            ("proxy_protocol", "Tells the service who calls, with the PROXY protocol."),
            ("retry_budget", "How many of the requests in flight may be retries."),
        ],
    ),
    (
        "TrafficPolicy.PortTrafficPolicy",
        "How one port of a service is called.",
        &[
            ("port", "The port."),
            ("load_balancer", LOAD_BALANCER),
            ("connection_pool", CONNECTION_POOL),
            ("outlier_detection", OUTLIER_DETECTION),
            ("tls", TLS),
        ],
    ),
    (
        "TrafficPolicy.TunnelSettings",
        "A tunnel for connections.",
        &[
            ("protocol", "CONNECT or POST; CONNECT by default."),
            ("target_host", "The host at the far end."),
            ("target_port", "The port at the far end."),
        ],
    ),
    ("TrafficPolicy.ProxyProtocol", "The PROXY protocol.", &[("version", "Which version is spoken.")]),
    (
        "TrafficPolicy.RetryBudget",
        "How many of the requests in flight may be retries.",
        &[
            ("percent", "As a share of the requests in flight; 20 by default."),
            ("min_retry_concurrency", "So many may be in any case; 3 by default."),
            ("budget_interval", "Has no effect."),
        ],
    ),
    (
        "Subset",
        "A named part of a service.",
        &[
            ("name", "The name that routes use."),
            ("labels", "Labels that its endpoints have."),
            ("traffic_policy", "What is different in how it is called."),
        ],
    ),
    (
        "LoadBalancerSettings",
        "How endpoints are chosen.",
        &[
            ("simple", "By a rule that needs no more settings."),
            ("consistent_hash", "By something about the request, so that equal ones get the same endpoint."),
            ("backend_utilization", "By the load that endpoints report."),
            ("locality_lb_setting", "How near endpoints are preferred to far ones."),
            ("zone_aware_lb_setting", "How endpoints of the own zone are preferred."),
            ("warmup_duration_secs", "Replaced by `warmup`."),
            ("warmup", "How a new endpoint is given more and more to do."),
        ],
    ),
    (
        "LoadBalancerSettings.BackendUtilizationLB",
        "Chooses endpoints by the load they report.",
        &[
            (
                "weight_expiration_period",
                "After how long without a report an endpoint counts as average again.",
            ),
            ("weight_stabilization_period", "For how long the first reports of an endpoint are not trusted."),
            ("weight_update_period", "How often weights are computed."),
            ("metric_names_for_computing_utilization", "The metrics that load is computed from."),
            ("error_utilization_penalty_percent", "How much errors add to the load of an endpoint."),
        ],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB",
        "Chooses endpoints by something about the request.",
        &[
            ("http_header_name", "By this header."),
            ("http_cookie", "By this cookie."),
            ("use_source_ip", "By the address of the client."),
            ("http_query_parameter_name", "By this parameter of the query."),
            ("ring_hash", "By a ring."),
            ("maglev", "By Maglev's table."),
            ("minimum_ring_size", "Replaced by `ringHash`."),
        ],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB.HTTPCookie",
        "A cookie that is made if there is none.",
        &[
            ("name", "Its name."),
            ("path", "Its path."),
            ("ttl", "How long it lives; 0 for as long as the session."),
            ("attributes", "What else is said about it."),
        ],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB.HTTPCookie.Attribute",
        "Something said about a cookie.",
        &[("name", "Its name, such as `SameSite`."), ("value", "Its value; some have none.")],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB.RingHash",
        "A ring of endpoints.",
        &[("minimum_ring_size", "The fewest places on it; 1024 by default.")],
    ),
    (
        "LoadBalancerSettings.ConsistentHashLB.MagLev",
        "A table of endpoints.",
        &[("table_size", "The places in it, a prime number; 65537 by default.")],
    ),
    (
        "LocalityLoadBalancerSetting",
        "How near endpoints are preferred to far ones. At most one of the ways may be set.",
        &[
            ("distribute", "Shares of traffic by where it comes from and goes to."),
            ("failover", "Which region takes over for which."),
            ("failover_priority", FAILOVER_PRIORITY),
            ("enabled", "Whether it is done at all; as in the mesh by default."),
        ],
    ),
    (
        "LocalityLoadBalancerSetting.Distribute",
        "Where traffic from a locality goes.",
        &[
            ("from", "The locality, as `region/zone/sub-zone`; `*` for any."),
            ("to", "Localities with their shares, which add up to 100."),
        ],
    ),
    ("LocalityLoadBalancerSetting.Failover", "Which region takes over for another.", FAILOVER),
    (
        "ZoneAwareLoadBalancerSetting",
        "How endpoints of the own zone are preferred.",
        &[
            ("enabled", "Whether it is done at all."),
            ("failover", "Which region takes over for which."),
            ("failover_priority", FAILOVER_PRIORITY),
            ("min_cluster_size", "With fewer endpoints than this it is not done."),
        ],
    ),
    ("ZoneAwareLoadBalancerSetting.Failover", "Which region takes over for another.", FAILOVER),
    (
        "WarmupConfiguration",
        "How a new endpoint is given more and more to do.",
        &[
            ("duration", "For how long it counts as new."),
            ("minimum_percent", "The share of its weight it begins with; 10 by default."),
            ("aggression", "How fast its share grows: 1 for evenly, more for faster at first."),
        ],
    ),
    (
        "ConnectionPoolSettings",
        "Bounds on connections and requests.",
        &[("tcp", "What holds for all connections."), ("http", "What holds for those that speak HTTP.")],
    ),
    (
        "ConnectionPoolSettings.TCPSettings",
        "Bounds on connections.",
        &[
            ("max_connections", "How many there may be."),
            ("connect_timeout", "How long making one may take; 10 s by default."),
            ("tcp_keepalive", "Keeps idle ones alive with probes."),
            ("max_connection_duration", "How long one may last."),
            ("idle_timeout", "After how long without traffic one is closed; 1 h by default, 0 s for never."),
        ],
    ),
    (
        "ConnectionPoolSettings.TCPSettings.TcpKeepalive",
        "Probes of connections without traffic.",
        &[
            ("probes", "How many without an answer mean that a connection is dead."),
            ("time", "After how long without traffic they begin."),
            ("interval", "How long between two of them."),
        ],
    ),
    (
        "ConnectionPoolSettings.HTTPSettings",
        "Bounds on requests.",
        &[
            ("http1_max_pending_requests", "How many may wait for a connection."),
            ("http2_max_requests", "How many may be in flight."),
            ("max_requests_per_connection", "How many one connection serves; 1 for no reuse."),
            ("max_retries", "How many retries may be in flight."),
            ("idle_timeout", "After how long without requests a connection is closed; 1 h by default."),
            ("h2_upgrade_policy", "Whether HTTP/1.1 is carried on as HTTP/2."),
            ("use_client_protocol", "Speaks to the service what the client speaks."),
            ("max_concurrent_streams", "How many requests one HTTP/2 connection may carry at once."),
            ("http2_keep_alive", "Keeps HTTP/2 connections alive with pings."),
        ],
    ),
    (
        "ConnectionPoolSettings.HTTPSettings.ConnectionKeepalive",
        "Pings on connections.",
        &[("interval", "How long between two of them."), ("timeout", "How long an answer may take.")],
    ),
    (
        "OutlierDetection",
        "When an endpoint is left out for a while.",
        &[
            ("consecutive_errors", "Replaced by `consecutive5xxErrors` and `consecutiveGatewayErrors`."),
            ("consecutive_gateway_errors", "After so many 502, 503 and 504 in a row; never by default."),
            ("consecutive_5xx_errors", "After so many failures in a row; 5 by default, 0 for never."),
            (
                "split_external_local_origin_errors",
                "Counts failures to connect apart from those the service answers.",
            ),
            (
                "consecutive_local_origin_failures",
                "After so many failures to connect in a row, where they count apart.",
            ),
            ("interval", "How often it is looked at; every 10 s by default."),
            ("base_ejection_time", "For how long at least; 30 s by default, and longer each time."),
            ("max_ejection_percent", "The share of endpoints that may be left out; 10 by default."),
            ("min_health_percent", "With a smaller share of healthy endpoints nobody is left out."),
            ("outlier_detection_http_error_codes", "The statuses that count as failures."),
        ],
    ),
    (
        "ClientTLSSettings",
        "How TLS is done with the service.",
        &[
            ("mode", "Whether TLS is used, and what is shown to the service."),
            ("client_certificate", "The file with the certificate."),
            ("private_key", "The file with the key."),
            ("ca_certificates", "The file with the authorities of the service."),
            ("ca_crl", "The file with the certificates that are revoked."),
            (
                "credential_name",
                "The secret with certificate, key and authority; for gateways and where a rule selects workloads.",
            ),
            ("subject_alt_names", "Names of which the certificate of the service has to have one."),
            ("sni", "The server name that is asked for."),
            ("insecure_skip_verify", "Takes any certificate of the service."),
        ],
    ),
];
