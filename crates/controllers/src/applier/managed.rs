//! Objects that exist for others: which of them may be written, and what of them must stay.

use serde_json::Value;

/// The label that selected the pods of gateways before Istio 1.24.
const OLD_GATEWAY_NAME: &str = "istio.io/gateway-name";

/// The fields to apply over what is stored; none if that does not have the label of what is made here.
///
/// The resource version of what is stored is among the fields, so that the server refuses them if the object has changed
/// hands since.
pub fn adopt(stored: Option<&Value>, fields: &Value, mark: &str) -> Option<Value> {
    let mut fields = fields.clone();
    let Some(stored) = stored else { return Some(fields) };
    stored.get("metadata")?.get("labels")?.get(mark)?;
    if let Some(version) = stored["metadata"].get("resourceVersion") {
        fields["metadata"]["resourceVersion"] = version.clone();
    }
    keep_selector(stored, &mut fields);
    Some(fields)
}

/// A selector cannot be changed, so a Deployment of an older version keeps it, and its pods the label it looks for.
fn keep_selector(stored: &Value, fields: &mut Value) {
    let selector = &stored["spec"]["selector"];
    let selected = selector["matchLabels"].get(OLD_GATEWAY_NAME).and_then(Value::as_str);
    if stored["kind"] != "Deployment" || selected.is_none_or(str::is_empty) {
        return;
    }
    fields["spec"]["selector"] = selector.clone();
    let label = stored["spec"]["template"]["metadata"]["labels"].get(OLD_GATEWAY_NAME).cloned();
    fields["spec"]["template"]["metadata"]["labels"][OLD_GATEWAY_NAME] = label.unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MARK: &str = "gateway.istio.io/managed";

    fn stored(labels: Value, selector: Value) -> Value {
        json!({"kind": "Deployment", "metadata": {"resourceVersion": "7", "labels": labels},
            "spec": {"selector": {"matchLabels": selector}, "template": {"metadata": {"labels": selector}}}})
    }

    #[test]
    fn object_of_somebody_else_is_left_alone() {
        let fields = json!({"metadata": {"name": "web"}});
        assert_eq!(adopt(None, &fields, MARK), Some(fields.clone()));
        assert_eq!(adopt(Some(&stored(json!({}), json!({}))), &fields, MARK), None);
        assert_eq!(adopt(Some(&json!({"metadata": {}})), &fields, MARK), None);
        let own = stored(json!({"gateway.istio.io/managed": "anything"}), json!({}));
        assert_eq!(
            adopt(Some(&own), &fields, MARK),
            Some(json!({"metadata": {"name": "web", "resourceVersion": "7"}}))
        );
    }

    #[test]
    fn selector_of_an_older_version_stays() {
        let old = stored(json!({"gateway.istio.io/managed": "c"}), json!({"istio.io/gateway-name": "web"}));
        let fields = json!({"metadata": {}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {
            "labels": {"a": "b"}}}}});
        let adopted = adopt(Some(&old), &fields, MARK).unwrap();
        assert_eq!(adopted["spec"]["selector"]["matchLabels"], json!({"istio.io/gateway-name": "web"}));
        let labels = &adopted["spec"]["template"]["metadata"]["labels"];
        assert_eq!(*labels, json!({"a": "b", "istio.io/gateway-name": "web"}));
    }
}
