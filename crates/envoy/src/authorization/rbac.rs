//! Policies that the proxy enforces by itself.

use canopus_engine::Ctx;
use canopus_mesh::authorization::{Policies, Policy};
use canopus_mesh::trust_domain::TrustDomains;
use canopus_mesh::world::settings;
use canopus_proto::envoy::config::rbac::v3::permission::Rule;
use canopus_proto::envoy::config::rbac::v3::principal::Identifier;
use canopus_proto::envoy::config::rbac::v3::rbac::Action;
use canopus_proto::envoy::config::rbac::v3::{Permission, Policy as Generated, Principal, Rbac};
use canopus_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use canopus_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use canopus_proto::{Any, Message, Name};

use super::rule::{self, Site, Term};
use super::{Built, Guard, Layer};

/// The name of the filter on requests.
pub(super) const HTTP: &str = "envoy.filters.http.rbac";
/// The name of the filter on connections.
pub(super) const NETWORK: &str = "envoy.filters.network.rbac";

const TCP_STATISTICS: &str = "tcp.";

/// The filters of the policies that audit, deny and allow, in this order.
pub(super) fn filters(ctx: &Ctx<'_>, guard: &Guard, policies: &Policies) -> Vec<Built> {
    let domains = TrustDomains::of(&settings(ctx).mesh);
    let writer = Writer { guard, domains: &domains };
    let lists =
        [(Action::Log, &policies.audit), (Action::Deny, &policies.deny), (Action::Allow, &policies.allow)];
    let lists = lists.into_iter().filter(|(_, policies)| !policies.is_empty());
    lists
        .map(|(action, policies)| {
            let rules = writer.rules(action, policies, "");
            let statistics = statistics(rules.watched.as_ref().map(|_| action));
            filter(guard.layer, rules, statistics)
        })
        .collect()
}

/// What counters of watched rules begin with, given what these do.
fn statistics(action: Option<Action>) -> &'static str {
    match action {
        Some(Action::Log) => "",
        Some(Action::Deny) => "istio_dry_run_deny_",
        // Parity: counters have this name even if no rules are watched.
        Some(Action::Allow) | None => "istio_dry_run_allow_",
    }
}

/// Rules that are enforced and rules that are only watched.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) enforced: Option<Rbac>,
    pub(super) watched: Option<Rbac>,
}

/// Writes policies as rules of one guarded place.
pub(super) struct Writer<'a> {
    pub(super) guard: &'a Guard,
    pub(super) domains: &'a TrustDomains,
}

impl Writer<'_> {
    /// The policies of one action. Names of rules begin with `prefix`.
    pub(super) fn rules(&self, action: Action, policies: &[Policy], prefix: &str) -> Rules {
        let empty = || Rbac { action: action as i32, ..Default::default() };
        let mut rules = Rules::default();
        for policy in policies {
            let list = if policy.dry_run { &mut rules.watched } else { &mut rules.enforced };
            // A list without rules is not the same as no list: nothing is allowed by it.
            let list = list.get_or_insert_with(empty);
            list.policies.extend(self.policy(action, policy, prefix));
        }
        rules
    }

    fn policy(&self, action: Action, policy: &Policy, prefix: &str) -> Vec<(String, Generated)> {
        let origin = &policy.origin;
        let name =
            |at: usize| format!("{prefix}ns[{}]-policy[{}]-rule[{at}]", origin.namespace(), origin.name());
        if policy.rules().is_empty() {
            return vec![(name(0), matching_nothing())];
        }
        let site = Site {
            layer: self.guard.layer,
            peer: self.guard.peer,
            namespace: origin.namespace(),
            allows: action == Action::Allow,
            domains: self.domains,
        };
        let rules = policy.rules().iter().enumerate();
        rules.filter_map(|(at, rule)| Some((name(at), rule::policy(rule, &site)?))).collect()
    }
}

fn matching_nothing() -> Generated {
    let anything = Permission { rule: Some(Rule::Any(true)) };
    let anybody = Principal { identifier: Some(Identifier::Any(true)) };
    Generated { permissions: vec![anything.not()], principals: vec![anybody.not()], ..Default::default() }
}

/// The filter that runs rules; `statistics` names the counters of those that are only watched.
pub(super) fn filter(layer: Layer, rules: Rules, statistics: &str) -> Built {
    let shadow_rules_stat_prefix = statistics.to_owned();
    match layer {
        Layer::Http | Layer::TunnelledTcp => built(
            HTTP,
            &HttpRbac {
                rules: rules.enforced,
                shadow_rules: rules.watched,
                shadow_rules_stat_prefix,
                ..Default::default()
            },
        ),
        Layer::Tcp => built(
            NETWORK,
            &NetworkRbac {
                rules: rules.enforced,
                shadow_rules: rules.watched,
                shadow_rules_stat_prefix,
                stat_prefix: TCP_STATISTICS.into(),
                ..Default::default()
            },
        ),
    }
}

/// A filter under its well-known name.
pub(super) fn built<M: Message + Name>(name: &'static str, config: &M) -> Built {
    Built { name, config: Any::pack(config) }
}
