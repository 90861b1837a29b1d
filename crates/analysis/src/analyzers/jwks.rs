//! Whether the control plane may be made to fetch keys from any address.

use canopus_api::Kind;
use canopus_base::tree::Node;

use crate::catalogue;
use crate::findings::Findings;
use crate::world::{Resource, World};

const VARIABLE: &str = "BLOCKED_CIDRS_IN_JWKS_URIS";

/// How many policies a message names.
const NAMED: usize = 5;

pub(crate) fn analyze(world: &World, findings: &mut Findings) {
    let policies = world.objects_of_kind(Kind::RequestAuthentication);
    if policies.is_empty() {
        return;
    }
    let named: Vec<_> = policies.iter().take(NAMED).map(|policy| policy.full_name()).collect();
    let mut names = named.join(", ");
    if policies.len() > NAMED {
        names.push_str(&format!(", and {} more", policies.len() - NAMED));
    }
    let control_planes = world
        .objects_of_kind(Kind::Deployment)
        .iter()
        .filter(|deployment| deployment.labels().get("app") == Some("istiod"));
    for deployment in control_planes.filter(|deployment| !is_restricted(deployment)) {
        let parameters = [(&policies.len()).into(), names.clone().into()];
        findings.add(&catalogue::JWKS_URI_FETCH_UNRESTRICTED, deployment, &parameters);
    }
}

fn is_restricted(deployment: &Resource) -> bool {
    let containers = deployment.at(&["spec", "template", "spec", "containers"]).and_then(Node::as_list);
    let variables =
        containers.into_iter().flatten().filter_map(|container| container.get("env")?.as_list()).flatten();
    let text =
        |variable: &Node, key: &str| variable.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
    variables
        .into_iter()
        .any(|variable| text(variable, "name") == VARIABLE && !text(variable, "value").is_empty())
}
