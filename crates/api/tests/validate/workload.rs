//! Workload entries and groups.

use super::{check, report};

#[test]
fn entry_has_an_address_or_a_network() {
    check("WorkloadEntry", "{}", &["spec.address: address is required"], &[]);
    check("WorkloadEntry", "network: a", &[], &[r#"spec.address: address is unset with network "a""#]);
    check(
        "WorkloadEntry",
        "address: a b\nports: {'': 0}",
        &[
            r#"spec.address: endpoint address "a b" is not a valid FQDN or an IP address"#,
            r#"spec.ports[""]: invalid port name: "#,
            r#"spec.ports[""]: port number 0 must be in the range 1..65535"#,
        ],
        &[],
    );
}

#[test]
fn group_has_a_template() {
    check(
        "WorkloadGroup",
        "probe: {periodSeconds: -1}",
        &[
            "spec.template: template is required",
            "(spec.probe.periodSeconds: periodSeconds must be non-negative)",
            "(spec.probe: unknown health check method <nil>)",
        ],
        &[],
    );
}

#[test]
fn labels_of_a_group_are_one_error() {
    let report = report("WorkloadGroup", "template: {}\nmetadata: {labels: {'!': 'a b'}}\nprobe: {exec: {}}");
    assert_eq!(
        report.error_text().unwrap(),
        "invalid labels: 2 errors occurred:\n\t* invalid tag key: \"!\"\n\t* invalid tag value: \"a b\"\n\n"
    );
    assert!(report.errors[1].ours && report.errors[1].message == "exec.command is required");
}

#[test]
fn probe_asks_by_http_tcp_or_command() {
    check(
        "WorkloadGroup",
        "template: {}\nprobe: {httpGet: {port: 0, scheme: ftp, httpHeaders: [{name: a_b}, {}]}}",
        &[
            "spec.probe.httpGet.port: port number 0 must be in the range 1..65535",
            r#"spec.probe.httpGet.scheme: httpGet.scheme must be one of "HTTPS", "HTTP""#,
            "spec.probe.httpGet.httpHeaders[0].name: header name a_b is not a valid header name",
            "spec.probe.httpGet.httpHeaders[1].name: header name cannot be empty",
        ],
        &[],
    );
    check(
        "WorkloadGroup",
        "template: {}\nprobe: {grpc: {port: 1}}",
        &["spec.probe.grpc: unknown health check method *v1alpha3.ReadinessProbe_Grpc"],
        &[],
    );
}
