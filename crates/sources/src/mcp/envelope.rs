//! Objects in the envelope of MCP: metadata, and a message for what they say.

use canopus_api::{Kind, Object, ObjectKey, Options};
use canopus_base::tree::Node;
use canopus_proto::google::protobuf::Timestamp;
use canopus_proto::istio::mcp::v1alpha1::{Metadata, Resource as Envelope};
use canopus_proto::{Any, descriptors, json};
use serde_json::json;

/// What is in an envelope.
#[derive(Debug)]
pub(super) enum Opened {
    /// An object, and what of it could not be read.
    Object(Box<Object>, Vec<String>),
    /// An object that cannot be read, and why.
    Unreadable(ObjectKey, String),
}

/// Opens an envelope that should hold an object of a kind. Fails if it does not say which object it is about.
pub(super) fn open(kind: Kind, resource: &Any) -> Result<Opened, String> {
    let envelope: Envelope = resource.unpack().map_err(|error| {
        format!("{}: a resource is no istio.mcp.v1alpha1.Resource: {error}", kind.info().resource())
    })?;
    let metadata = envelope.metadata.unwrap_or_default();
    let Some((namespace, name)) = metadata.name.split_once('/').filter(|(_, name)| !name.is_empty()) else {
        return Err(format!(
            "{}: metadata.name {:?} of a resource is not `namespace/name`",
            kind.info().resource(),
            metadata.name
        ));
    };
    let key = ObjectKey::new(kind, namespace, name);
    Ok(match read(kind, &key, &metadata, envelope.body.as_ref()) {
        Ok((object, problems)) => Opened::Object(Box::new(object), problems),
        Err(reason) => Opened::Unreadable(key, reason),
    })
}

fn read(
    kind: Kind,
    key: &ObjectKey,
    metadata: &Metadata,
    body: Option<&Any>,
) -> Result<(Object, Vec<String>), String> {
    let body = body.ok_or_else(|| format!("{key}: the envelope has no body"))?;
    let message = descriptors::open(body)
        .ok_or_else(|| format!("{key}: the body is a {}, which is not known here", body.message_name()))?
        .map_err(|error| format!("{key}: the body is no {}: {error}", body.message_name()))?;
    let created = metadata.create_time.filter(|time| time.seconds > 0);
    let document = json!({
        "apiVersion": kind.info().api_version(),
        "kind": kind.info().kind,
        "metadata": {
            "namespace": key.namespace,
            "name": key.name,
            "resourceVersion": metadata.version,
            "creationTimestamp": created.and_then(Timestamp::to_json),
            "labels": metadata.labels,
            "annotations": metadata.annotations,
        },
        "spec": json::write_dynamic(&message).to_json(),
    });
    let decoded = Object::decode_as(kind, &Node::from(document), Options::watch());
    let decoded = decoded.map_err(|error| format!("{key}: {error}"))?;
    let problems = decoded.ignored.iter().map(|problem| format!("{key}: {problem}")).collect();
    Ok((decoded.value, problems))
}
