//! What spans say beside what Envoy puts into them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use canopus_api::node::NodeKind;
use canopus_proto::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment};
use canopus_proto::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind, metadata_kind};
use canopus_proto::envoy::r#type::tracing::v3::{CustomTag, custom_tag};
use canopus_proto::istio::mesh::v1alpha1::tracing::custom_tag::Type as ProxyConfigTag;
use canopus_proto::istio::telemetry::v1alpha1::tracing::CustomTag as TelemetryTag;
use canopus_proto::istio::telemetry::v1alpha1::tracing::custom_tag::Type as Written;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing;
use canopus_proto::fields;
use canopus_proto::wire::{Encoded, ProtoWriter};

use crate::audience::WorkloadTags;
use crate::env::Env;

/// Room for the tags that a span usually has.
const USUAL_COUNT: usize = 16;

/// The parts of a peer's description, with what tags call them.
const PEER_FIELDS: [(&str, &str); 9] = [
    ("workload", "workload"),
    ("namespace", "namespace"),
    ("cluster_id", "cluster"),
    ("canonical_service", "service"),
    ("canonical_revision", "revision"),
    ("app", "app"),
    ("app_version", "version"),
    ("workload_type", "type"),
    ("instance_name", "name"),
];

/// A tag of a span, encoded.
#[derive(Clone)]
struct Tag {
    name: Cow<'static, str>,
    body: Encoded<CustomTag>,
}

impl From<CustomTag> for Tag {
    fn from(tag: CustomTag) -> Self {
        Self { body: Encoded::new(&tag), name: tag.tag.into() }
    }
}

/// Writes the custom tags of spans, sorted by name. Tags of Telemetry objects replace those of the proxy's configuration.
pub(super) fn write(
    tracing: &mut ProtoWriter<Tracing>,
    env: &Env<'_>,
    istio_tags: bool,
    telemetry_tags: &BTreeMap<String, TelemetryTag>,
) {
    let mut tags: Vec<Tag> = Vec::with_capacity(USUAL_COUNT);
    if istio_tags {
        tags.extend(env.audience.spans.tags.iter().flat_map(workload_tags));
        tags.extend_from_slice(&DRY_RUN_TAGS);
    }
    if env.audience.role.kind == NodeKind::Waypoint {
        tags.extend_from_slice(&PEER_TAGS);
    }
    if telemetry_tags.is_empty() {
        let written = env.audience.config.tracing.iter().flat_map(|tracing| &tracing.custom_tags);
        let written = written.filter_map(|(name, tag)| Some((name, tag.r#type.as_ref()?)));
        tags.extend(written.map(|(name, written)| tag(name, proxy_config_tag(written)).into()));
    } else {
        let written = telemetry_tags.iter().filter_map(|(name, written)| telemetry_tag(env, name, written));
        tags.extend(written.map(Tag::from));
    }
    tags.sort_by(|a, b| a.name.cmp(&b.name));
    tags.iter().for_each(|tag| tracing.encoded(fields::tracing::CUSTOM_TAGS, &tag.body));
}

/// A tag of a Telemetry object; `None` if the proxy would refuse it.
fn telemetry_tag(env: &Env<'_>, name: &str, written: &TelemetryTag) -> Option<CustomTag> {
    let r#type = match written.r#type.as_ref() {
        None => None,
        Some(Written::Literal(literal)) => {
            Some(custom_tag::Type::Literal(custom_tag::Literal { value: literal.value.clone() }))
        }
        Some(Written::Environment(variable)) => Some(environment(&variable.name, &variable.default_value)),
        Some(Written::Header(written)) => Some(header(&written.name, &written.default_value)),
        Some(Written::Formatter(format)) => {
            env.audience.gates.formatted_tags.then_some(())?;
            Some(custom_tag::Type::Value(format.value.clone()))
        }
    };
    Some(CustomTag { tag: name.into(), r#type, ..Default::default() })
}

/// Tags that name the peers of a waypoint.
static PEER_TAGS: LazyLock<Vec<Tag>> = LazyLock::new(|| {
    let tags =
        [("destination", "upstream"), ("source", "downstream")].into_iter().flat_map(|(role, side)| {
            PEER_FIELDS.into_iter().map(move |(name, field)| {
                let value = format!("%FILTER_STATE({side}_peer_obj:FIELD:{field})%");
                tag(&format!("istio.{role}_{name}"), custom_tag::Type::Value(value))
            })
        });
    tags.map(Tag::from).collect()
});

fn environment(name: &str, default: &str) -> custom_tag::Type {
    custom_tag::Type::Environment(custom_tag::Environment {
        name: name.to_owned(),
        default_value: default.to_owned(),
    })
}

fn header(name: &str, default: &str) -> custom_tag::Type {
    custom_tag::Type::RequestHeader(custom_tag::Header {
        name: name.to_owned(),
        default_value: default.to_owned(),
    })
}

fn tag(name: &str, value: custom_tag::Type) -> CustomTag {
    CustomTag { tag: name.into(), r#type: Some(value), ..Default::default() }
}

fn proxy_config_tag(written: &ProxyConfigTag) -> custom_tag::Type {
    match written {
        ProxyConfigTag::Literal(literal) => {
            custom_tag::Type::Literal(custom_tag::Literal { value: literal.value.clone() })
        }
        ProxyConfigTag::Environment(variable) => environment(&variable.name, &variable.default_value),
        ProxyConfigTag::Header(written) => header(&written.name, &written.default_value),
    }
}

/// Tags that name the workload that reports the span.
fn workload_tags(tags: &WorkloadTags) -> [Tag; 5] {
    [
        ("istio.canonical_revision", &tags.canonical_revision, "latest"),
        ("istio.canonical_service", &tags.canonical_service, "unknown"),
        ("istio.mesh_id", &tags.mesh_id, "unknown"),
        ("istio.namespace", &tags.namespace, "default"),
        ("istio.cluster_id", &tags.cluster, "unknown"),
    ]
    .map(|(name, value, default)| literal(name, if value.is_empty() { default } else { value }))
}

fn literal(name: &'static str, value: &str) -> Tag {
    let mut body = ProtoWriter::with_capacity(name.len() + value.len() + 8);
    body.string(fields::custom_tag::TAG, name);
    body.nested(fields::custom_tag::LITERAL, |literal| literal.string(fields::literal_tag::VALUE, value));
    Tag { name: name.into(), body: body.finish() }
}

/// What authorization policies that are only tried out would have done.
static DRY_RUN_TAGS: LazyLock<Vec<Tag>> = LazyLock::new(|| {
    let tags = ["allow", "deny"].into_iter().flat_map(|action| {
        let shadow = |what: &str| format!("istio_dry_run_{action}_shadow_{what}");
        let name = |what: &str| format!("istio.authorization.dry_run.{action}_policy.{what}");
        [
            tag(&name("name"), from_authorization(shadow("effective_policy_id"))),
            tag(&name("result"), from_authorization(shadow("engine_result"))),
        ]
    });
    tags.map(Tag::from).collect()
});

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_is_written_as_the_message_it_stands_for() {
        for value in ["", "v1", &"x".repeat(200)] {
            let message = custom_tag::Type::Literal(custom_tag::Literal { value: value.to_owned() });
            assert_eq!(literal("istio.mesh_id", value).body, Encoded::new(&tag("istio.mesh_id", message)));
        }
    }
}
