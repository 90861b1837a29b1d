use canopus_base::tree::{Node, Value};
use prost::{Message, Name};

use super::*;
use crate::envoy::config::cluster::v3::{Cluster, cluster};
use crate::envoy::config::core::v3::Metadata;
use crate::istio::networking::v1alpha3::{DestinationRule, VirtualService, string_match};

fn node(json: &str) -> Node {
    Node::from(serde_json::from_str::<serde_json::Value>(json).unwrap())
}

fn ok<M: Message + Name + Default>(json: &str) -> M {
    read(&node(json), Unknown::Reject).unwrap_or_else(|e| panic!("{json}: {e}")).value
}

fn problems<M: Message + Name + Default + fmt::Debug>(json: &str) -> Vec<String> {
    match read::<M>(&node(json), Unknown::Reject) {
        Ok(read) => panic!("{json} was accepted as {read:?}"),
        Err(Problems(list)) => list.iter().map(ToString::to_string).collect(),
    }
}

#[track_caller]
fn round_trip<M: Message + Name + Default + fmt::Debug + PartialEq>(json: &str) {
    let message: M = ok(json);
    assert_eq!(write(&message), node(json));
    let wire =
        read_wire(&descriptors::message_descriptor::<M>(), &node(json), Unknown::Reject).unwrap().value;
    assert_eq!(wire, message.encode_to_vec(), "the reader writes the canonical encoding");
}

#[test]
fn virtual_service_round_trips() {
    round_trip::<VirtualService>(
        r#"{"hosts":["a","b"],"http":[{"name":"r","match":[{"uri":{"prefix":"/x"},"headers":{"b":{"exact":"1"},"a":{"regex":"z"}},"port":80}],
           "route":[{"destination":{"host":"c","port":{"number":80}},"weight":30},{"destination":{"host":"d"},"weight":70}],
           "timeout":"1.500s","retries":{"attempts":3,"retryOn":"5xx"},"corsPolicy":{"allowCredentials":true}}]}"#,
    );
}

