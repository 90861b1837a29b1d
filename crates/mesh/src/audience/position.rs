//! The position of a proxy, reduced to what services and rules use for load balancing.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::DestinationRule;
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, EagerCtx, EagerQuery};
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use canopus_proto::istio::networking::v1alpha3::traffic_policy::PortTrafficPolicy;
use canopus_proto::istio::networking::v1alpha3::{
    DestinationRule as RuleSpec, LoadBalancerSettings, LocalityLoadBalancerSetting, TrafficPolicy,
    ZoneAwareLoadBalancerSetting,
};

use super::View;
use crate::locality::Locality;
use crate::selector::is_reduction_disabled;
use crate::service::{Service, ServicesOf};
use crate::world::{NamespacesWith, ObjectIndex, Objects, indexed_objects, settings};

/// Where a proxy runs. Parts that nothing in the mesh uses are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The Kubernetes node.
    pub node: Option<Arc<str>>,
    /// Region, zone and subzone.
    pub locality: Option<Arc<Locality>>,
    /// The labels that endpoints are preferred for sharing.
    pub labels: Labels,
    /// Whether the proxy has labels at all. Without labels, no endpoint is preferred by label.
    pub has_labels: bool,
}

impl Position {
    /// Reduces the position of a proxy to what some Service, DestinationRule or the mesh configuration uses.
    pub fn new(ctx: &Ctx<'_>, view: &View) -> Self {
        let whole = Self {
            node: Some(view.proxy.metadata.node_name.as_str().into()),
            locality: Some(Arc::new(view.locality.clone())),
            labels: view.labels.clone(),
            has_labels: !view.labels.is_empty(),
        };
        if is_reduction_disabled(ctx) {
            return whole;
        }
        whole.reduced_to(&ctx.get::<MeshPositionUse>(&()))
    }

    /// Drops what is not used.
    #[must_use]
    pub fn reduced_to(&self, used: &PositionUse) -> Self {
        let labels = used.labels.iter().filter_map(|key| Some((&**key, self.labels.get(key)?)));
        Self {
            node: self.node.clone().filter(|_| used.node),
            locality: self.locality.clone().filter(|_| used.locality),
            labels: labels.collect(),
            has_labels: self.has_labels && used.by_labels,
        }
    }
}

/// The parts of a proxy's position that decide which endpoints it prefers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PositionUse {
    node: bool,
    locality: bool,
    labels: BTreeSet<Box<str>>,
    /// Whether endpoints are preferred by label, including by fixed values.
    by_labels: bool,
    /// Whether outlier detection is on. Without it proxies never fail over.
    detects_outliers: bool,
}

impl PositionUse {
    /// The parts that the endpoints of a service may depend on, given its DestinationRule. It may name more than is used.
    pub fn for_destination(mesh: &MeshConfig, service: &Service, rule: Option<&RuleSpec>) -> Self {
        let mut used = Self::default();
        used.add_service(service);
        rule.into_iter().for_each(|rule| used.add_rule(rule));
        used.add_mesh(mesh);
        used
    }

    fn add_service(&mut self, service: &Service) {
        self.node |= service.kube.as_ref().is_some_and(|kube| kube.node_local);
        let preferred = service.traffic_distribution.preferred_labels();
        self.by_labels |= !preferred.is_empty();
        self.labels.extend(preferred.iter().map(|&label| Box::from(label)));
    }

    fn add_rule(&mut self, rule: &RuleSpec) {
        let subsets = rule.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
        rule.traffic_policy.iter().chain(subsets).for_each(|policy| self.add_policy(policy));
    }

    fn add_policy(&mut self, policy: &TrafficPolicy) {
        self.detects_outliers |= policy.outlier_detection.is_some();
        policy.load_balancer.iter().for_each(|balancer| self.add_balancer(balancer));
        for PortTrafficPolicy { outlier_detection, load_balancer, .. } in &policy.port_level_settings {
            self.detects_outliers |= outlier_detection.is_some();
            load_balancer.iter().for_each(|balancer| self.add_balancer(balancer));
        }
    }

    fn add_balancer(&mut self, balancer: &LoadBalancerSettings) {
        balancer.zone_aware_lb_setting.iter().for_each(|setting| self.add_zones(setting));
        balancer.locality_lb_setting.iter().for_each(|setting| self.add_localities(setting));
    }

    fn add_zones(&mut self, setting: &ZoneAwareLoadBalancerSetting) {
        self.locality = true;
        self.add_labels(&setting.failover_priority);
    }

    fn add_localities(&mut self, setting: &LocalityLoadBalancerSetting) {
        self.locality = true;
        self.add_labels(&setting.failover_priority);
    }

    /// Adds the mesh-wide defaults. Failover settings are used only with outlier detection.
    fn add_mesh(&mut self, mesh: &MeshConfig) {
        if let Some(setting) = &mesh.zone_aware_lb_setting {
            self.add_zones(setting);
        }
        if let Some(setting) = &mesh.locality_lb_setting
            && (self.detects_outliers || !setting.distribute.is_empty())
        {
            self.add_localities(setting);
        }
    }

    /// Adds the labels of entries `label`. Entries `label=value` do not read the proxy's labels.
    fn add_labels(&mut self, written: &[String]) {
        self.by_labels |= !written.is_empty();
        self.labels
            .extend(written.iter().filter(|entry| !entry.contains('=')).map(|entry| entry.as_str().into()));
    }

    fn merge(&mut self, other: &Self) {
        self.node |= other.node;
        self.locality |= other.locality;
        self.by_labels |= other.by_labels;
        self.detects_outliers |= other.detects_outliers;
        self.labels.extend(other.labels.iter().cloned());
    }
}

/// The parts of positions that anything in the mesh uses.
struct MeshPositionUse;

impl EagerQuery for MeshPositionUse {
    const NAME: &'static str = "position_use";
    type Key = ();
    type Value = PositionUse;

    fn run(ctx: &EagerCtx<'_>, (): &()) -> PositionUse {
        let mut used = PositionUse::default();
        for kind in [Kind::Service, Kind::ServiceEntry, Kind::DestinationRule] {
            for namespace in ctx.get::<NamespacesWith>(&kind).iter() {
                used.merge(&ctx.get::<PositionUseIn>(&(kind, namespace.clone())));
            }
        }
        used.add_mesh(&settings(ctx).mesh);
        used
    }
}

/// The parts of positions that the services or DestinationRules of a namespace use.
struct PositionUseIn;

impl EagerQuery for PositionUseIn {
    const NAME: &'static str = "position_use_in";
    type Key = (Kind, Arc<str>);
    type Value = PositionUse;

    fn run(ctx: &EagerCtx<'_>, (kind, namespace): &Self::Key) -> PositionUse {
        let mut used = PositionUse::default();
        let index = ObjectIndex::Namespace(*kind, namespace.as_ref().into());
        match kind {
            Kind::DestinationRule => {
                for (_, rule) in indexed_objects::<DestinationRule>(ctx, &index) {
                    used.add_rule(&rule.spec);
                }
            }
            _ => {
                for origin in ctx.members::<Objects>(&index).iter() {
                    ctx.get::<ServicesOf>(origin).iter().for_each(|service| used.add_service(service));
                }
            }
        }
        used
    }
}
