//! Which pods are in ambient mode.

use std::collections::BTreeMap;

use canopus_base::labels::selector::SelectorError;
use canopus_base::labels::{Labels, Selector};
use canopus_base::tree::Limits;
use canopus_base::yaml;
use serde::{Deserialize, Serialize};

use crate::pod::Pod;

/// A pair of selectors: of pods, and of their namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnablementSelector {
    /// Which pods.
    pub pod_selector: LabelSelector,
    /// In which namespaces.
    pub namespace_selector: LabelSelector,
}

/// A label selector as Kubernetes writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_expressions: Vec<Expression>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

impl LabelSelector {
    fn compile(&self) -> Result<Selector, SelectorError> {
        let labels = self.match_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let expressions = self.match_expressions.iter().map(|expression| {
            let values = expression.values.iter().map(String::as_str).collect();
            (expression.key.as_str(), expression.operator.as_str(), values)
        });
        Selector::from_parts(labels, expressions)
    }
}

/// Why selectors cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnablementError {
    /// The text is not a list of selectors.
    #[error("enablement selectors: {0}; give a list of objects with podSelector and namespaceSelector")]
    Text(String),
    /// A selector is malformed.
    #[error("enablement selector {index}: {field}: {source}")]
    Selector {
        /// Position of the selector in the list.
        index: usize,
        /// Which of the two.
        field: &'static str,
        /// What is wrong.
        source: SelectorError,
    },
}

/// Selectors ready to be asked. A pod is selected if one pair selects it and its namespace.
#[derive(Clone, Debug, Default)]
pub struct Enablement {
    pairs: Vec<(Selector, Selector)>,
}

/// Reads the list of selectors of the agent's settings.
pub fn parse(text: &str) -> Result<Vec<EnablementSelector>, EnablementError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let fail = |error: &dyn std::fmt::Display| EnablementError::Text(error.to_string());
    let node = yaml::parse_one(text, &Limits::default()).map_err(|error| fail(&error))?;
    serde_json::from_value(node.to_json()).map_err(|error| fail(&error))
}

/// Reads a list of namespaces that commas separate.
pub fn split_namespaces(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

impl Enablement {
    /// Checks selectors.
    pub fn new(selectors: &[EnablementSelector]) -> Result<Self, EnablementError> {
        let compile = |(index, selector): (usize, &EnablementSelector)| {
            let fail = |field| move |source| EnablementError::Selector { index, field, source };
            let pod = selector.pod_selector.compile().map_err(fail("podSelector"))?;
            let namespace = selector.namespace_selector.compile().map_err(fail("namespaceSelector"))?;
            Ok((pod, namespace))
        };
        Ok(Self { pairs: selectors.iter().enumerate().map(compile).collect::<Result<_, _>>()? })
    }

    /// Whether a pod belongs to the ambient mesh. Pods in the node's network, and those with a sidecar, never do.
    pub fn selects(&self, pod: &Pod, namespace_labels: &Labels) -> bool {
        !pod.spec.host_network
            && !pod.has_sidecar()
            && self.pairs.iter().any(|(pods, namespaces)| {
                pods.matches(&pod.metadata.labels) && namespaces.matches(namespace_labels)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: &str = "- podSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}\n\
        - podSelector:\n    matchExpressions: [{key: istio.io/dataplane-mode, operator: NotIn, values: [none]}]\n  \
          namespaceSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}\n";

    fn pod(label: Option<&str>) -> Pod {
        let mut pod = Pod::default();
        label.into_iter().for_each(|value| pod.metadata.labels.insert("istio.io/dataplane-mode", value));
        pod
    }

    #[test]
    fn labels_of_pod_and_namespace_enrol_and_opt_out() {
        let enablement = Enablement::new(&parse(DEFAULT).unwrap()).unwrap();
        let mut ambient = Labels::default();
        ambient.insert("istio.io/dataplane-mode", "ambient");
        let none = Labels::default();
        assert!(enablement.selects(&pod(None), &ambient));
        assert!(!enablement.selects(&pod(None), &none));
        assert!(enablement.selects(&pod(Some("ambient")), &none));
        assert!(!enablement.selects(&pod(Some("none")), &ambient));
        let mut host = pod(Some("ambient"));
        host.spec.host_network = true;
        assert!(!enablement.selects(&host, &ambient));
        let mut sidecar = pod(Some("ambient"));
        sidecar.metadata.annotations.insert("sidecar.istio.io/status".into(), "{}".into());
        assert!(!enablement.selects(&sidecar, &ambient));
    }

    #[test]
    fn malformed_selectors_are_named() {
        let bad = "- podSelector: {matchExpressions: [{key: a, operator: Is}]}";
        let error = Enablement::new(&parse(bad).unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("enablement selector 0: podSelector: "), "{error}");
        assert!(parse("a: b").unwrap_err().to_string().contains("give a list"));
    }
}
