use super::*;
use canopus_base::tree::Node;

fn metadata(json: &str) -> Result<NodeMetadata, MetadataError> {
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    NodeMetadata::from_tree(Node::from(json))
}

#[test]
fn metadata_is_read_from_its_legacy_text_forms() {
    let metadata = metadata(
        r#"{"INSTANCE_IPS": "10.0.0.1,fd00::1", "DNS_CAPTURE": "1", "LABELS": {"app": "a"},
            "POD_PORTS": "[{\"name\":\"http\",\"containerPort\":80,\"protocol\":\"TCP\"}]",
            "HTTP10": "1", "BASE": "/etc/certs", "ENVOY_STATUS_PORT": 15021, "OTHER": [1]}"#,
    )
    .unwrap();
    assert_eq!(metadata.instance_ips.0, ["10.0.0.1", "fd00::1"]);
    assert!(metadata.dns_capture.0 && !metadata.dns_auto_allocate.0);
    assert_eq!(metadata.labels.get("app"), Some("a"));
    assert_eq!(metadata.pod_ports.0[0].container_port, 80);
    assert_eq!(metadata.http10, "1");
    assert_eq!(metadata.base, "/etc/certs");
    assert_eq!(metadata.envoy_status_port, 15021);
    assert!(metadata.raw.to_json().get("OTHER").is_some());
}

#[test]
fn proxy_config_is_read_even_when_it_has_unknown_fields() {
    let metadata = metadata(r#"{"PROXY_CONFIG": {"configPath": "/c", "fromTheFuture": 1}}"#).unwrap();
    assert_eq!(metadata.proxy_config.unwrap().config_path, "/c");
}

#[test]
fn metadata_is_refused_when_a_value_has_the_wrong_type() {
    for json in [
        r#"{"DNS_CAPTURE": true}"#,
        r#"{"DNS_CAPTURE": "yes"}"#,
        r#"{"INSTANCE_IPS": 1}"#,
        r#"{"POD_PORTS": []}"#,
        r#"{"NAMESPACE": {}}"#,
        r#"{"PROXY_CONFIG": {"drainDuration": 5}}"#,
    ] {
        assert!(metadata(json).is_err(), "{json}");
    }
}

#[test]
fn text_forms_are_written_as_they_are_read() {
    let round_trip =
        |list: &str| serde_json::to_string(&serde_json::from_str::<StringList>(list).unwrap()).unwrap();
    for list in [r#""""#, r#""a""#, r#""\"a,b""#] {
        assert_eq!(round_trip(list), list);
    }
    let ports = r#""[{\"containerPort\":80,\"protocol\":\"TCP\"}]""#;
    let read: PodPorts = serde_json::from_str(ports).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), ports);
}

#[test]
fn node_addresses_come_from_metadata_when_all_are_valid() {
    let parse = |json: &str| NodeId::parse("sidecar~1.1.1.1~a.b~b.svc", &metadata(json).unwrap()).unwrap();
    let shown = |node: NodeId| node.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(parse(r#"{"INSTANCE_IPS": "2.2.2.2"}"#)), ["2.2.2.2"]);
    assert_eq!(shown(parse(r#"{"INSTANCE_IPS": "2.2.2.2,bad"}"#)), ["1.1.1.1"]);
    assert_eq!(shown(parse("{}")), ["1.1.1.1"]);
}

#[test]
fn node_id_is_refused_when_a_part_is_missing_or_unknown() {
    let parse = |node: &str| NodeId::parse(node, &NodeMetadata::default());
    assert!(matches!(parse("sidecar~1.1.1.1~a"), Err(NodeIdError::Parts { .. })));
    assert!(matches!(parse("Sidecar~1.1.1.1~a~b"), Err(NodeIdError::Kind { .. })));
    assert_eq!(parse("router~~a~b"), Err(NodeIdError::Address));
    assert_eq!(parse("router~::1~a~b").unwrap().kind, NodeKind::Router);
}

#[test]
fn version_is_read_from_the_start_of_a_text() {
    let parse = |text: &str| Version::parse(text).to_string();
    assert_eq!(parse("1.32.4-rc.1"), "1.32.4");
    assert_eq!(parse("release-1.32"), "1.32.65535");
    assert_eq!(parse("1.32-alpha.abc"), "1.32.65535");
    for latest in ["", "master-1", "junk-1.2.3", "10.1.1", "0.1.2", "1.x"] {
        assert_eq!(Version::parse(latest), Version::MAX, "{latest}");
    }
}

#[test]
fn numbers_left_open_do_not_count_in_a_comparison() {
    let version = Version::parse("1.5.3");
    let prefix = |major, minor, patch| VersionPrefix { major, minor, patch };
    assert_eq!(version.compare(prefix(1, None, Some(9))), Ordering::Equal);
    assert_eq!(version.compare(prefix(1, Some(5), None)), Ordering::Equal);
    assert_eq!(version.compare(prefix(1, Some(5), Some(4))), Ordering::Less);
    assert_eq!(version.compare(prefix(1, Some(4), None)), Ordering::Greater);
    assert_eq!(version.compare(prefix(2, None, None)), Ordering::Less);
}

#[test]
fn locality_label_uses_dots_unless_it_has_slashes() {
    assert_eq!(locality_of_label("r.z.s-1"), "r/z/s-1");
    assert_eq!(locality_of_label("r/z/s.1"), "r/z/s.1");
    assert_eq!(locality_of_label(""), "");
}
