//! Whether the webhooks of a mesh lead to a control plane that answers.

use std::collections::BTreeSet;

use canopus_api::Kind;
use canopus_base::tree::Node;

use crate::cluster::{Cluster, name_of};

/// What is wrong with the webhooks that lead to a namespace.
pub(super) fn problems(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<String>> {
    let slices = cluster.list(Kind::EndpointSlice, namespace)?;
    let mut problems = Vec::new();
    for kind in [Kind::MutatingWebhookConfiguration, Kind::ValidatingWebhookConfiguration] {
        for configuration in cluster.list(kind, "")? {
            problems.extend(problems_of(&configuration, namespace, &slices));
        }
    }
    Ok(problems)
}

fn problems_of(configuration: &Node, namespace: &str, slices: &[Node]) -> Vec<String> {
    let name = name_of(configuration).unwrap_or_default();
    let webhooks = configuration.get("webhooks").and_then(Node::as_list).unwrap_or_default();
    // A configuration has a webhook for each way to ask for injection, and all lead to the same service.
    let mut problems = BTreeSet::new();
    for webhook in webhooks {
        let text = |pointer: &str| webhook.pointer(pointer).and_then(Node::as_str).unwrap_or_default();
        if text("/clientConfig/service/namespace") != namespace {
            continue;
        }
        if text("/clientConfig/caBundle").is_empty() {
            problems.insert(format!(
                "{name}: clientConfig.caBundle is empty, so the API server does not trust the webhook"
            ));
        }
        let service = text("/clientConfig/service/name");
        if !has_endpoint(service, slices) {
            problems.insert(format!(
                "{name} leads to the service {service}.{namespace}, which has no endpoint that is ready"
            ));
        }
    }
    problems.into_iter().collect()
}

fn has_endpoint(service: &str, slices: &[Node]) -> bool {
    let of_service = slices.iter().filter(|slice| {
        let label =
            slice.pointer("/metadata/labels").and_then(|labels| labels.get("kubernetes.io/service-name"));
        label.and_then(Node::as_str) == Some(service)
    });
    let endpoints =
        of_service.flat_map(|slice| slice.get("endpoints").and_then(Node::as_list).unwrap_or_default());
    endpoints.into_iter().any(|endpoint| {
        // No condition stands for being ready.
        endpoint.pointer("/conditions/ready").and_then(Node::as_bool) != Some(false)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn configuration(bundle: &str, namespace: &str) -> Node {
        Node::from(json!({"metadata": {"name": "istio-sidecar-injector"}, "webhooks": [{
            "name": "rev.namespace.sidecar-injector.istio.io",
            "clientConfig": {"caBundle": bundle, "service": {"namespace": namespace, "name": "istiod"}},
        }]}))
    }

    fn slice(is_ready: bool) -> Node {
        Node::from(json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "istiod"}},
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": is_ready}}],
        }))
    }

    #[test]
    fn webhooks_need_a_certificate_and_somebody_who_answers() {
        let problems = |bundle, namespace, is_ready| {
            problems_of(&configuration(bundle, namespace), "istio-system", &[slice(is_ready)]).len()
        };
        assert_eq!(problems("Y2E=", "istio-system", true), 0);
        assert_eq!(problems("", "istio-system", true), 1);
        assert_eq!(problems("", "istio-system", false), 2);
        assert_eq!(problems("", "elsewhere", false), 0, "it is somebody else's");
    }
}
