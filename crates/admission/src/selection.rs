//! Which injection webhooks a pod is sent to, by its labels and those of its namespace.
//!
//! This explains; the API server decides. `check-inject` prints it.

use canopus_base::labels::Labels;
use canopus_base::labels::selector::Selector;
use canopus_base::tree::Node;

/// What one MutatingWebhookConfiguration does with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The name of the configuration.
    pub webhook: String,
    /// The revision it injects.
    pub revision: String,
    /// Whether it gets the pod.
    pub injects: bool,
    /// Why, or why not.
    pub reason: String,
}

/// A label that switches injection on or off for a namespace.
const NAMESPACE_LABEL: &str = "istio-injection";

/// Judges the webhooks of Istio's among MutatingWebhookConfigurations, by name.
pub fn explain(configurations: &[Node], pod: &Labels, namespace: &Labels) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = configurations
        .iter()
        .filter(|configuration| is_istio(configuration))
        .map(|configuration| {
            let text =
                |pointer: &str| configuration.pointer(pointer).and_then(Node::as_str).unwrap_or_default();
            let (reason, injects) = judge(webhooks(configuration), pod, namespace);
            Verdict {
                webhook: text("/metadata/name").to_owned(),
                revision: text("/metadata/labels/istio.io~1rev").to_owned(),
                injects,
                reason,
            }
        })
        .collect();
    verdicts.sort_by(|a, b| a.webhook.cmp(&b.webhook));
    verdicts
}

fn webhooks(configuration: &Node) -> &[Node] {
    configuration.get("webhooks").and_then(Node::as_list).unwrap_or_default()
}

fn is_istio(configuration: &Node) -> bool {
    let named = |webhook: &Node| {
        webhook.get("name").and_then(Node::as_str).is_some_and(|name| name.ends_with("istio.io"))
    };
    webhooks(configuration).iter().any(named)
}

fn judge(webhooks: &[Node], pod: &Labels, namespace: &Labels) -> (String, bool) {
    for webhook in webhooks {
        let namespace_match = matched(webhook.get("namespaceSelector"), namespace);
        let pod_match = matched(webhook.get("objectSelector"), pod);
        match (namespace_match, pod_match) {
            (Some(Some(of_namespace)), Some(Some(of_pod))) => {
                let reason =
                    format!("Namespace label {of_namespace} matches, and pod label {of_pod} matches");
                return (reason, true);
            }
            (Some(Some(label)), Some(None)) => {
                let everywhere = label.contains("kubernetes.io/metadata.name");
                let note =
                    if everywhere { " (Automatic injection is enabled in all namespaces)." } else { "" };
                return (format!("Namespace label {label} matches{note}"), true);
            }
            (Some(None), Some(Some(label))) => return (format!("Pod label {label} matches"), true),
            (Some(None), Some(None)) | (None, None) => {}
            (Some(_), None) => {
                if let Some(label) = preventing(webhook.get("objectSelector"), pod) {
                    return (format!("Pod has {label} label, preventing injection"), false);
                }
            }
            (None, Some(_)) => {
                if let Some(value) = namespace.get(NAMESPACE_LABEL).filter(|value| *value != "enabled") {
                    return (
                        format!("Namespace has {NAMESPACE_LABEL}={value} label, preventing injection"),
                        false,
                    );
                }
            }
        }
    }
    (nothing_matches(webhooks), false)
}

/// An expression of a selector: key, operator, values.
type Expression<'a> = (&'a str, &'a str, Vec<&'a str>);

fn expressions(selector: Option<&Node>) -> impl Iterator<Item = Expression<'_>> {
    let items = selector.and_then(|selector| selector.get("matchExpressions")?.as_list()).unwrap_or_default();
    items.iter().map(|expression| {
        let text = |name: &str| expression.get(name).and_then(Node::as_str).unwrap_or_default();
        let values = expression.get("values").and_then(Node::as_list).unwrap_or_default();
        (text("key"), text("operator"), values.iter().filter_map(Node::as_str).collect())
    })
}

fn match_labels(selector: &Node) -> impl Iterator<Item = (&str, &str)> {
    let map = selector.get("matchLabels").and_then(Node::as_map);
    map.into_iter().flatten().filter_map(|entry| Some((&*entry.key, entry.node.as_str()?)))
}

/// `None` if the selector does not match; else the label that made it match, if one did.
fn matched(selector: Option<&Node>, labels: &Labels) -> Option<Option<String>> {
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else { return Some(None) };
    let read = Selector::from_parts(match_labels(selector), expressions(Some(selector))).ok()?;
    if !read.matches(labels) {
        return None;
    }
    let named = expressions(Some(selector)).find_map(|(key, operator, _)| {
        let value = labels.get(key).filter(|_| matches!(operator, "In" | "NotIn"))?;
        Some(format!("{key}={value}"))
    });
    Some(named)
}

/// The label of a pod that keeps a selector from matching.
fn preventing(selector: Option<&Node>, pod: &Labels) -> Option<String> {
    expressions(selector).find_map(|(key, operator, values)| {
        let value = pod.get(key)?;
        let prevents = operator == "DoesNotExist" || (operator == "NotIn" && values.contains(&value));
        prevents.then(|| format!("{key}={value}"))
    })
}

fn nothing_matches(webhooks: &[Node]) -> String {
    let is_never = |selector: Option<&Node>| {
        selector.is_some_and(|selector| {
            match_labels(selector).eq([("istio.io/deactivated", "never-match")])
                && expressions(Some(selector)).next().is_none()
        })
    };
    let deactivated = |webhook: &Node| {
        is_never(webhook.get("namespaceSelector")) && is_never(webhook.get("objectSelector"))
    };
    if webhooks.iter().any(deactivated) {
        return "The injection webhook is deactivated, and will never match labels.".to_owned();
    }
    let wanted = |selector: &str| {
        let labels = webhooks.iter().flat_map(|webhook| expressions(webhook.get(selector)));
        let labels = labels.filter(|(_, operator, _)| *operator == "In");
        let pairs =
            labels.flat_map(|(key, _, values)| values.into_iter().map(move |value| format!("{key}={value}")));
        pairs.collect::<Vec<_>>().join(", ")
    };
    format!(
        "No matching namespace labels ({}) or pod labels ({})",
        wanted("namespaceSelector"),
        wanted("objectSelector")
    )
}