#[test]
fn cluster_with_any_struct_and_maps_round_trips() {
    round_trip::<Cluster>(
        r#"{"name":"c","type":"EDS","connectTimeout":"10s","circuitBreakers":{"thresholds":[{"maxConnections":4294967295}]},
            "metadata":{"filterMetadata":{"istio":{"services":[{"host":"a"},null,1.5,"x",true]},"a":{}}},
            "typedExtensionProtocolOptions":{"x":{"@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
              "explicitHttpConfig":{"http2ProtocolOptions":{"maxConcurrentStreams":1073741824}}},
              "y":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1s"}}}"#,
    );
}

#[test]
fn both_spellings_of_a_field_are_read() {
    let camel: Cluster = ok(r#"{"connectTimeout":"1s","edsClusterConfig":{"serviceName":"x"}}"#);
    let snake: Cluster = ok(r#"{"connect_timeout":"1s","eds_cluster_config":{"service_name":"x"}}"#);
    assert_eq!(camel, snake);
    assert_eq!(
        problems::<Cluster>(r#"{"connectTimeout":"1s","connect_timeout":"1s"}"#),
        [r#""connect_timeout" is already set as "connectTimeout""#]
    );
}

#[test]
fn numbers_are_read_from_text_and_integral_floats() {
    let of = |json: &str| ok::<VirtualService>(json).http[0].route[0].weight;
    for weight in ["30", "\"30\"", "3e1", "30.0", "\"30.0\""] {
        assert_eq!(of(&format!(r#"{{"http":[{{"route":[{{"weight":{weight}}}]}}]}}"#)), 30);
    }
    for (weight, problem) in [
        ("1.5", "1.5 is not a valid i32"),
        ("\"x\"", "\"x\" is not a valid i32"),
        ("3000000000", "3000000000 is not a valid i32"),
        ("true", "expected an integer, found true"),
    ] {
        let json = format!(r#"{{"http":[{{"route":[{{"weight":{weight}}}]}}]}}"#);
        assert_eq!(problems::<VirtualService>(&json), [format!("http[0].route[0].weight: {problem}")]);
    }
}

#[test]
fn null_leaves_a_field_unset_except_where_null_is_a_value() {
    assert_eq!(ok::<VirtualService>(r#"{"hosts":null,"http":null}"#), VirtualService::default());
    let metadata: Metadata = ok(r#"{"filterMetadata":{"a":{"b":null}}}"#);
    assert_eq!(metadata.filter_metadata["a"].fields.len(), 1);
    assert_eq!(
        problems::<VirtualService>(r#"{"hosts":[null]}"#),
        ["hosts[0]: expected a string, found null"]
    );
}

#[test]
fn null_item_is_empty_when_problems_are_only_reported() {
    let json = r#"{"hosts":[null,"a"],"http":[null],"tcp":[{"match":[{"sourceLabels":{"a":null}}]}]}"#;
    let read = read::<VirtualService>(&node(json), Unknown::Report).unwrap();
    assert_eq!(read.value.hosts, ["", "a"]);
    assert_eq!(read.value.http.len(), 1);
    assert_eq!(read.value.tcp[0].r#match[0].source_labels["a"], "");
    let ignored: Vec<_> = read.ignored.iter().map(|p| p.path.as_str()).collect();
    assert_eq!(ignored, ["hosts[0]", "http[0]", r#"tcp[0].match[0].sourceLabels["a"]"#]);
}

#[test]
fn durations_are_read_in_both_spellings() {
    let of =
        |text: &str| ok::<VirtualService>(&format!(r#"{{"http":[{{"timeout":"{text}"}}]}}"#)).http[0].timeout;
    for (text, seconds) in [("90s", 90), ("1m30s", 90), ("1.5m", 90), ("400000000s", 400_000_000)] {
        assert_eq!(of(text), Some(crate::google::protobuf::Duration::from_secs(seconds)), "{text}");
    }
}

#[test]
fn every_problem_is_reported_at_once() {
    let found = problems::<VirtualService>(
        r#"{"hosts":"a","http":[{"timeout":"5","retries":{"attempts":"x"},"rute":[]}],"tcp":{}}"#,
    );
    assert_eq!(
        found,
        [
            r#"hosts: expected a list, found "a""#,
            r#"http[0]: unknown field "rute" in HTTPRoute"#,
            r#"http[0].timeout: "5" is not a duration such as "1.5s""#,
            r#"http[0].retries.attempts: "x" is not a valid i32"#,
            "tcp: expected a list, found a map",
        ]
    );
}

#[test]
fn unknown_fields_and_enum_names_are_listed_when_only_reported() {
    let json = r#"{"host":"a","trafficPolicy":{"loadBalancer":{"simple":"FASTEST"}},"colour":"red"}"#;
    let read = read::<DestinationRule>(&node(json), Unknown::Report).unwrap();
    assert_eq!(read.value.host, "a");
    let ignored: Vec<_> = read.ignored.iter().map(|p| p.path.as_str()).collect();
    assert_eq!(ignored, ["", "trafficPolicy.loadBalancer.simple"]);
}

#[test]
fn two_members_of_a_oneof_are_a_problem() {
    let json = r#"{"http":[{"match":[{"uri":{"prefix":"/","exact":"/"}}]}]}"#;
    assert_eq!(
        problems::<VirtualService>(json),
        [r#"http[0].match[0].uri: only one of "exact" and "prefix" may be set (match_type)"#]
    );
    let read = read::<VirtualService>(&node(json), Unknown::Report).unwrap();
    let uri = read.value.http[0].r#match[0].uri.as_ref().unwrap();
    assert_eq!(uri.match_type, Some(string_match::MatchType::Prefix("/".into())), "the later one counts");
    assert_eq!(read.ignored.len(), 1);
}

#[test]
fn positions_survive_to_the_problem() {
    let mut document = node(r#"{"hosts":[1]}"#);
    if let Some(items) = document.get_mut("hosts").and_then(Node::as_list_mut) {
        items[0].at = Pos::new(7, 3);
    }
    let Problems(list) = read::<VirtualService>(&document, Unknown::Reject).unwrap_err();
    assert_eq!(list[0].to_string(), "hosts[0]: expected a string, found 1 (line 7, column 3)");
}

#[test]
fn any_problems_name_the_field_and_the_type() {
    let at =
        |inner: &str| problems::<Cluster>(&format!(r#"{{"typedExtensionProtocolOptions":{{"x":{inner}}}}}"#));
    assert_eq!(
        at(r#"{"a":1}"#),
        [r#"typedExtensionProtocolOptions["x"]: "@type" is missing: it names the type of the object"#]
    );
    assert_eq!(
        at(r#"{"@type":"type.googleapis.com/no.Such"}"#),
        [r#"typedExtensionProtocolOptions["x"]: no message type is named "no.Such""#]
    );
    assert_eq!(
        at(r#"{"@type":"type.googleapis.com/envoy.config.core.v3.Node","ids":1}"#),
        [r#"typedExtensionProtocolOptions["x"]: unknown field "ids" in Node"#]
    );
}

#[test]
fn unknown_any_types_are_shown_raw() {
    let any = crate::Any { type_url: "type.googleapis.com/no.Such".into(), value: vec![1, 2].into() };
    assert_eq!(write(&any), node(r#"{"@type":"type.googleapis.com/no.Such","value":"AQI="}"#));
}

#[test]
fn bytes_are_read_in_both_alphabets_with_and_without_padding() {
    use crate::envoy::config::core::v3::{DataSource, data_source::Specifier};
    for text in ["+/8=", "-_8=", "+/8", "-_8"] {
        let source: DataSource = ok(&format!(r#"{{"inlineBytes":"{text}"}}"#));
        assert_eq!(source.specifier, Some(Specifier::InlineBytes(vec![0xfb, 0xff].into())));
    }
}

#[test]
fn floats_are_written_shortest_and_special_ones_by_name() {
    use crate::google::protobuf::{DoubleValue, FloatValue};
    assert_eq!(write(&FloatValue { value: 0.1 }), node("0.1"));
    assert_eq!(write(&DoubleValue { value: 100.0 }), node("100"));
    assert_eq!(write(&DoubleValue { value: f64::NEG_INFINITY }), node("\"-Infinity\""));
    assert!(ok::<DoubleValue>("\"NaN\"").value.is_nan());
    assert_eq!(problems::<FloatValue>("1e300"), ["1e300 does not fit a float"]);
}

#[test]
fn unknown_enum_numbers_are_kept() {
    round_trip::<Cluster>(r#"{"lbPolicy":99}"#);
    let cluster: Cluster = ok(r#"{"type":3}"#);
    assert_eq!(
        cluster.cluster_discovery_type,
        Some(cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds as i32))
    );
}

#[test]
fn deep_nesting_is_a_problem_not_a_crash() {
    let depth = 500;
    let mut inner = Node::from(Value::Null);
    for _ in 0..depth {
        let mut map = canopus_base::tree::Map::new();
        map.insert("a", inner);
        inner = Value::Map(map).into();
    }
    let error = read::<crate::google::protobuf::Struct>(&inner, Unknown::Reject).unwrap_err();
    assert!(error.to_string().contains("recursion limit"), "{error}");
}
