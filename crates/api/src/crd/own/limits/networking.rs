//! Where traffic goes.

use super::Limit::{
    Also, AnyDuration, AtMostOne, Each, Keyed, MaxItems, MaxLength, MaxProperties, Maximum, MinItems,
    MinLength, Minimum, Pattern, Required, Without,
};
use super::{Entry, PORT, rule};

pub(super) const LIMITS: &[Entry] = &[
    // DestinationRule
    ("DestinationRule.host", &[Required]),
    ("TrafficPolicy.port_level_settings", &[MaxItems(4096)]),
    ("TrafficPolicy.TunnelSettings.target_host", &[Required]),
    ("TrafficPolicy.TunnelSettings.target_port", &[Required]),
    ("TrafficPolicy.RetryBudget.percent", &[Minimum(0), Maximum(100)]),
    ("TrafficPolicy.RetryBudget.budget_interval", &[AnyDuration]),
    ("Subset.name", &[Required]),
    ("LoadBalancerSettings.BackendUtilizationLB.weight_stabilization_period", &[AnyDuration]),
    ("LoadBalancerSettings.BackendUtilizationLB.weight_expiration_period", &[AnyDuration]),
    ("LoadBalancerSettings.BackendUtilizationLB.weight_update_period", &[AnyDuration]),
    ("LoadBalancerSettings.ConsistentHashLB.HTTPCookie.name", &[Required]),
    ("LoadBalancerSettings.ConsistentHashLB.HTTPCookie.ttl", &[AnyDuration]),
    ("LoadBalancerSettings.ConsistentHashLB.HTTPCookie.Attribute.name", &[Required]),
    ("WarmupConfiguration.duration", &[Required]),
    ("WarmupConfiguration.minimum_percent", &[Minimum(0), Maximum(100)]),
    ("WarmupConfiguration.aggression", &[Minimum(0)]),
    ("ConnectionPoolSettings.TCPSettings.idle_timeout", &[AnyDuration]),
    ("OutlierDetection.outlier_detection_http_error_codes", &[Each(&[Minimum(100), Maximum(599)])]),
    ("ZoneAwareLoadBalancerSetting.min_cluster_size", &[Minimum(1)]),
    // EnvoyFilter
    (
        "EnvoyFilter",
        &[AtMostOne {
            of: &["workloadSelector", "targetRefs"],
            message: "only one of targetRefs or workloadSelector can be set",
        }],
    ),
    ("EnvoyFilter.targetRefs", &[MaxItems(16)]),
    ("EnvoyFilter.WaypointMatch.port_number", &[PORT]),
    (
        "EnvoyFilter.EnvoyConfigObjectMatch",
        &[rule(
            "has(self.context) ? ((self.context == \"WAYPOINT\") ? has(self.waypoint) : !has(self.waypoint)) : \
             !has(self.waypoint)",
            "only support waypointMatch when context is WAYPOINT",
        )],
    ),
    // Gateway
    ("Server.port", &[Required]),
    ("Server.hosts", &[Required]),
    ("Port.number", &[Required]),
    ("Port.protocol", &[Required]),
    ("Port.name", &[Required]),
    (
        "ServerTLSSettings",
        &[
            AtMostOne {
                of: &["tlsCertificates", "credentialNames"],
                message: "only one of credentialNames or tlsCertificates can be set",
            },
            AtMostOne {
                of: &["credentialName", "credentialNames"],
                message: "only one of credentialName or credentialNames can be set",
            },
            // Parity: the message names another field than the rule is about.
            AtMostOne {
                of: &["credentialNames", "tlsCertificates"],
                message: "only one of credentialName or tlsCertificates can be set",
            },
        ],
    ),
    ("ServerTLSSettings.credential_names", &[MinItems(1), MaxItems(2)]),
    ("ServerTLSSettings.tls_certificates", &[MinItems(1), MaxItems(2)]),
    // ServiceEntry
    (
        "ServiceEntry",
        &[
            AtMostOne {
                of: &["workloadSelector", "endpoints"],
                message: "only one of WorkloadSelector or Endpoints can be set",
            },
            rule(
                "!((has(self.addresses) ? self.addresses : []).exists(k, k.contains(\"/\")) && \
                 !((has(self.resolution) ? self.resolution : \"NONE\") in [\"STATIC\", \"NONE\"]))",
                "CIDR addresses are allowed only for NONE/STATIC resolution types",
            ),
            rule(
                r#"((has(self.resolution) ? self.resolution : "NONE") == "NONE") ? !has(self.endpoints) : true"#,
                "NONE mode cannot set endpoints",
            ),
            rule(
                "((has(self.resolution) ? self.resolution : \"\") == \"DNS_ROUND_ROBIN\") ? \
                 ((has(self.endpoints) ? self.endpoints : []).size() <= 1) : true",
                "DNS_ROUND_ROBIN mode cannot have multiple endpoints",
            ),
        ],
    ),
    (
        "ServiceEntry.hosts",
        &[
            Required,
            MinItems(1),
            MaxItems(256),
            Each(&[rule(r#"self != "*""#, "hostname cannot be wildcard")]),
        ],
    ),
    ("ServiceEntry.addresses", &[MaxItems(256), Each(&[MaxLength(64)])]),
    (
        "ServiceEntry.ports",
        &[
            MaxItems(256),
            Keyed("name"),
            rule(
                "self.all(l1, self.exists_one(l2, l1.number == l2.number))",
                "port number cannot be duplicated",
            ),
        ],
    ),
    ("ServiceEntry.endpoints", &[MaxItems(4096)]),
    ("ServicePort.number", &[Required, PORT]),
    ("ServicePort.protocol", &[MaxLength(256)]),
    ("ServicePort.name", &[Required, MaxLength(256)]),
    ("ServicePort.target_port", &[PORT]),
    // Sidecar
    ("IstioIngressListener.port", &[Required]),
    ("IstioEgressListener.hosts", &[Required]),
    (
        "WorkloadSelector.labels",
        &[
            MaxProperties(256),
            Each(&[MaxLength(63), rule(r#"!self.contains("*")"#, "wildcard is not supported in selector")]),
        ],
    ),
    // VirtualService
    ("Destination.host", &[Required]),
    ("HTTPRoute.mirror_percent", &[Also("mirror_percent")]),
    ("TLSRoute.match", &[Required]),
    ("HTTPRouteDestination.destination", &[Required]),
    ("RouteDestination.destination", &[Required]),
    ("TLSMatchAttributes.sni_hosts", &[Required]),
    ("HTTPDirectResponse.status", &[Required]),
    ("HTTPMirrorPolicy.destination", &[Required]),
    // WorkloadEntry
    (
        "WorkloadEntry",
        &[
            rule("has(self.address) || has(self.network)", "Address is required"),
            rule(
                r#"(has(self.address) ? self.address : "").startsWith("unix://") ? !has(self.ports) : true"#,
                "UDS may not include ports",
            ),
        ],
    ),
    (
        "WorkloadEntry.address",
        &[
            MaxLength(256),
            rule(
                r#"self.startsWith("unix://") ? (self.substring(7, 8) == "/" || self.substring(7, 8) == "@") : true"#,
                "UDS must be an absolute path or abstract socket",
            ),
            rule(r#"self.startsWith("unix://") ? !self.endsWith("/") : true"#, "UDS may not be a dir"),
        ],
    ),
    (
        "WorkloadEntry.ports",
        &[
            MaxProperties(128),
            rule(
                r#"self.all(key, size(key) < 63 && key.matches("^[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?$"))"#,
                "port name must be valid",
            ),
            Each(&[PORT]),
        ],
    ),
    ("WorkloadEntry.labels", &[MaxProperties(256)]),
    ("WorkloadEntry.network", &[MaxLength(2048)]),
    ("WorkloadEntry.locality", &[MaxLength(2048)]),
    ("WorkloadEntry.service_account", &[MaxLength(253)]),
    // WorkloadGroup
    ("WorkloadGroup.template", &[Required, Without("Address is required")]),
    ("WorkloadGroup.ObjectMeta.labels", &[MaxProperties(256)]),
    ("WorkloadGroup.ObjectMeta.annotations", &[MaxProperties(256)]),
    ("ReadinessProbe.initial_delay_seconds", &[Minimum(0)]),
    ("ReadinessProbe.timeout_seconds", &[Minimum(0)]),
    ("ReadinessProbe.period_seconds", &[Minimum(0)]),
    ("ReadinessProbe.success_threshold", &[Minimum(0)]),
    ("ReadinessProbe.failure_threshold", &[Minimum(0)]),
    ("HTTPHealthCheckConfig.port", &[Required, PORT]),
    (
        "HTTPHealthCheckConfig.scheme",
        &[rule(r#"self in ["", "HTTP", "HTTPS"]"#, "scheme must be one of [HTTP, HTTPS]")],
    ),
    ("GrpcHealthCheckConfig.port", &[PORT]),
    ("HTTPHeader.name", &[Pattern("^[-_A-Za-z0-9]+$")]),
    ("TCPHealthCheckConfig.port", &[Required, PORT]),
    ("ExecHealthCheckConfig.command", &[Required, Each(&[MinLength(1)])]),
];

pub(super) const PROXY_CONFIG_LIMITS: &[Entry] = &[
    ("ProxyConfig.concurrency", &[Minimum(0)]),
    ("ProxyConfig.environment_variables", &[Each(&[MaxLength(2048)])]),
];
