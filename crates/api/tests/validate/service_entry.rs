//! Service entries.

use canopus_api::validate::{self, Settings};

use super::{check, lines, object, object_with};

#[test]
fn nothing_counts_behind_a_selector_that_is_refused() {
    check(
        "ServiceEntry",
        "workloadSelector: {labels: {a: '*'}}\nendpoints: [{address: 1.2.3.4}]\nresolution: STATIC",
        &[
            r#"spec.workloadSelector.labels["a"]: wildcard is not supported in selector: "a=*""#,
            "(spec: only one of WorkloadSelector or Endpoints is allowed in Service Entry)",
            "(spec.hosts: service entry must have at least one host)",
        ],
        &[],
    );
}

#[test]
fn ports_are_unique_and_known() {
    check(
        "ServiceEntry",
        r"
hosts: [a.com, '*', '*b.com']
addresses: [10.0.0.0/33, 10.0.0.1]
resolution: DNS
ports:
- {name: http, number: 80, protocol: HTTP}
- {name: http, number: 80, protocol: NOPE, targetPort: 70000}
- {name: a b, number: 0, protocol: TCP}
exportTo: ['~', '*']
",
        &[
            "spec.hosts[1]: invalid host *",
            "spec.addresses[0]: 10.0.0.0/33 is not a valid CIDR block",
            "spec.addresses: CIDR addresses are allowed only for NONE/STATIC resolution types",
            r#"spec.ports[1].name: service entry port name "http" already defined"#,
            "spec.ports[1].number: service entry port 80 already defined",
            "spec.ports[1].targetPort: port number 70000 must be in the range 1..65535",
            "spec.ports[1].protocol: unsupported protocol: NOPE",
            "spec.ports[2].name: invalid port name: a b",
            "spec.ports[2].number: port number 0 must be in the range 1..65535",
            "spec.hosts[1]: hosts must be FQDN or contain only prefix wildcards if no endpoints are provided for resolution \
             mode DNS, domain name \"*\" invalid (label \"*\" invalid)",
            "spec.ports[1]: multiple hosts provided with non-HTTP, non-TLS ports",
            "spec.exportTo: cannot have both public (*) and non-public exportTo values for a resource",
            "spec.exportTo: cannot export service entry to no one (~) and someone",
        ],
        &[
            r#"spec.hosts[2]: partial wildcard "*b.com" not allowed"#,
            "spec.hosts: service entry can not have more than one host specified simultaneously with address and tcp port",
        ],
    );
}

#[test]
fn endpoints_have_the_ports_of_the_service() {
    check(
        "ServiceEntry",
        r"
hosts: [a.com]
resolution: STATIC
ports: [{name: tcp, number: 80, protocol: TCP}, {name: http, number: 81, protocol: HTTP}]
endpoints:
- {address: a.com, ports: {other: 70000}}
- {address: 'unix:///a.sock', ports: {tcp: 1}}
- {labels: {a: b c}}
- {network: a}
",
        &[
            r#"spec.endpoints[0].address: endpoint address "a.com" is not a valid IP address"#,
            r#"spec.endpoints[0].ports["other"]: endpoint port 70000 is not defined by the service entry"#,
            r#"spec.endpoints[0].ports["other"]: port number 70000 must be in the range 1..65535"#,
            "spec.endpoints[1].address: unix endpoint unix:///a.sock must not include ports",
            "spec.endpoints[1].address: exactly 1 service port required for unix endpoints",
            "spec.endpoints[2].address: address is required",
            r#"(spec.endpoints[2].labels["a"]: invalid tag value: "b c")"#,
        ],
        &[r#"spec.endpoints[3].address: address is unset with network "a""#],
    );
}

#[test]
fn tcp_needs_addresses_unless_they_are_allocated() {
    let spec = "hosts: [a.com]\nresolution: DNS\nports: [{name: tcp, number: 80, protocol: TCP}]";
    let without = Settings { allocates_addresses: false, ..Settings::default() };
    let warning = "spec.ports[0]: addresses are required for ports serving TCP (or unset) protocol when IP Autoallocation \
                   is not enabled";
    let entry = object("ServiceEntry", spec);
    assert_eq!(lines(&validate::validate(&entry).warnings), [""; 0]);
    assert_eq!(lines(&validate::validate_with(&entry, &without).warnings), [warning]);
    let opted_out =
        object_with("ServiceEntry", "labels: {networking.istio.io/enable-autoallocate-ip: 'False'}", spec);
    assert_eq!(lines(&validate::validate(&opted_out).warnings), [warning]);
}

#[test]
fn names_looked_up_as_they_come_are_wildcards() {
    let spec = r"
hosts: [a.com, '*.b.com']
addresses: [10.0.0.1]
resolution: DYNAMIC_DNS
location: MESH_INTERNAL
endpoints: [{address: 1.2.3.4}]
ports: [{name: https, number: 443, protocol: HTTPS}]
";
    let entry = object_with("ServiceEntry", "labels: {istio.io/use-waypoint: w}", spec);
    assert_eq!(
        lines(&validate::validate(&entry).errors),
        [
            "spec.hosts[0]: host must be wildcarded for resolution mode DYNAMIC_DNS",
            "spec.addresses: addresses cannot be set for resolution type DYNAMIC_DNS. HTTP route domains will only be \
             generatedfrom the hosts field values",
            "spec.endpoints: endpoints cannot be set for resolution type DYNAMIC_DNS. Destination IP address determined from \
             hostsfield values",
            "spec.ports[0].protocol: only HTTP, TLS, GRPC, and HTTP2 protocols are supported for resolution type DYNAMIC_DNS",
            "spec.location: location MESH_INTERNAL with resolution type DYNAMIC_DNS is not supported when using waypoints",
        ]
    );
}
