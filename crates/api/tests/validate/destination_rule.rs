//! Destination rules.

use super::{check, report};

#[test]
fn subsets_have_names_and_labels() {
    let spec = r"
host: a
subsets:
- name: v1
- name: v1
- name: ''
  labels: {bad key!: bad val!}
  trafficPolicy: {}
- name: b
  trafficPolicy: {outlierDetection: {consecutiveErrors: 1}}
";
    check(
        "DestinationRule",
        spec,
        &[
            "spec.subsets[1].name: duplicate subset names: v1",
            "spec.subsets[2].name: subset name cannot be empty",
            r#"spec.subsets[2].labels["bad key!"]: invalid tag key: "bad key!""#,
            r#"spec.subsets[2].labels["bad key!"]: invalid tag value: "bad val!""#,
            "spec.subsets[2].trafficPolicy: traffic policy must have at least one field",
        ],
        &[
            "(spec.subsets[3].trafficPolicy.outlierDetection.consecutiveErrors: outlier detection consecutive errors is \
           deprecated, use consecutiveGatewayErrors or consecutive5xxErrors instead)",
        ],
    );
}

#[test]
fn label_that_is_wrong_alone_is_said_as_a_list() {
    let report = report("DestinationRule", "host: a\nsubsets: [{name: a, labels: {a: b c}}]");
    assert_eq!(report.error_text().unwrap(), "1 error occurred:\n\t* invalid tag value: \"b c\"\n\n");
}

#[test]
fn load_balancer_settings_fit_together() {
    check(
        "DestinationRule",
        r"
host: a
trafficPolicy:
  loadBalancer:
    consistentHash:
      httpCookie: {attributes: [{name: a}, {name: a}, {}]}
      minimumRingSize: 5
      maglev: {tableSize: 5000012}
    warmup: {aggression: 0, minimumPercent: 101}
    localityLbSetting: {distribute: [{from: a, to: {b: 50, c: 51}}, {from: a/*/c, to: {}}], failover: [{from: x, to: x}]}
    zoneAwareLbSetting: {failoverPriority: [topology.istio.io/subzone, x], failover: [{from: a/b, to: '*'}]}
",
        &[
            "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.name: name required for HttpCookie",
            "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[1]: duplicate cookie attribute name: a",
            "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[2]: cookie attribute name cannot be empty",
            "spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize: only one of MinimumRingSize or Maglev/Ringhash \
             can be specified",
            "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: tableSize must be less than 5000011 for maglev",
            "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: tableSize must be a prime number for maglev",
            "spec.trafficPolicy.loadBalancer: only one of localityLbSetting and zoneAwareLbSetting can be set",
            "spec.trafficPolicy.loadBalancer.localityLbSetting: can not simultaneously specify 'distribute' and 'failover'",
            "(spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to: total locality weight 101 != 100)",
            "(spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[1].to: total locality weight 0 != 100)",
            "(spec.trafficPolicy.loadBalancer.localityLbSetting.distribute: locality a/*/c wildcard '*' number can not exceed \
             1 and must be in the end)",
            "(spec.trafficPolicy.loadBalancer.localityLbSetting.failover[0]: locality lb failover settings must specify \
             different regions)",
            "spec.trafficPolicy.loadBalancer.zoneAwareLbSetting.failoverPriority[0]: 'failover_priority' for zone aware lb \
             must not use topology label 'topology.istio.io/subzone'; region- and zone-level routing are handled \
             automatically",
            "spec.trafficPolicy.loadBalancer.zoneAwareLbSetting.failover[0]: zone aware lb failover only specifies region; \
             zone and subzone failover are handled automatically",
            "spec.trafficPolicy.loadBalancer.zoneAwareLbSetting.failover[0]: zone aware lb failover region should not contain \
             '*' wildcard",
            "spec.trafficPolicy.loadBalancer.warmup.duration: duration is required",
            "spec.trafficPolicy.loadBalancer.warmup.minimumPercent: minimumPercent value should be less than or equal to 100",
            "spec.trafficPolicy.loadBalancer.warmup.aggression: aggression should be greater than 0",
        ],
        &[
            "spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize: consistent hash MinimumRingSize is deprecated, \
             use ConsistentHashLB's RingHash configuration instead",
            "(spec.trafficPolicy.loadBalancer.localityLbSetting: outlier detection policy must be provided for failover)",
            "spec.trafficPolicy.loadBalancer.zoneAwareLbSetting: outlier detection policy must be provided for failover",
        ],
    );
}

#[test]
fn rule_for_selected_workloads_stays_in_its_namespace() {
    check(
        "DestinationRule",
        r"
host: a
exportTo: [., other]
workloadSelector: {matchLabels: {'': a, b: '*'}}
trafficPolicy:
  tunnel: {protocol: GET, targetHost: a b, targetPort: 0}
  portLevelSettings: [{}, {port: {number: 1}, tls: {mode: MUTUAL, credentialName: 'configmap://other/a', caCrl: x}}]
",
        &[
            "spec.trafficPolicy.portLevelSettings[0].port: portTrafficPolicy must have valid port",
            "spec.trafficPolicy.portLevelSettings[0]: port traffic policy must have at least one field",
            "spec.trafficPolicy.portLevelSettings[1].tls.credentialName: invalid configmap:// credentialName: namespace must \
             match the configuration namespace \"demo\"",
            "spec.trafficPolicy.portLevelSettings[1].tls: cannot specify client certificates or CA certificate or CA CRL If \
             credentialName is set",
            r#"spec.trafficPolicy.tunnel.protocol: tunnel protocol must be "CONNECT" or "POST""#,
            "spec.trafficPolicy.tunnel.targetHost: tunnel target host must be valid FQDN or IP address: domain name \"a b\" \
             invalid (label \"a b\" invalid); a b is not a valid IP",
            "spec.trafficPolicy.tunnel.targetPort: tunnel target port is invalid: port number 0 must be in the range 1..65535",
            "spec.exportTo: destination rule with workload selector cannot have multiple entries in exportTo",
            r#"spec.workloadSelector.matchLabels[""]: empty key is not supported in selector: "=a""#,
            r#"spec.workloadSelector.matchLabels["b"]: wildcard is not supported in selector: "b=*""#,
        ],
        &[],
    );
}
