//! Policies that gRPC libraries enforce: they know DENY and ALLOW.

use canopus_engine::Ctx;
use canopus_mesh::attachment::PolicyTarget;
use canopus_mesh::authorization::{PoliciesOf, Policy};
use canopus_mesh::trust_domain::TrustDomains;
use canopus_proto::envoy::config::rbac::v3::rbac::Action;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use super::rbac::{RuleSet, Rules};
use super::rule::{self, Site};
use super::{Layer, Peer, rbac};
use crate::filter::packed_http_filter;

/// Libraries want every filter to have a name of its own.
const DENY: &str = "envoy.filters.http.rbac.DENY";

/// The filters of a server; none where no rule is left.
pub(crate) fn filters(ctx: &Ctx<'_>, protected: &PolicyTarget) -> Vec<HttpFilter> {
    let policies = ctx.get::<PoliciesOf>(protected);
    let lists = [(DENY, Action::Deny, &policies.deny), (rbac::HTTP, Action::Allow, &policies.allow)];
    let rules = lists.into_iter().map(|(name, action, policies)| (name, rules(action, policies)));
    rules
        .filter(|(_, rules)| !rules.policies.is_empty())
        .map(|(name, enforced)| {
            let rules = Rules { enforced: Some(enforced), watched: None };
            packed_http_filter(name, rbac::filter(Layer::Http, &rules, "").config)
        })
        .collect()
}

/// Parity: libraries get identities as they are written, without those of other trust domains, and enforce policies that
/// proxies only watch.
fn rules(action: Action, policies: &[Policy]) -> RuleSet {
    let domains = TrustDomains::none();
    let mut rules = RuleSet::new(action);
    for policy in policies {
        let origin = &policy.origin;
        let site = Site {
            layer: Layer::Http,
            peer: Peer::Certificate,
            namespace: origin.namespace(),
            allows: action == Action::Allow,
            domains: &domains,
        };
        for (at, written) in policy.rules().iter().enumerate() {
            if let Some(generated) = rule::policy(written, &site) {
                let name = format!("{}-{}-{at}", origin.namespace(), origin.name());
                rules.policies.insert(name, generated);
            }
        }
    }
    rules
}
