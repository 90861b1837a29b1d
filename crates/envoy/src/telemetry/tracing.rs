//! Traces: how many requests are traced, what their spans say, and who they are reported to.

use canopus_mesh::proxy::View;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing;
use canopus_proto::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};
use canopus_proto::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind, metadata_kind};
use canopus_proto::envoy::r#type::tracing::v3::{CustomTag, custom_tag};
use canopus_proto::envoy::r#type::v3::Percent;
use canopus_proto::istio::mesh::v1alpha1::tracing::custom_tag::Type as Written;
use canopus_runtime::flags::PILOT_TRACE_SAMPLING;

use crate::env::{Class, Env};

/// What a connection manager is told about tracing.
pub(crate) struct Traced {
    /// Its tracing; `None` switches it off.
    pub(crate) tracing: Option<Tracing>,
    /// Whether the id of a request says if it is sampled.
    pub(crate) samples_by_request_id: bool,
}

/// Tracing of listeners of a class.
pub(crate) fn tracing(env: &Env<'_>, _class: Class) -> Traced {
    let config = env.proxy_config.tracing.as_ref();
    let max_length = config.map_or(0, |tracing| tracing.max_path_tag_length);
    let tracing = env.mesh().enable_tracing.then(|| Tracing {
        client_sampling: percent(100.0),
        random_sampling: percent(sampling(env)),
        overall_sampling: percent(100.0),
        max_path_tag_length: (max_length != 0).then(|| max_length.into()),
        custom_tags: custom_tags(env),
        ..Default::default()
    });
    Traced { tracing, samples_by_request_id: true }
}

fn percent(value: f64) -> Option<Percent> {
    Some(Percent { value })
}

/// The share of requests that are traced.
fn sampling(env: &Env<'_>) -> f64 {
    match env.proxy_config.tracing.as_ref().map_or(0.0, |tracing| tracing.sampling) {
        // Parity: more than all is taken for a mistake, and one percent for what was meant.
        written if written > 100.0 => 1.0,
        written if written != 0.0 => written,
        _ => env.flag(PILOT_TRACE_SAMPLING),
    }
}

/// The tags of a span, sorted by name.
fn custom_tags(env: &Env<'_>) -> Vec<CustomTag> {
    let config = env.proxy_config.tracing.as_ref();
    let istio_tags = config.and_then(|tracing| tracing.enable_istio_tags).is_none_or(|wanted| wanted.value);
    let mut tags = Vec::new();
    if istio_tags {
        tags.extend(workload_tags(env.view));
        tags.extend(dry_run_tags());
    }
    let written = config.iter().flat_map(|tracing| &tracing.custom_tags);
    tags.extend(written.filter_map(|(name, written)| Some(tag(name, of_written(written.r#type.as_ref()?)))));
    tags.sort_by(|a, b| a.tag.cmp(&b.tag));
    tags
}

fn tag(name: &str, value: custom_tag::Type) -> CustomTag {
    CustomTag { tag: name.into(), r#type: Some(value), ..Default::default() }
}

fn of_written(written: &Written) -> custom_tag::Type {
    match written {
        Written::Literal(literal) => {
            custom_tag::Type::Literal(custom_tag::Literal { value: literal.value.clone() })
        }
        Written::Environment(variable) => custom_tag::Type::Environment(custom_tag::Environment {
            name: variable.name.clone(),
            default_value: variable.default_value.clone(),
        }),
        Written::Header(header) => custom_tag::Type::RequestHeader(custom_tag::Header {
            name: header.name.clone(),
            default_value: header.default_value.clone(),
        }),
    }
}

/// Who reports the span.
fn workload_tags(view: &View) -> [CustomTag; 5] {
    let label = |key: &str| view.labels.get(key).unwrap_or_default();
    let or =
        |value: &str, default: &str| if value.is_empty() { default.to_owned() } else { value.to_owned() };
    [
        ("istio.canonical_revision", or(label("service.istio.io/canonical-revision"), "latest")),
        ("istio.canonical_service", or(label("service.istio.io/canonical-name"), "unknown")),
        ("istio.mesh_id", or(&view.metadata.mesh_id, "unknown")),
        ("istio.namespace", or(&view.metadata.namespace, "default")),
        ("istio.cluster_id", or(&view.metadata.cluster_id, "unknown")),
    ]
    .map(|(name, value)| tag(name, custom_tag::Type::Literal(custom_tag::Literal { value })))
}

/// What authorization policies that are only tried out would have done.
fn dry_run_tags() -> impl Iterator<Item = CustomTag> {
    ["allow", "deny"].into_iter().flat_map(|action| {
        let shadow = |what: &str| format!("istio_dry_run_{action}_shadow_{what}");
        let name = |what: &str| format!("istio.authorization.dry_run.{action}_policy.{what}");
        [
            tag(&name("name"), from_authorization(shadow("effective_policy_id"))),
            tag(&name("result"), from_authorization(shadow("engine_result"))),
        ]
    })
}

/// What the authorization filter noted about the request.
fn from_authorization(key: String) -> custom_tag::Type {
    let segment = PathSegment { segment: Some(path_segment::Segment::Key(key)) };
    let request = metadata_kind::Kind::Request(metadata_kind::Request {});
    custom_tag::Type::Metadata(custom_tag::Metadata {
        kind: Some(MetadataKind { kind: Some(request) }),
        metadata_key: Some(MetadataKey { key: "envoy.filters.http.rbac".into(), path: vec![segment] }),
        ..Default::default()
    })
}
