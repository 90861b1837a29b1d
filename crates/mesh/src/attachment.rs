//! Policy attachment: which workloads a policy applies to, by selector or by target references.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_engine::Ctx;
use canopus_proto::istio::r#type::v1beta1::{PolicyTargetReference, WorkloadSelector};
use canopus_runtime::flags::ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY;

use crate::selector::SelectorLabels;
use crate::service::{Registry, Service};
use crate::world::settings;

/// The GatewayClass of waypoints. Policies of the root namespace may target it to apply to all waypoints.
const WAYPOINT_CLASS: &str = "istio-waypoint";

/// The selector and target references of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyAttachment<'a> {
    /// The namespace of the policy.
    pub namespace: &'a str,
    /// The workload selector; `None` matches all workloads.
    pub selector: Option<&'a BTreeMap<String, String>>,
    /// The target references.
    pub targets: &'a [PolicyTargetReference],
}

/// A service as target references name it: by the object that defines it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedService {
    /// The name of the object.
    pub name: Arc<str>,
    /// Namespace of the service.
    pub namespace: Arc<str>,
    /// The registry, which determines the kind of the object.
    pub registry: Registry,
}

impl From<&Service> for NamedService {
    fn from(service: &Service) -> Self {
        let name = service.origins.first().map(|origin| origin.name().into());
        Self {
            name: name.unwrap_or_else(|| service.name.clone()),
            namespace: service.namespace.clone(),
            registry: service.registry,
        }
    }
}

/// A workload as selectors and target references see it: the key of policy lookups.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyTarget {
    /// The namespace of the workload.
    pub namespace: Arc<str>,
    /// The Gateway that the workload is a proxy of, which policies may target.
    pub gateway: Option<Arc<str>>,
    /// The labels that policies select the workload by.
    pub labels: SelectorLabels,
    /// Whether it is a waypoint. Policies apply to waypoints by target reference only, never by label.
    pub is_waypoint: bool,
    /// The service whose traffic is handled, if the answer depends on it.
    pub service: Option<NamedService>,
}

impl PolicyTarget {
    /// Adds the service whose traffic the workload handles.
    #[must_use]
    pub fn with_service(self, service: &Service) -> Self {
        Self { service: Some(service.into()), ..self }
    }

    /// Treats a waypoint as an ordinary workload.
    #[must_use]
    pub fn as_workload(self) -> Self {
        Self { is_waypoint: false, ..self }
    }

    /// Prepares to match policies.
    pub fn subject(&self, ctx: &Ctx<'_>) -> PolicySubject<'_> {
        let settings = settings(ctx);
        PolicySubject {
            namespace: &self.namespace,
            gateway: self.gateway.as_deref(),
            labels: &self.labels,
            is_waypoint: self.is_waypoint,
            services: self.service.iter().cloned().collect(),
            root_namespace: settings.root_namespace().to_owned(),
            gateways_by_selector: settings.flags.get(ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY),
        }
    }

    /// The namespaces whose policies may apply: these two, then that of the service, without duplicates.
    pub(crate) fn namespaces<'a>(&'a self, first: &'a str, second: &'a str) -> Vec<&'a str> {
        let service = self.service.as_ref().map(|service| &*service.namespace);
        let mut namespaces: Vec<&str> = Vec::with_capacity(3);
        for namespace in [first, second].into_iter().chain(service) {
            if !namespaces.contains(&namespace) {
                namespaces.push(namespace);
            }
        }
        namespaces
    }
}

/// A workload with the services it handles traffic for, to match policies against.
#[derive(Clone, Debug)]
pub struct PolicySubject<'a> {
    namespace: &'a str,
    gateway: Option<&'a str>,
    labels: &'a SelectorLabels,
    is_waypoint: bool,
    services: Vec<NamedService>,
    root_namespace: String,
    gateways_by_selector: bool,
}

impl<'a> PolicyAttachment<'a> {
    /// Reads the attachment of a policy of `namespace`. The single reference is a deprecated field, used if the list is empty.
    pub fn new(
        namespace: &'a str,
        selector: Option<&'a WorkloadSelector>,
        target: &'a Option<PolicyTargetReference>,
        targets: &'a [PolicyTargetReference],
    ) -> Self {
        Self {
            namespace,
            selector: selector.map(|selector| &selector.match_labels),
            targets: if targets.is_empty() { target.as_slice() } else { targets },
        }
    }
}

impl<'a> PolicySubject<'a> {
    /// Adds services that a waypoint handles traffic for.
    #[must_use]
    pub fn with_services(mut self, services: impl IntoIterator<Item = Arc<Service>>) -> Self {
        self.services.extend(services.into_iter().map(|service| NamedService::from(&*service)));
        self
    }

    /// Whether a policy applies to the workload.
    pub fn is_targeted_by(&self, claim: &PolicyAttachment<'_>) -> bool {
        let Some(gateway) = self.gateway else {
            return claim.targets.is_empty() && self.is_selected_by(claim);
        };
        if claim.targets.is_empty() {
            // A waypoint handles the traffic of many workloads, so labels would be ambiguous.
            return !self.is_waypoint && self.gateways_by_selector && self.is_selected_by(claim);
        }
        claim.targets.iter().any(|target| self.is_named_by(claim, target, gateway))
    }

    fn is_selected_by(&self, claim: &PolicyAttachment<'_>) -> bool {
        claim.selector.is_none_or(|selector| self.labels.are_selected_by(selector))
    }

    fn is_named_by(
        &self,
        claim: &PolicyAttachment<'_>,
        target: &PolicyTargetReference,
        gateway: &str,
    ) -> bool {
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
            service.registry == registry && *service.namespace == *namespace && *service.name == *name
        })
    }
}
