//! Policies whose decision an external authorizer makes.

use std::collections::BTreeMap;

use canopus_engine::Ctx;
use canopus_mesh::authorization::Policy;
use canopus_mesh::trust_domain::TrustDomains;
use canopus_mesh::world::settings;
use canopus_proto::envoy::config::rbac::v3::rbac::Action;
use canopus_proto::envoy::extensions::filters::http::ext_authz::v3::ExtAuthz as HttpExtAuthz;
use canopus_proto::envoy::extensions::filters::network::ext_authz::v3::ExtAuthz as NetworkExtAuthz;
use canopus_proto::envoy::r#type::matcher::v3::MetadataMatcher;
use canopus_runtime::flags::PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS;

use super::provider::{self, Authorizer};
use super::rbac::{self, RuleSet, Rules, Writer, built};
use super::{Built, Guard, Layer, matcher};

const HTTP: &str = "envoy.filters.http.ext_authz";
const NETWORK: &str = "envoy.filters.network.ext_authz";

/// What the names of rules begin with, and so what the note about a match begins with.
const RULE_PREFIX: &str = "istio-ext-authz";
/// What the keys of notes begin with.
const NOTES: &str = "istio_ext_authz_";
const MATCHED_RULE: &str = "istio_ext_authz_shadow_effective_policy_id";

/// What the names of rules end with that refuse everything, since their authorizer cannot be asked.
const REFUSED: &str = "-deny-due-to-bad-CUSTOM-action";

/// For each authorizer a filter that notes what its policies match, and one that asks it about that.
pub(super) fn filters(ctx: &Ctx<'_>, guard: &Guard, policies: &[Policy]) -> Vec<Built> {
    let settings = settings(ctx);
    let domains = TrustDomains::from_mesh_config(&settings.mesh);
    let writer = Writer { guard, domains: &domains };
    let mut by_provider: BTreeMap<&str, Vec<Policy>> = BTreeMap::new();
    for policy in policies {
        by_provider.entry(policy.provider()).or_default().push(policy.clone());
    }
    // Which of several would be meant cannot be guessed.
    let several = by_provider.len() > 1;
    let ambiguous = several && !settings.flags.get(PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS);
    let filters = by_provider.into_iter().flat_map(|(name, policies)| {
        let rules = writer.rules(Action::Deny, &policies, &rule_prefix(name));
        match provider::find(ctx, name).filter(|_| !ambiguous) {
            Some(authorizer) => asking(guard.layer, name, rules, authorizer),
            None => vec![refusing(guard.layer, rules)],
        }
    });
    filters.collect()
}

fn rule_prefix(provider: &str) -> String {
    if provider.is_empty() { format!("{RULE_PREFIX}-") } else { format!("{RULE_PREFIX}-{provider}-") }
}

/// What an authorizer that cannot be asked would have decided about is refused.
fn refusing(layer: Layer, rules: Rules) -> Built {
    let rules = rules.enforced.map(|enforced| enforced.policies).unwrap_or_default().into_iter();
    let policies = rules.map(|(name, policy)| (name + REFUSED, policy)).collect();
    let refused = RuleSet { action: Action::Deny, policies };
    rbac::filter(layer, &Rules { enforced: Some(refused), watched: None }, "")
}

fn asking(layer: Layer, provider: &str, rules: Rules, authorizer: Authorizer) -> Vec<Built> {
    let enabled = |noted_by: &str| Some(matched_by(noted_by, provider));
    let asking = match (layer, authorizer) {
        (Layer::Http | Layer::TunnelledTcp, Authorizer { http, .. }) => {
            built(HTTP, &HttpExtAuthz { filter_enabled_metadata: enabled(rbac::HTTP), ..http })
        }
        (Layer::Tcp, Authorizer { network: Some(network), .. }) => {
            built(NETWORK, &NetworkExtAuthz { filter_enabled_metadata: enabled(rbac::NETWORK), ..network })
        }
        // An authorizer that speaks HTTP cannot judge connections.
        (Layer::Tcp, Authorizer { network: None, .. }) => return Vec::new(),
    };
    // Parity: policies that are only watched stand where rules are enforced.
    let noting = Rules {
        enforced: rules.watched.filter(|watched| !watched.policies.is_empty()),
        watched: Some(rules.enforced.unwrap_or_else(|| RuleSet::new(Action::Deny))),
    };
    vec![rbac::filter(layer, &noting, NOTES), asking]
}

/// The note of an RBAC filter that a rule of the provider matched.
fn matched_by(filter: &str, provider: &str) -> MetadataMatcher {
    let name = matcher::prefix(format!("{RULE_PREFIX}-{provider}"));
    matcher::metadata(filter, [MATCHED_RULE], matcher::text_value(name))
}
