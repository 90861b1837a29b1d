//! Whether a pod is injected.

use canopus_base::labels::Labels;
use canopus_base::labels::selector::Selector;
use serde_json::Value as Json;

use super::config::{Config, Policy};
use super::pod;

/// Namespaces of Kubernetes' own, whose pods are left alone.
pub(super) const IGNORED_NAMESPACES: [&str; 4] =
    ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

const INJECT: &str = "sidecar.istio.io/inject";

impl Config {
    /// Whether a pod is injected: never on the host's network nor in Kubernetes' own namespaces; else as its label says, then its
    /// annotation, then the selectors, then the policy.
    pub fn is_required(&self, pod: &Json) -> bool {
        let host_network = pod.get("spec").and_then(|spec| spec.get("hostNetwork")?.as_bool());
        if host_network == Some(true) || IGNORED_NAMESPACES.contains(&pod::namespace(pod)) {
            return false;
        }
        let enabled_by_default = match self.policy {
            Policy::Enabled => true,
            Policy::Disabled => false,
            // Parity: a policy that means nothing switches injection off altogether.
            Policy::Unknown(_) => return false,
        };
        match pod::label(pod, INJECT).or_else(|| pod::annotation(pod, INJECT)) {
            Some("true") => return true,
            Some("false") => return false,
            // Anything else is as good as nothing.
            _ => {}
        }
        let labels: Labels = pod::metadata_map(pod, "labels").collect();
        let selected = |selectors: &[Selector]| {
            selectors.iter().any(|selector| !selector.is_everything() && selector.matches(&labels))
        };
        if selected(&self.never_inject) {
            return false;
        }
        selected(&self.always_inject) || enabled_by_default
    }
}
