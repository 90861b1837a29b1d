//! Sidecars.

use super::check;

#[test]
fn listeners_for_what_comes_in_send_to_the_workload() {
    check(
        "Sidecar",
        r"
ingress:
- {}
- {port: {number: 80, protocol: HTTP, name: http}, defaultEndpoint: '127.0.0.1:8080'}
- {port: {number: 80, protocol: FOO, name: a b, targetPort: 1}, bind: a, defaultEndpoint: '10.0.0.1:x'}
- {port: {number: 81}, defaultEndpoint: a}
- {port: {number: 82}, defaultEndpoint: 'unix://a'}
- port: {number: 83, protocol: TCP, name: tcp}
  tls: {mode: ISTIO_MUTUAL, subjectAltNames: [a], credentialName: b}
  connectionPool: {http: {maxRetries: -1}}
",
        &[
            "spec.ingress[0].port: sidecar: port is required for ingress listeners",
            "spec.ingress[2].port.targetPort: targetPort has no impact on Sidecars",
            "spec.ingress[2].port.name: invalid port name: a b",
            "spec.ingress[2].port.protocol: unsupported protocol: FOO",
            "spec.ingress[2].bind: a is not a valid IP",
            "spec.ingress[2].port.number: sidecar: ports on IP bound listeners must be unique",
            "spec.ingress[2].defaultEndpoint: sidecar: defaultEndpoint must be of form \
             127.0.0.1:<port>,0.0.0.0:<port>,[::1]:port,[::]:port,unix://filepath or unset",
            "spec.ingress[2].defaultEndpoint: sidecar: defaultEndpoint port (x) is not a number: strconv.Atoi: parsing \"x\": \
             invalid syntax",
            "spec.ingress[3].defaultEndpoint: address a: missing port in address",
            "spec.ingress[3].defaultEndpoint: sidecar: defaultEndpoint port () is not a number: strconv.Atoi: parsing \"\": \
             invalid syntax",
            "spec.ingress[4].defaultEndpoint: a is not an absolute path to a file",
            "spec.ingress[5].tls.subjectAltNames: sidecar: subjectAltNames is not supported in ingress tls",
            "spec.ingress[5].tls.credentialName: sidecar: credentialName is not currently supported",
            "spec.ingress[5].tls.mode: configuration is invalid: cannot set mode to ISTIO_MUTUAL in sidecar ingress tls",
            "spec.ingress[5].tls: server cannot have TLS settings for non HTTPS/TLS ports",
            "spec.ingress[5].tls.credentialName: ISTIO_MUTUAL TLS cannot have associated credentialName",
            "spec.ingress[5].connectionPool.http.maxRetries: max retries must be non-negative",
        ],
        &[
            "spec.ingress[5].connectionPool.http: sidecar: HTTP connection pool settings are configured for port 83 (\"tcp\") but \
           its protocol is not HTTP (TCP); only TCP settings will apply",
        ],
    );
}

#[test]
fn listeners_for_what_goes_out_know_hosts() {
    check(
        "Sidecar",
        r"
workloadSelector: {}
egress:
- hosts: ['*/*', ./*, demo/a.com, a, ~b/*, ns/short]
- {port: {number: 0, protocol: HTTP}, captureMode: IPTABLES, hosts: [./*]}
- {port: {number: 0, protocol: HTTP}, bind: 'unix:///a', hosts: [./*]}
- {port: {number: 0, protocol: HTTP}, bind: 'unix:///a', hosts: [a_b/*]}
- {port: {number: 1, protocol: HTTP}, hosts: []}
- {port: {number: 1, protocol: HTTP}, bind: 1.2.3, hosts: ['~/*']}
",
        &[
            "spec.egress[0].port: sidecar: the egress listener with empty port should be the last listener in the list",
            "spec.egress[0].hosts[3]: host must be of form namespace/dnsName",
            "spec.egress[0].hosts[5]: short names (non FQDN) are not allowed",
            "spec.egress[1].bind: sidecar: ports with 0 value must have a unix domain socket bind address",
            "spec.egress[1].captureMode: sidecar: captureMode must be DEFAULT/NONE for unix domain socket listeners",
            "spec.egress[3].bind: sidecar: unix domain socket values for listeners must be unique",
            r#"spec.egress[3].hosts[0]: invalid namespace value "a_b" in sidecar"#,
            "spec.egress[4].hosts: sidecar: egress listener must contain at least one host",
            "spec.egress[5].bind: 1.2.3 is not a valid IP",
            "spec.egress[5].port.number: sidecar: ports on IP bound listeners must be unique",
        ],
        &[
            "spec.workloadSelector: sidecar: workload selector specified without labels, will be applied to all services in \
             namespace",
            "spec.egress[0].hosts[2]: duplicated egress host: demo/a.com",
            "spec.egress[0].hosts: `*/*` host select all resources, no other hosts can be added",
        ],
    );
}

#[test]
fn host_that_is_wrong_is_said_twice() {
    let wrong = r#"spec.egress[0].hosts[0]: domain name "b_c" invalid (label "b_c" invalid)"#;
    check("Sidecar", "egress: [{hosts: [./a.b_c]}]", &[wrong, wrong], &[]);
}

#[test]
fn warning_is_lost_when_there_is_nothing_else() {
    check(
        "Sidecar",
        "workloadSelector: {}",
        &["spec: sidecar: empty configuration provided"],
        &[
            "(spec.workloadSelector: sidecar: workload selector specified without labels, will be applied to all services in \
           namespace)",
        ],
    );
}

#[test]
fn egress_proxy_is_used_when_anything_is_allowed() {
    let policy = |policy: &str| format!("outboundTrafficPolicy: {policy}");
    check(
        "Sidecar",
        &policy("{mode: REGISTRY_ONLY, egressProxy: {host: a}}"),
        &["spec.outboundTrafficPolicy.egressProxy: sidecar: egress_proxy must be set only with ALLOW_ANY \
           outbound_traffic_policy mode"],
        &[],
    );
    check(
        "Sidecar",
        &policy("{mode: ALLOW_ANY, egressProxy: {host: a b}}"),
        &[
            r#"spec.outboundTrafficPolicy.egressProxy.host: domain name "a b" invalid (label "a b" invalid)"#,
            "spec.outboundTrafficPolicy.egressProxy.port: sidecar: egress_proxy port must be non-nil",
        ],
        &[],
    );
    check(
        "Sidecar",
        &policy("{mode: 3}"),
        &[
            "spec.outboundTrafficPolicy.mode: sidecar: ALLOW_ANY_DYNAMIC_DNS mode is only supported in MeshConfig, not in \
           Sidecar resource",
        ],
        &[],
    );
}
