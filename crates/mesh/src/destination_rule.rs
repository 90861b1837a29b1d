//! DestinationRules: which rule applies to a service for a client namespace, and its settings for a port or subset.

mod merge;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::visibility::Visibility;
use canopus_api::{Kind, ObjectKey, annotations, istio};
use canopus_base::host;
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::{DestinationRule, Subset, TrafficPolicy};
use canopus_runtime::flags::ENABLE_ENHANCED_DESTINATIONRULE_MERGE;

pub use policy::{policy_for_port, policy_for_subset};

use crate::audience::Caller;
use crate::gateway_api;
use crate::service::ServiceKey;
use crate::world::{MeshSettings, ObjectIndex, Origin, indexed_objects, qualified_host, settings};

/// Identifies a merged rule, for use in query keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId {
    namespace: Arc<str>,
    scope: RuleScope,
    host: Arc<str>,
    position: usize,
}

/// Which proxies a merged rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RuleScope {
    /// Proxies of its namespace.
    Local,
    /// Proxies of other namespaces.
    Exported,
    /// Proxies of its namespace only, because it is exported to no other.
    Private,
}

/// The DestinationRules of a namespace for one host, merged.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The id of the merged rule.
    pub id: RuleId,
    /// The spec of the first rule with what the others add. The host is a full name.
    pub spec: DestinationRule,
    /// The namespaces it is exported to; empty means the mesh-wide default.
    pub export_to: BTreeSet<Visibility>,
    /// The merged objects, the first one first.
    pub from: Vec<Origin>,
    /// Whether it is derived from a Gateway API policy. Rules that users wrote take precedence.
    pub is_derived: bool,
}

impl Rule {
    fn new(origin: Origin, rule: &istio::DestinationRule, domain: &str) -> Self {
        let namespace: Arc<str> = origin.namespace().into();
        let mut spec = rule.spec.clone();
        spec.host = qualified_host(&spec.host, origin.namespace(), domain);
        // A rule with a workload selector applies in its own namespace only.
        let export_to = if spec.workload_selector.is_some() {
            BTreeSet::from([Visibility::Private])
        } else {
            spec.export_to.iter().map(|entry| Visibility::parse(entry)).collect()
        };
        let is_derived = rule.meta.annotation(annotations::INTERNAL_PARENTS.name).is_some();
        let id = RuleId { namespace, scope: RuleScope::Local, host: spec.host.as_str().into(), position: 0 };
        Self { id, spec, export_to, from: vec![origin], is_derived }
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.spec == other.spec
            && self.export_to == other.export_to
            && self.from == other.from
            && self.is_derived == other.is_derived
    }

    /// The first of the merged objects.
    pub fn origin(&self) -> &Origin {
        &self.from[0]
    }

    /// Finds a subset by name.
    pub fn subset(&self, name: &str) -> Option<&Subset> {
        self.spec.subsets.iter().find(|subset| subset.name == name)
    }

    /// The labels of a subset; empty if there is no such subset.
    pub fn subset_labels(&self, name: &str) -> Labels {
        self.subset(name).map(|subset| to_labels(&subset.labels)).unwrap_or_default()
    }

    /// The traffic policy for a port.
    pub fn policy(&self, port: u32) -> Option<TrafficPolicy> {
        self.spec.traffic_policy.as_ref().map(|policy| policy_for_port(policy, port).0)
    }

    /// The traffic policy for a port of a subset; that of the port if there is no such subset.
    pub fn subset_policy(&self, name: &str, port: u32) -> Option<TrafficPolicy> {
        let subset = self.subset(name).and_then(|subset| subset.traffic_policy.as_ref());
        policy_for_subset(self.spec.traffic_policy.as_ref(), subset, port)
    }

    /// Whether it has TLS settings for any port or subset.
    pub fn has_client_tls(&self) -> bool {
        let subsets = self.spec.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
        let mut policies = self.spec.traffic_policy.iter().chain(subsets);
        policies.any(|policy| {
            policy.tls.is_some() || policy.port_level_settings.iter().any(|port| port.tls.is_some())
        })
    }

    /// The workload selector, if there is one.
    fn selector(&self) -> Option<Labels> {
        self.spec.workload_selector.as_ref().map(|selector| to_labels(&selector.match_labels))
    }

    fn is_exported_to(&self, namespace: &str) -> bool {
        self.export_to.is_empty()
            || self.export_to.contains(&Visibility::Public)
            || self.export_to.contains(&Visibility::Namespace(namespace.into()))
    }

    /// Whether proxies of its own namespace may use it.
    fn is_for_home(&self) -> bool {
        self.export_to.contains(&Visibility::Private) || self.is_exported_to(self.origin().namespace())
    }

    /// Whether only its own namespace may use it.
    fn is_private(&self, settings: &MeshSettings) -> bool {
        if self.export_to.is_empty() {
            return settings.mesh.default_destination_rule_export_to.iter().any(|entry| entry == ".");
        }
        let home = Visibility::Namespace(self.origin().namespace().into());
        self.export_to.len() == 1
            && (self.export_to.contains(&Visibility::Private) || self.export_to.contains(&home))
    }
}

fn to_labels(labels: &BTreeMap<String, String>) -> Labels {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// Rules by host. A host has several if they are for different workloads or namespaces.
pub(crate) type RuleTable = BTreeMap<Arc<str>, Vec<Arc<Rule>>>;

/// The merged rules of a namespace, by which proxies they are for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceRules {
    tables: BTreeMap<RuleScope, RuleTable>,
}

impl NamespaceRules {
    fn add(&mut self, mut rule: Rule, reach: RuleScope, by_audience: bool) {
        rule.id.scope = reach;
        merge::add(self.tables.entry(reach).or_default(), rule, by_audience);
    }

