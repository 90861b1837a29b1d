//! Whom a policy is for: the workloads its selector picks, or those its target references name.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::labels as known;
use canopus_api::node::NodeKind;
use canopus_base::labels::Labels;
use canopus_engine::Ctx;
use canopus_proto::istio::r#type::v1beta1::PolicyTargetReference;
use canopus_runtime::flags::ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY;

use crate::proxy::View;
use crate::service::{Registry, Service};
use crate::world::settings;

/// The class of all waypoints, which policies of the root namespace may name.
const WAYPOINT_CLASS: &str = "istio-waypoint";

/// What a policy says about whom it is for.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The namespace of the policy.
    pub namespace: &'a str,
    /// The labels its workloads have; `None` if it says nothing about labels.
    pub selector: Option<&'a BTreeMap<String, String>>,
    /// What it names.
    pub targets: &'a [PolicyTargetReference],
}

/// A workload, and the services it answers for, that policies may be for.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    namespace: &'a str,
    labels: &'a Labels,
    is_waypoint: bool,
    services: Vec<Arc<Service>>,
    root_namespace: String,
    gateways_by_selector: bool,
}

impl<'a> Subject<'a> {
    /// The proxies of a view.
    pub fn of(ctx: &Ctx<'_>, view: &'a View) -> Self {
        let settings = settings(ctx);
        Self {
            namespace: &view.namespace,
            labels: &view.labels,
            is_waypoint: view.kind == NodeKind::Waypoint,
            services: Vec::new(),
            root_namespace: settings.root_namespace().to_owned(),
            gateways_by_selector: settings.flags.get(ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY),
        }
    }

    /// The same proxies, answering for these services as well: only waypoints do.
    #[must_use]
    pub fn with_services(mut self, services: impl IntoIterator<Item = Arc<Service>>) -> Self {
        self.services.extend(services);
        self
    }

    /// Whether a policy is for this workload.
    pub fn is_meant_by(&self, claim: &Claim<'_>) -> bool {
        let Some(gateway) = self.labels.get(known::GATEWAY_NAME.name) else {
            return claim.targets.is_empty() && self.is_selected_by(claim);
        };
        if claim.targets.is_empty() {
            // Waypoints have many services' workloads behind them: labels would be ambiguous.
            return !self.is_waypoint && self.gateways_by_selector && self.is_selected_by(claim);
        }
        claim.targets.iter().any(|target| self.is_named_by(claim, target, gateway))
    }

    fn is_selected_by(&self, claim: &Claim<'_>) -> bool {
        let has = |(key, value): (&String, &String)| self.labels.get(key) == Some(value.as_str());
        claim.selector.is_none_or(|labels| labels.iter().all(has))
    }

    fn is_named_by(&self, claim: &Claim<'_>, target: &PolicyTargetReference, gateway: &str) -> bool {
        let kind = (target.group.as_str(), target.kind.as_str());
        if self.is_waypoint {
            let registry = match kind {
                ("" | "core", "Service") => Some(Registry::Kubernetes),
                ("networking.istio.io", "ServiceEntry") => Some(Registry::External),
                _ => None,
            };
            if registry.is_some_and(|registry| self.answers_for(registry, claim.namespace, &target.name)) {
                return true;
            }
            let of_class = kind == ("gateway.networking.k8s.io", "GatewayClass");
            if of_class && target.name == WAYPOINT_CLASS && claim.namespace == self.root_namespace {
                return true;
            }
        }
        claim.namespace == self.namespace
            && (target.namespace.is_empty() || target.namespace == self.namespace)
            && kind == ("gateway.networking.k8s.io", "Gateway")
            && target.name == gateway
    }

    fn answers_for(&self, registry: Registry, namespace: &str, name: &str) -> bool {
        let mut services = self.services.iter();
        services.any(|service| {
            service.registry == registry && *service.namespace == *namespace && object_name(service) == name
        })
    }
}

/// The name of the object that defines a service.
fn object_name(service: &Service) -> &str {
    service.origins.first().map_or(&service.name, |origin| origin.name())
}
