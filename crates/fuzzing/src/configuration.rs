//! What users write into objects and files.

use canopus_api::crd;
use canopus_base::duration::{Duration, ProtoDuration};
use canopus_base::labels::{Labels, Selector};
use canopus_base::quantity::Quantity;
use canopus_base::{host, json, net, regex, tree, yaml};
use canopus_gotemplate::{Functions, Limits, Templates, Value, helm, sprig};
use canopus_proto::descriptors;
use canopus_proto::json::{Unknown, read_dynamic, write_dynamic};

/// Any text as an expression of a CRD's rule.
pub(crate) fn cel(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = crd::check_expression(text);
    }
}

/// Matching of host names is symmetric, covering implies matching, and the order of specificity is an order.
pub(crate) fn host_match(input: &[u8]) {
    let Some([a, b, c]) = super::lines(input) else { return };
    assert_eq!(host::matches(a, b), host::matches(b, a));
    assert!(!host::subset_of(a, b) || host::matches(a, b));
    assert!(!(host::subset_of(a, b) && host::subset_of(b, c)) || host::subset_of(a, c));
    assert_eq!(host::by_specificity(a, b), host::by_specificity(b, a).reverse());
    assert!(!(host::subset_of(a, b) && a != b) || host::by_specificity(a, b).is_lt());
    let common = host::intersection(&[a.into(), c.into()], &[b.into()]);
    assert!(common.iter().all(|name| name.subset_of(b)));
}

/// Between them these have every shape of field: maps, oneofs, wrappers, `Any`, `Struct`, durations, enums, bytes.
const TYPES: [&str; 4] = [
    "istio.networking.v1alpha3.VirtualService",
    "istio.mesh.v1alpha1.MeshConfig",
    "envoy.config.cluster.v3.Cluster",
    "google.protobuf.Struct",
];

/// Proto-JSON: no document crashes the reader, and what it accepts survives being written and read again.
pub(crate) fn proto_json(input: &[u8]) {
    let Some((choice, document)) = input.split_first() else { return };
    let name = TYPES[usize::from(*choice) % TYPES.len()];
    let descriptor = descriptors::message(name).expect("the set has these types");
    let Ok(node) = json::parse(document, &tree::Limits::default()) else { return };
    let Ok(read) = read_dynamic(&descriptor, &node, Unknown::Report) else { return };
    let written = write_dynamic(&read.value);
    let again = read_dynamic(&descriptor, &written, Unknown::Reject).expect("what we write, we read");
    assert_eq!(write_dynamic(&again.value), written);
}

/// The small texts of configuration: selectors, durations, quantities, regular expressions, addresses.
pub(crate) fn selectors(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(selector) = Selector::parse(text) {
        assert_eq!(Selector::parse(&selector.to_string()).as_ref(), Ok(&selector));
        selector.matches(&Labels::from_iter([("a", "b"), ("c", "5")]));
    }
    if let Ok(duration) = text.parse::<Duration>() {
        assert_eq!(duration.to_string().parse(), Ok(duration));
    }
    if let Ok(duration) = text.parse::<ProtoDuration>() {
        assert_eq!(duration.to_string().parse(), Ok(duration));
    }
    if let Ok(quantity) = text.parse::<Quantity>() {
        assert_eq!(quantity.to_string().parse().as_ref(), Ok(&quantity));
        assert_eq!(quantity.canonical().parse().as_ref(), Ok(&quantity));
    }
    let _ = regex::check(text);
    let _ = net::parse_prefix_or_ip(text);
    let _ = net::is_localhost_peer(text);
    let _ = net::validate_interface_names(text);
}

/// Any text as a template, with all functions and a little data: it may fail, but neither panic nor run on.
pub(crate) fn template(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut functions = Functions::builtin();
    helm::add_to(&mut functions, &sprig::Options::default());
    let limits = Limits { steps: 100_000, bytes: 1 << 20, ..Limits::default() };
    let mut templates = Templates::new("fuzz", functions).with_limits(limits);
    if templates.parse("fuzz", text).is_ok() {
        let inner = Value::map([("k", Value::int(1)), ("n", Value::Nil)]);
        let list = Value::list([Value::string("a"), Value::Float(1.5), inner.clone()]);
        let data =
            Value::map([("s", Value::string("text")), ("l", list), ("m", inner), ("t", Value::Bool(true))]);
        let _ = templates.render("fuzz", &data);
    }
}

const LIMITS: yaml::Limits = yaml::Limits { max_bytes: 1 << 16, max_depth: 32, max_nodes: 2000 };

/// Any bytes are read as YAML and as JSON within limits; what is read and written is written the same again.
pub(crate) fn yaml_decode(input: &[u8]) {
    for document in yaml::parse_all(input, &LIMITS).into_iter().flatten() {
        let text = yaml::node_to_string(&document.node);
        // Writing may take more levels of indentation, and so more bytes, than reading did.
        let generous = yaml::Limits { max_bytes: usize::MAX, ..LIMITS };
        // Nodes may differ: a float without a fraction is written as Go writes it, which reads as an integer.
        let again = yaml::parse_one(&text, &generous).map(|node| yaml::node_to_string(&node));
        assert_eq!(again.as_ref(), Ok(&text));
    }
    if let Ok(node) = json::parse(input, &LIMITS) {
        assert_eq!(json::parse(node.to_json().to_string().as_bytes(), &LIMITS).as_ref(), Ok(&node));
    }
}