    /// Gives a rule that says the same to its own namespace as to others one identity, so that what follows from it is
    /// generated once for both.
    fn share_equal(&mut self) {
        let Some(mut local) = self.tables.remove(&RuleScope::Local) else { return };
        for (host, rules) in &mut local {
            for rule in rules {
                let mut others = self.tables.values().filter_map(|table| table.get(host)).flatten();
                if let Some(same) = others.find(|other| rule.says_the_same(other)) {
                    *rule = same.clone();
                }
            }
        }
        self.tables.insert(RuleScope::Local, local);
    }

    /// Finds the rules for a host: an exact match, else the most specific wildcard.
    fn most_specific(&self, reach: RuleScope, name: &str) -> Option<&Vec<Arc<Rule>>> {
        let table = self.tables.get(&reach)?;
        table.get(name).or_else(|| {
            let covers = |pattern: &str| host::is_wildcard(pattern) && host::subset_of(name, pattern);
            let covering = table.iter().filter(|(pattern, _)| covers(pattern));
            covering.min_by(|(a, _), (b, _)| host::by_specificity(a, b)).map(|(_, rules)| rules)
        })
    }
}

/// The DestinationRules of a namespace, merged by host.
pub struct RulesIn;

impl Query for RulesIn {
    const NAME: &'static str = "destination_rules_in";
    type Key = Arc<str>;
    type Value = NamespaceRules;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> NamespaceRules {
        let settings = settings(ctx);
        let index = ObjectIndex::InCluster(
            Kind::DestinationRule,
            settings.cluster.clone(),
            namespace.as_ref().into(),
        );
        let mut objects = indexed_objects::<istio::DestinationRule>(ctx, &index);
        objects.extend(gateway_api::destination_rules(ctx, namespace).iter().map(|rule| {
            let key = ObjectKey::new(Kind::DestinationRule, &rule.meta.namespace, &rule.meta.name);
            (Origin::new(settings.cluster.clone(), key), rule.clone())
        }));
        // Rules with a workload selector come first, so that general rules are merged into them.
        objects.sort_by(|(a, x), (b, y)| {
            let order = |object: &istio::DestinationRule| {
                (object.spec.workload_selector.is_none(), object.meta.creation_timestamp)
            };
            order(x).cmp(&order(y)).then_with(|| a.name().cmp(b.name()))
        });
        let by_audience = settings.flags.get(ENABLE_ENHANCED_DESTINATIONRULE_MERGE);
        let mut rules = NamespaceRules::default();
        for (origin, object) in objects {
            let rule = Rule::new(origin, &object, &settings.domain);
            if rule.is_for_home() {
                rules.add(rule.clone(), RuleScope::Local, by_audience);
            }
            let reach = if rule.is_private(&settings) { RuleScope::Private } else { RuleScope::Exported };
            rules.add(rule, reach, by_audience);
        }
        rules.share_equal();
        rules
    }
}

/// The rules for a service and a client namespace: the client namespace's own, else those that the service's namespace
/// exports, else those that the root namespace exports. Several only if they are for different workloads or namespaces.
pub struct RulesFor;

impl Query for RulesFor {
    const NAME: &'static str = "destination_rules_for";
    /// The caller's namespace and the service.
    type Key = (Arc<str>, ServiceKey);
    type Value = Vec<Arc<Rule>>;

    fn run(ctx: &Ctx<'_>, (caller, service): &Self::Key) -> Self::Value {
        let settings = settings(ctx);
        let root = settings.root_namespace();
        let own = ctx.get::<RulesIn>(caller);
        // A rule that the root namespace exports must not hide the rule of the service's own namespace.
        let reach = if **caller == *root { RuleScope::Private } else { RuleScope::Local };
        if let Some(rules) = own.most_specific(reach, &service.host) {
            return rules.clone();
        }
        let exported = |owner: Arc<str>| {
            let rules = ctx.get::<RulesIn>(&owner);
            let rules = rules.most_specific(RuleScope::Exported, &service.host)?.iter();
            let rules: Vec<_> = rules.filter(|rule| rule.is_exported_to(caller)).cloned().collect();
            (!rules.is_empty()).then_some(rules)
        };
        exported(service.namespace.clone()).or_else(|| exported(root.into())).unwrap_or_default()
    }
}

/// Finds a merged rule by id.
pub fn rule(ctx: &Ctx<'_>, id: &RuleId) -> Option<Arc<Rule>> {
    let rules = ctx.get::<RulesIn>(&id.namespace);
    rules.tables.get(&id.scope)?.get(&id.host)?.get(id.position).cloned()
}

/// The rule for connections from a proxy to a service: one that selects the workload, else a general one.
pub fn outbound_rule(ctx: &Ctx<'_>, caller: &Caller, service: &ServiceKey) -> Option<Arc<Rule>> {
    let rules = ctx.get::<RulesFor>(&(caller.namespace.clone(), service.clone()));
    let selected = rules.iter().find(|rule| {
        rule.origin().namespace() == &*caller.namespace
            && rule.selector().is_some_and(|selector| selector.subset_of(caller.labels.as_labels()))
    });
    selected.or_else(|| for_all_workloads(&rules)).cloned()
}

/// The rule that the server side of a service applies. Rules with a workload selector are ignored.
pub fn inbound_rule(ctx: &Ctx<'_>, namespace: &Arc<str>, service: &ServiceKey) -> Option<Arc<Rule>> {
    for_all_workloads(&ctx.get::<RulesFor>(&(namespace.clone(), service.clone()))).cloned()
}

fn for_all_workloads(rules: &[Arc<Rule>]) -> Option<&Arc<Rule>> {
    rules.iter().rfind(|rule| rule.spec.workload_selector.is_none())
}
