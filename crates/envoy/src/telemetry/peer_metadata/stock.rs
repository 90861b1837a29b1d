//! What proxies without Istio's filters tell each other: the client sends the headers that Istio's proxy sends, with a
//! description of its workload that both kinds of servers can read.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_base::hash::Hasher;
use canopus_base::labels::canonical;
use canopus_proto::envoy::config::common::mutation_rules::v3::{
    HeaderMutation as Mutation, header_mutation::Action,
};
use canopus_proto::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use canopus_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use canopus_proto::envoy::extensions::filters::http::header_mutation::v3::{HeaderMutation, Mutations};
use canopus_proto::envoy::extensions::filters::http::header_to_metadata::v3::Config as HeaderToMetadata;
use canopus_proto::envoy::extensions::filters::http::header_to_metadata::v3::config::{
    KeyValuePair, Rule, ValueEncode, ValueType,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_proto::{Message as _, Name as _};

use crate::audience::Reporter;
use crate::env::{Class, Env};
use crate::filter::http_filter;

const HEADER: &str = "x-envoy-peer-metadata";
const ID_HEADER: &str = "x-envoy-peer-metadata-id";

/// Where the server's proxy notes what the client said, and under which key.
const NAMESPACE: &str = "istio.peer_metadata";
const KEY: &str = "downstream";

/// Tells the own workload to servers, or learns those of clients; `None` if the proxy cannot.
pub(super) fn http(env: &Env<'_>, class: Class, in_mesh_only: bool) -> Option<HttpFilter> {
    match class {
        Class::Inbound => env.audience.build.has(&HeaderToMetadata::full_name()).then(learn),
        // Which servers are of the mesh is not known where the headers are added.
        Class::Outbound | Class::Gateway if in_mesh_only => None,
        Class::Outbound | Class::Gateway => {
            let reporter = env.audience.reporter.as_ref()?;
            env.audience.build.has(&HeaderMutation::full_name()).then(|| tell(reporter))
        }
    }
}

/// An expression in CEL for what the client said of its workload; it cannot be evaluated if it said nothing.
pub(crate) fn expression(field: &str) -> String {
    let peer = format!("metadata.filter_metadata['{NAMESPACE}'].{KEY}");
    match field {
        "workload" => format!("{peer}.WORKLOAD_NAME"),
        "namespace" => format!("{peer}.NAMESPACE"),
        "cluster" => format!("{peer}.CLUSTER_ID"),
        "canonical_service" => format!("{peer}.LABELS['service.istio.io/canonical-name']"),
        "canonical_revision" => format!("{peer}.LABELS['service.istio.io/canonical-revision']"),
        label => format!("{peer}.LABELS['{label}']"),
    }
}

/// Notes what a client says, and keeps it from the workload.
fn learn() -> HttpFilter {
    let noted = |key: &str, r#type: ValueType, encode: ValueEncode| KeyValuePair {
        metadata_namespace: NAMESPACE.into(),
        key: key.into(),
        r#type: r#type as i32,
        encode: encode as i32,
        ..Default::default()
    };
    let rule = |header: &str, pair: KeyValuePair| Rule {
        header: header.into(),
        on_header_present: Some(pair),
        remove: true,
        ..Default::default()
    };
    let config = HeaderToMetadata {
        request_rules: vec![
            rule(HEADER, noted(KEY, ValueType::ProtobufValue, ValueEncode::Base64)),
            rule(ID_HEADER, noted("downstream_id", ValueType::String, ValueEncode::None)),
        ],
        ..Default::default()
    };
    http_filter("envoy.filters.http.header_to_metadata", &config)
}

/// Adds the description of the own workload to requests.
fn tell(reporter: &Reporter) -> HttpFilter {
    let described = description(reporter);
    let mut hasher = Hasher::new();
    hasher.field(described.as_bytes());
    let id = format!("{}.{}~{:x}", reporter.workload, reporter.namespace, hasher.finish().as_u128());
    let set = |key: &str, value: String| Mutation {
        action: Some(Action::Append(HeaderValueOption {
            header: Some(HeaderValue { key: key.into(), value, ..Default::default() }),
            append_action: HeaderAppendAction::OverwriteIfExistsOrAdd as i32,
            ..Default::default()
        })),
    };
    let mutations = Mutations {
        request_mutations: vec![set(HEADER, described), set(ID_HEADER, id)],
        ..Default::default()
    };
    http_filter(
        "envoy.filters.http.header_mutation",
        &HeaderMutation { mutations: Some(mutations), ..Default::default() },
    )
}

/// The own workload, as the value of the header.
///
/// Istio's proxy reads a `Struct`, Envoy's filter a `Value`. One text serves both: the fields of a `Struct` are followed by
/// the one of a `Value` that holds it, and either reader passes over what is not its own.
fn description(reporter: &Reporter) -> String {
    let (name, revision) = canonical::service(&reporter.labels, &reporter.workload);
    let mut labels = structure([
        ("service.istio.io/canonical-name", name),
        ("service.istio.io/canonical-revision", revision),
    ]);
    for key in ["app", "version"] {
        if let Some(value) = reporter.labels.get(key) {
            labels.fields.insert(key.into(), value.into());
        }
    }
    let mut workload = structure([
        ("WORKLOAD_NAME", &*reporter.workload),
        ("NAMESPACE", &reporter.namespace),
        ("CLUSTER_ID", &reporter.cluster),
    ]);
    workload.fields.insert("LABELS".into(), labels.into());
    let mut bytes = workload.encode_to_vec();
    bytes.extend(Value::from(workload).encode_to_vec());
    BASE64_STANDARD.encode(bytes)
}

fn structure<const N: usize>(fields: [(&str, &str); N]) -> Struct {
    let fields: BTreeMap<_, _> =
        fields.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    Struct::from(fields)
}
