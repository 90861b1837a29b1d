//! Resource attributes of OpenTelemetry, by its conventions for Kubernetes.

use canopus_gotemplate::{StringMap, Value};

use super::text_field;

/// The value of `OTEL_RESOURCE_ATTRIBUTES`; empty unless a tracing provider of the mesh wants these conventions.
pub(super) fn otel_resource_attributes(
    mesh: Value,
    annotations: StringMap,
    labels: StringMap,
    namespace: String,
    containers: Value,
) -> String {
    if !is_wanted(&mesh) {
        return String::new();
    }
    let containers = containers.as_list().map_or(&[][..], |list| list.items());
    let entry = |map: &StringMap, key: &str| match map.0.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.to_text().into_owned()),
        _ => None,
    };
    let annotated = |name: &str| entry(&annotations, &format!("resource.opentelemetry.io/{name}"));
    let mut attributes = Vec::new();
    let given = Some(namespace.clone()).filter(|namespace| !namespace.is_empty());
    if let Some(value) = annotated("service.namespace").or(given) {
        attributes.push(format!("service.namespace={value}"));
    }
    let version = annotated("service.version")
        .or_else(|| entry(&labels, "app.kubernetes.io/version"))
        .or_else(|| match containers {
            [only] => image_version(&text_field(only, "Image")),
            _ => None,
        });
    if let Some(value) = version {
        attributes.push(format!("service.version={value}"));
    }
    // The kubelet puts the pod's name in, which is not known yet.
    let instance = annotated("service.instance.id").or_else(|| {
        let first = containers.first()?;
        Some(format!("{namespace}.$(POD_NAME).{}", text_field(first, "Name")))
    });
    if let Some(value) = instance {
        attributes.push(format!("service.instance.id={value}"));
    }
    attributes.join(",")
}

fn is_wanted(mesh: &Value) -> bool {
    let Value::Object(mesh) = mesh else { return false };
    let Some(Value::List(providers)) = mesh.field("ExtensionProviders") else { return false };
    providers.items().iter().any(|provider| {
        let encoded = match provider {
            Value::Object(provider) => provider.encode(),
            _ => Value::Nil,
        };
        let tracing = encoded.as_map().and_then(|provider| provider.get("opentelemetry"));
        let wanted = tracing
            .as_ref()
            .and_then(Value::as_map)
            .and_then(|tracing| tracing.get("serviceAttributeEnrichment"));
        wanted.is_some_and(|wanted| wanted.as_str().is_some_and(|text| *text == "OTEL_SEMANTIC_CONVENTIONS"))
    })
}

/// The tag and digest of an image: `1.21`, `sha256:ab`, `1.21@sha256:ab`.
fn image_version(image: &str) -> Option<String> {
    let (image, digest) = match image.split_once('@') {
        Some((image, digest)) => (image, Some(digest).filter(|digest| !digest.is_empty())),
        None => (image, None),
    };
    let last = image.rsplit('/').next().unwrap_or(image);
    let tag = last.rsplit_once(':').map(|(_, tag)| tag).filter(|tag| !tag.is_empty());
    match (tag, digest) {
        (Some(tag), Some(digest)) => Some(format!("{tag}@{digest}")),
        (tag, digest) => tag.or(digest).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_tags_and_digests() {
        let version = |image: &str| image_version(image).unwrap_or_default();
        assert_eq!(version("nginx:1.21"), "1.21");
        assert_eq!(version("nginx@sha256:ab"), "sha256:ab");
        assert_eq!(version("registry:5000/nginx:1.21@sha256:ab"), "1.21@sha256:ab");
        assert_eq!(version("registry:5000/nginx"), "");
    }
}
