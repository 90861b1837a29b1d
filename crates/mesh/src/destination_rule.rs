//! DestinationRules: which one applies to a service as seen from a namespace, and what it says for a port or a subset.

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

/// Names a rule: what stands for it in the keys of facts that follow from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId {
    namespace: Arc<str>,
    scope: RuleScope,
    host: Arc<str>,
    position: usize,
}

/// For whom rules are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RuleScope {
    /// For the proxies of the namespace.
    Local,
    /// For others.
    Exported,
    /// For the proxies of the namespace and nobody else.
    Private,
}

/// What all rules of a namespace say together about one host.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What names it.
    pub id: RuleId,
    /// The first of the rules with everything the others add to it; its host is a full name.
    pub spec: DestinationRule,
    /// Who may use it; empty means as the mesh's default says.
    pub export_to: BTreeSet<Visibility>,
    /// The objects behind it, the one it is named after first.
    pub from: Vec<Origin>,
    /// Whether the control plane made it of a Gateway API policy: what a user wrote goes before it.
    pub is_derived: bool,
}

impl Rule {
    fn new(origin: Origin, rule: &istio::DestinationRule, domain: &str) -> Self {
        let namespace: Arc<str> = origin.namespace().into();
        let mut spec = rule.spec.clone();
        spec.host = qualified_host(&spec.host, origin.namespace(), domain);
        // A rule for some workloads of a namespace means nothing elsewhere.
        let export_to = if spec.workload_selector.is_some() {
            BTreeSet::from([Visibility::Private])
        } else {
            spec.export_to.iter().map(|entry| Visibility::parse(entry)).collect()
        };
        let is_derived = rule.meta.annotation(annotations::INTERNAL_PARENTS.name).is_some();
        let id = RuleId { namespace, scope: RuleScope::Local, host: spec.host.as_str().into(), position: 0 };
        Self { id, spec, export_to, from: vec![origin], is_derived }
    }

    /// The object it is named after.
    pub fn origin(&self) -> &Origin {
        &self.from[0]
    }

    /// The subset of this name.
    pub fn subset(&self, name: &str) -> Option<&Subset> {
        self.spec.subsets.iter().find(|subset| subset.name == name)
    }

    /// The labels endpoints of a subset have; none for a subset it does not know.
    pub fn subset_labels(&self, name: &str) -> Labels {
        self.subset(name).map(|subset| to_labels(&subset.labels)).unwrap_or_default()
    }

    /// What applies to connections to a port.
    pub fn policy(&self, port: u32) -> Option<TrafficPolicy> {
        self.spec.traffic_policy.as_ref().map(|policy| policy_for_port(policy, port).0)
    }

    /// What applies to connections to a port of a subset; what applies to the port if there is no such subset.
    pub fn subset_policy(&self, name: &str, port: u32) -> Option<TrafficPolicy> {
        let subset = self.subset(name).and_then(|subset| subset.traffic_policy.as_ref());
        policy_for_subset(self.spec.traffic_policy.as_ref(), subset, port)
    }

    /// Whether it says something about TLS, for any port or subset.
    pub fn has_client_tls(&self) -> bool {
        let subsets = self.spec.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
        let mut policies = self.spec.traffic_policy.iter().chain(subsets);
        policies.any(|policy| {
            policy.tls.is_some() || policy.port_level_settings.iter().any(|port| port.tls.is_some())
        })
    }

    /// Whether it is for the workloads with these labels alone, and which.
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

    /// Whether nobody but its own namespace may use it.
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

/// Rules by host; several for one host if they are for different workloads or namespaces.
pub(crate) type RuleTable = BTreeMap<Arc<str>, Vec<Arc<Rule>>>;

/// The rules of one namespace, by whom they are for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceRules {
    tables: BTreeMap<RuleScope, RuleTable>,
}

impl NamespaceRules {
    fn add(&mut self, mut rule: Rule, reach: RuleScope, by_audience: bool) {
        rule.id.scope = reach;
        merge::add(self.tables.entry(reach).or_default(), rule, by_audience);
    }

    /// The entry for a host: its own, else that of the narrowest wildcard that covers it.
    fn most_specific(&self, reach: RuleScope, name: &str) -> Option<&Vec<Arc<Rule>>> {
        let table = self.tables.get(&reach)?;
        table.get(name).or_else(|| {
            let covers = |pattern: &str| host::is_wildcard(pattern) && host::subset_of(name, pattern);
            let covering = table.iter().filter(|(pattern, _)| covers(pattern));
            covering.min_by(|(a, _), (b, _)| host::by_specificity(a, b)).map(|(_, rules)| rules)
        })
    }
}

/// The rules of a namespace, merged by host.
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
        // Rules for some workloads go first, so that the others add to them.
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
        rules
    }
}

/// The rules for a service as seen from a namespace: the namespace's own, else what the service's namespace exports, else
/// what the root namespace does. More than one only if they are for different workloads or namespaces.
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
        // What the root namespace says to everybody must not hide what a service's namespace says about the service.
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

/// The rule of a name.
pub fn rule(ctx: &Ctx<'_>, id: &RuleId) -> Option<Arc<Rule>> {
    let rules = ctx.get::<RulesIn>(&id.namespace);
    rules.tables.get(&id.scope)?.get(&id.host)?.get(id.position).cloned()
}

/// The rule for connections of a proxy to a service: one that selects the proxy's workload, else one for all workloads.
pub fn outbound_rule(ctx: &Ctx<'_>, caller: &Caller, service: &ServiceKey) -> Option<Arc<Rule>> {
    let rules = ctx.get::<RulesFor>(&(caller.namespace.clone(), service.clone()));
    let selected = rules.iter().find(|rule| {
        rule.origin().namespace() == &*caller.namespace
            && rule.selector().is_some_and(|selector| selector.subset_of(caller.labels.as_labels()))
    });
    selected.or_else(|| for_all_workloads(&rules)).cloned()
}

/// The rule whose settings the server's side of a service takes over. Rules for some workloads do not count.
pub fn inbound_rule(ctx: &Ctx<'_>, namespace: &Arc<str>, service: &ServiceKey) -> Option<Arc<Rule>> {
    for_all_workloads(&ctx.get::<RulesFor>(&(namespace.clone(), service.clone()))).cloned()
}

fn for_all_workloads(rules: &[Arc<Rule>]) -> Option<&Arc<Rule>> {
    rules.iter().rfind(|rule| rule.spec.workload_selector.is_none())
}
