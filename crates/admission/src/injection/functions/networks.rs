//! The Multus annotation: networks of a pod, in JSON or as a list of names.

use serde_json::Value as Json;

/// Adds Istio's network, unless it is there or the annotation cannot be read.
pub(super) fn append(present: &str, network: &str) -> String {
    if present.is_empty() {
        return network.to_owned();
    }
    let Some(end) = present.rfind(']') else {
        let known = present.split(',').any(|known| known.trim() == network);
        return if known { present.to_owned() } else { format!("{present}, {network}") };
    };
    let Ok(networks) = serde_json::from_str::<Vec<serde_json::Map<String, Json>>>(present) else {
        return present.to_owned();
    };
    let (namespace, name) = network.split_once('/').unwrap_or(("", network));
    let is_known = networks.iter().any(|known| {
        let text = |field: &str| known.get(field).and_then(Json::as_str).unwrap_or_default();
        text("name") == name && text("namespace") == namespace
    });
    if is_known {
        return present.to_owned();
    }
    let added = if namespace.is_empty() {
        format!(", {{\"name\": \"{name}\"}}")
    } else {
        format!(", {{\"name\": \"{name}\", \"namespace\": \"{namespace}\"}}")
    };
    format!("{}{added}{}", &present[..end], &present[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_added_once_in_the_form_that_is_used() {
        assert_eq!(append("", "istio-cni"), "istio-cni");
        assert_eq!(append("a, b", "istio-cni"), "a, b, istio-cni");
        assert_eq!(append("a, istio-cni", "istio-cni"), "a, istio-cni");
        assert_eq!(
            append(r#"[{"name": "a"}]"#, "default/istio-cni"),
            r#"[{"name": "a"}, {"name": "istio-cni", "namespace": "default"}]"#
        );
        let known = r#"[{"name": "istio-cni", "namespace": "default"}]"#;
        assert_eq!(append(known, "default/istio-cni"), known);
        assert_eq!(append("[broken]", "istio-cni"), "[broken]");
    }
}
