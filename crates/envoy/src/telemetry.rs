//! What proxies learn about their peers, and the tags of the spans they report.

use std::collections::BTreeMap;

use canopus_mesh::proxy::View;
use canopus_proto::envoy::config::cluster::v3::Filter;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter::ConfigType,
};
use canopus_proto::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};
use canopus_proto::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind, metadata_kind};
use canopus_proto::envoy::r#type::tracing::v3::{CustomTag, custom_tag};
use canopus_proto::envoy::r#type::v3::Percent;
use canopus_proto::google::protobuf::{ListValue, Struct, Value};
use canopus_proto::udpa::r#type::v1::TypedStruct;
use canopus_proto::Any;

const PEER_METADATA: &str = "io.istio.http.peer_metadata.Config";
const METADATA_EXCHANGE: &str = "envoy.tcp.metadataexchange.config.MetadataExchange";

/// Share of requests traced when nobody chose one.
const DEFAULT_SAMPLING: f64 = 1.0;

/// Learns the server's workload from its response headers. Istio's own proxy only.
pub(crate) fn http_metadata_exchange(view: &View) -> Option<HttpFilter> {
    let method = |name: &str| structure([(name, Value::from(Struct::default()))]);
    let config = [
        ("upstream_discovery", list(vec![method("istio_headers"), method("workload_discovery")])),
        ("upstream_propagation", list(vec![method("istio_headers")])),
    ];
    view.has_extension(PEER_METADATA).then(|| HttpFilter {
        name: "istio.metadata_exchange".into(),
        config_type: Some(ConfigType::TypedConfig(typed_struct(PEER_METADATA, config))),
        ..Default::default()
    })
}

/// Exchanges workload metadata with the server on the connection itself. Istio's own proxy only.
pub(crate) fn upstream_metadata_exchange(view: &View) -> Option<Filter> {
    let config = [("enable_discovery", true.into()), ("protocol", "istio-peer-exchange".into())];
    view.has_extension(METADATA_EXCHANGE).then(|| Filter {
        name: "istio.metadata_exchange".into(),
        typed_config: Some(typed_struct(METADATA_EXCHANGE, config)),
        ..Default::default()
    })
}

/// Sampling and the tags of a span.
pub(crate) fn tracing(view: &View) -> Tracing {
    let percent = |value| Some(Percent { value });
    Tracing {
        client_sampling: percent(100.0),
        random_sampling: percent(DEFAULT_SAMPLING),
        overall_sampling: percent(100.0),
        custom_tags: custom_tags(view),
        ..Default::default()
    }
}

fn custom_tags(view: &View) -> Vec<CustomTag> {
    let label = |keys: &[&str], default: &str| {
        keys.iter().find_map(|key| view.labels.get(*key)).unwrap_or(default).to_owned()
    };
    let revision = label(&["service.istio.io/canonical-revision"], "latest");
    let service = label(&["service.istio.io/canonical-name"], "unknown");
    let mut tags: Vec<_> = ["allow", "deny"]
        .into_iter()
        .flat_map(|action| {
            let shadow = |what: &str| format!("istio_dry_run_{action}_shadow_{what}");
            [
                from_metadata(
                    &format!("istio.authorization.dry_run.{action}_policy.name"),
                    &shadow("effective_policy_id"),
                ),
                from_metadata(
                    &format!("istio.authorization.dry_run.{action}_policy.result"),
                    &shadow("engine_result"),
                ),
            ]
        })
        .collect();
    let literals = [
        ("istio.canonical_revision", revision),
        ("istio.canonical_service", service),
        ("istio.cluster_id", view.metadata.cluster_id.clone()),
        ("istio.mesh_id", view.metadata.mesh_id.clone()),
        ("istio.namespace", view.namespace.to_string()),
    ];
    tags.extend(literals.into_iter().map(|(tag, value)| literal(tag, value)));
    tags
}

fn literal(tag: &str, value: String) -> CustomTag {
    let literal = custom_tag::Type::Literal(custom_tag::Literal { value });
    CustomTag { tag: tag.into(), r#type: Some(literal), ..Default::default() }
}

/// A tag read from what the authorization filter noted about the request.
fn from_metadata(tag: &str, key: &str) -> CustomTag {
    let segment = PathSegment { segment: Some(path_segment::Segment::Key(key.into())) };
    CustomTag {
        tag: tag.into(),
        r#type: Some(custom_tag::Type::Metadata(custom_tag::Metadata {
            kind: Some(MetadataKind { kind: Some(metadata_kind::Kind::Request(metadata_kind::Request {})) }),
            metadata_key: Some(MetadataKey { key: "envoy.filters.http.rbac".into(), path: vec![segment] }),
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// Configuration of a type the control plane's own build of Envoy's API might not have.
fn typed_struct<'a>(name: &str, fields: impl IntoIterator<Item = (&'a str, Value)>) -> Any {
    let fields: BTreeMap<_, _> = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Any::pack(&TypedStruct {
        type_url: format!("type.googleapis.com/{name}"),
        value: Some(Struct::from(fields)),
    })
}

fn structure<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Struct::from(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<BTreeMap<_, _>>()).into()
}

fn list(values: Vec<Value>) -> Value {
    ListValue::from(values).into()
}
