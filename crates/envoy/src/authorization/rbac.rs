//! Policies that the proxy enforces by itself.

use std::collections::BTreeMap;

use canopus_engine::Ctx;
use canopus_mesh::authorization::{Policies, Policy};
use canopus_mesh::trust_domain::TrustDomains;
use canopus_mesh::world::settings;
use canopus_proto::envoy::config::rbac::v3::rbac::Action;
use canopus_proto::envoy::config::rbac::v3::{Policy as RbacPolicy, Rbac};
use canopus_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use canopus_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use canopus_proto::fields::{http_rbac, network_rbac, rbac};
use canopus_proto::wire::{Explicit, Field, Nested, ProtoWriter, TypeUrl};
use canopus_proto::{Any, Message, Name};

use super::rule::{self, Site};
use super::term::Term;
use super::{Built, Guard, Layer};

/// The name of the filter on requests.
pub(super) const HTTP: &str = "envoy.filters.http.rbac";
/// The name of the filter on connections.
pub(super) const NETWORK: &str = "envoy.filters.network.rbac";

const TCP_STATISTICS: &str = "tcp.";

/// Room for what is in an entry besides its name and policy.
const USUAL_REST: usize = 16;

/// The filters of the policies that audit, deny and allow, in this order.
pub(super) fn filters(ctx: &Ctx<'_>, guard: &Guard, policies: &Policies) -> Vec<Built> {
    let domains = TrustDomains::from_mesh_config(&settings(ctx).mesh);
    let writer = Writer { guard, domains: &domains };
    let lists =
        [(Action::Log, &policies.audit), (Action::Deny, &policies.deny), (Action::Allow, &policies.allow)];
    let lists = lists.into_iter().filter(|(_, policies)| !policies.is_empty());
    lists
        .map(|(action, policies)| {
            let rules = writer.rules(action, policies, "");
            let statistics = statistics(rules.watched.as_ref().map(|_| action));
            filter(guard.layer, &rules, statistics)
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

/// Policies of Envoy's RBAC filter that do the same, encoded, by their names.
pub(super) struct RuleSet {
    pub(super) action: Action,
    pub(super) policies: BTreeMap<String, ProtoWriter<RbacPolicy>>,
}

impl RuleSet {
    pub(super) fn new(action: Action) -> Self {
        Self { action, policies: BTreeMap::new() }
    }

    /// Writes them as a field of a filter.
    fn write<M>(&self, filter: &mut ProtoWriter<M>, field: Field<M, Nested<Rbac>, Explicit>) {
        let size = self.policies.iter().map(|(name, policy)| name.len() + policy.len() + USUAL_REST).sum();
        filter.reserve(size);
        filter.nested_of_about(field, size, |rules| {
            rules.enumeration(rbac::ACTION, self.action);
            for (name, policy) in &self.policies {
                rules.encoded_entry(rbac::POLICIES, name, policy);
            }
        });
    }
}

/// Rules that are enforced and rules that are only watched.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) enforced: Option<RuleSet>,
    pub(super) watched: Option<RuleSet>,
}

impl Rules {
    /// Writes them as fields of a filter.
    fn write<M>(
        &self,
        filter: &mut ProtoWriter<M>,
        enforced: Field<M, Nested<Rbac>, Explicit>,
        watched: Field<M, Nested<Rbac>, Explicit>,
    ) {
        self.enforced.iter().for_each(|rules| rules.write(filter, enforced));
        self.watched.iter().for_each(|rules| rules.write(filter, watched));
    }
}

/// Writes policies as rules of one guarded place.
pub(super) struct Writer<'a> {
    pub(super) guard: &'a Guard,
    pub(super) domains: &'a TrustDomains,
}

impl Writer<'_> {
    /// The policies of one action. Names of rules begin with `prefix`.
    pub(super) fn rules(&self, action: Action, policies: &[Policy], prefix: &str) -> Rules {
        let mut rules = Rules::default();
        for policy in policies {
            let list = if policy.dry_run { &mut rules.watched } else { &mut rules.enforced };
            // A list without rules is not the same as no list: nothing is allowed by it.
            let list = list.get_or_insert_with(|| RuleSet::new(action));
            list.policies.extend(self.policy(action, policy, prefix));
        }
        rules
    }

    fn policy(
        &self,
        action: Action,
        policy: &Policy,
        prefix: &str,
    ) -> Vec<(String, ProtoWriter<RbacPolicy>)> {
        let origin = &policy.origin;
        let (namespace, policy_name) = (origin.namespace(), origin.name());
        let name = |at: usize| {
            let mut digits = itoa::Buffer::new();
            let at = digits.format(at);
            [prefix, "ns[", namespace, "]-policy[", policy_name, "]-rule[", at, "]"].concat()
        };
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

fn matching_nothing() -> ProtoWriter<RbacPolicy> {
    rule::matching(&[Term::any().not()], &[Term::any().not()])
}

/// The filter that runs rules; `statistics` names the counters of those that are only watched.
pub(super) fn filter(layer: Layer, rules: &Rules, statistics: &str) -> Built {
    match layer {
        Layer::Http | Layer::TunnelledTcp => {
            let mut config = ProtoWriter::<HttpRbac>::default();
            rules.write(&mut config, http_rbac::RULES, http_rbac::SHADOW_RULES);
            config.string(http_rbac::SHADOW_RULES_STAT_PREFIX, statistics);
            packed(HTTP, config)
        }
        Layer::Tcp => {
            let mut config = ProtoWriter::<NetworkRbac>::default();
            rules.write(&mut config, network_rbac::RULES, network_rbac::SHADOW_RULES);
            config.string(network_rbac::STAT_PREFIX, TCP_STATISTICS);
            config.string(network_rbac::SHADOW_RULES_STAT_PREFIX, statistics);
            packed(NETWORK, config)
        }
    }
}

fn packed<M: TypeUrl>(name: &'static str, config: ProtoWriter<M>) -> Built {
    Built { name, config: Any { type_url: M::TYPE_URL.to_owned(), value: config.into_vec().into() } }
}

/// A filter under its well-known name.
pub(super) fn built<M: Message + Name>(name: &'static str, config: &M) -> Built {
    Built { name, config: Any::pack(config) }
}
