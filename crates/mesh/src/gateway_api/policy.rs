//! Backend policies, converted to DestinationRules.

mod client_tls;
mod merge;

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::gateway_api::{
    BackendTlsPolicy, BackendTrafficPolicy, ExternalBackend, LocalObjectReference, ParentReference,
    PolicyAncestorStatus, PolicyTargetReference, RetryConstraint,
};
use canopus_api::istio::{self, ServiceEntry};
use canopus_api::kube::Service;
use canopus_api::value::Condition;
use canopus_api::{Kind, Meta, Object, ObjectKey, annotations};
use canopus_engine::{Ctx, Query};
use canopus_proto::google::protobuf::{DoubleValue, Duration};
use canopus_proto::istio::networking::v1alpha3::traffic_policy::RetryBudget;
use canopus_proto::istio::networking::v1alpha3::{ClientTlsSettings, LoadBalancerSettings};
use canopus_runtime::flags::{
    PILOT_ENABLE_ALPHA_GATEWAY_API, PILOT_ENABLE_GATEWAY_API, PILOT_GATEWAY_API_CONTROLLER_NAME,
};
use jiff::Timestamp;

use super::class::MESH_CONTROLLER;
use super::cluster_objects::ClusterObjects;
use super::condition::Conditions;
use super::fault::{Fault, reason};
use super::http::duration;
use crate::reference::gateway_api::{parent_key, referenced_kind};
use crate::world::{Origin, any_object};

/// The maximum number of ancestors in the status of a policy.
const MOST_ANCESTORS: usize = 16;
/// The message of conditions without a fault.
const FINE: &str = "Configuration is valid";

/// The settings of a policy for one host of its target.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendPolicy {
    /// The policy.
    pub source: ObjectKey,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// The target object.
    pub target: ObjectKey,
    /// The host.
    pub host: String,
    /// The name of the port, if the policy is for one port.
    pub section: Option<Box<str>>,
    /// The number of the port, if the policy is for one port.
    pub port: Option<u32>,
    /// The TLS settings.
    pub tls: Option<ClientTlsSettings>,
    /// The load balancer settings.
    pub load_balancer: Option<LoadBalancerSettings>,
    /// The retry budget.
    pub retry_budget: Option<RetryBudget>,
}

/// A converted policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvertedPolicy {
    /// The settings by host.
    pub policies: Vec<BackendPolicy>,
    /// The status of the policy.
    pub ancestors: Vec<PolicyAncestorStatus>,
}

/// The conversion of a policy or XBackend; empty for other objects.
pub struct PolicyOf;

impl Query for PolicyOf {
    const NAME: &'static str = "policy_of";
    type Key = Origin;
    type Value = ConvertedPolicy;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> ConvertedPolicy {
        let cluster = ClusterObjects::new(ctx);
        let has_alpha = cluster.settings.flags.get(PILOT_ENABLE_ALPHA_GATEWAY_API);
        match any_object(ctx, origin).as_deref() {
            Some(Object::BackendTlsPolicy(policy)) => convert_tls_policy(&cluster, origin, policy),
            Some(Object::BackendTrafficPolicy(policy)) if has_alpha => {
                convert_traffic_policy(&cluster, origin, policy)
            }
            Some(Object::ExternalBackend(backend)) if has_alpha => convert_backend(&cluster, origin, backend),
            _ => ConvertedPolicy::default(),
        }
    }
}

/// The DestinationRules derived from the policies of a namespace.
pub(crate) fn destination_rules(
    ctx: &Ctx<'_>,
    namespace: &Arc<str>,
) -> Arc<Vec<Arc<istio::DestinationRule>>> {
    ctx.get::<DerivedRules>(namespace)
}

/// [`destination_rules`] as a query.
pub struct DerivedRules;

impl Query for DerivedRules {
    const NAME: &'static str = "derived_destination_rules";
    /// The namespace.
    type Key = Arc<str>;
    type Value = Vec<Arc<istio::DestinationRule>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let cluster = ClusterObjects::new(ctx);
        if !cluster.settings.flags.get(PILOT_ENABLE_GATEWAY_API) {
            return Vec::new();
        }
        let kinds = [Kind::BackendTrafficPolicy, Kind::BackendTlsPolicy, Kind::ExternalBackend];
        let origins = kinds.into_iter().flat_map(|kind| cluster.origins_in(kind, namespace));
        let policies = origins.flat_map(|origin| ctx.get::<PolicyOf>(&origin).policies.clone());
        merge::rules(&cluster, policies.collect())
    }
}

/// The conditions of a policy without a fault.
fn conditions(with_references: bool) -> Conditions {
    let mut conditions = Conditions::default();
    conditions.expect("Accepted", "Accepted", FINE);
    if with_references {
        conditions.expect("ResolvedRefs", "ResolvedRefs", FINE);
    }
    conditions
}

fn convert_tls_policy(
    cluster: &ClusterObjects<'_>,
    origin: &Origin,
    policy: &BackendTlsPolicy,
) -> ConvertedPolicy {
    let present = &policy.status.ancestors;
    let targets = policy.spec.target_refs.iter();
    if is_ignored(&policy.meta) {
        let references = targets.map(ancestor);
        return ConvertedPolicy {
            policies: Vec::new(),
            ancestors: ignored(cluster, &policy.meta, references, present),
        };
    }
    // Parity: a fault of one target is reported for all targets after it, too.
    let mut conditions = conditions(true);
    let tls = client_tls::tls_from_validation(
        cluster,
        &policy.meta.namespace,
        &policy.spec.validation,
        &mut conditions,
    );
    let mut policies = Vec::new();
    let mut gateways = BTreeSet::new();
    let mut report = Report::new(cluster, &policy.meta, present);
    for target in targets {
        match tls_target(cluster, &policy.meta.namespace, target) {
            Ok((key, hosts)) => {
                if let Some(other) = stronger(cluster, origin, policy, target, &key) {
                    let message =
                        format!("Conflicts with BackendTLSPolicy {other:?} targeting the same backend");
                    conditions.fail("Accepted", &Fault::new(reason::CONFLICTED, message));
                } else {
                    policies.extend(hosts.into_iter().map(|host| BackendPolicy {
                        source: origin.key.clone(),
                        created: policy.meta.creation_timestamp,
                        target: key.clone(),
                        host,
                        section: target.section_name.clone().filter(|section| !section.is_empty()),
                        port: None,
                        tls: Some(tls.clone()),
                        load_balancer: None,
                        retry_budget: None,
                    }));
                }
                gateways.extend(gateways_before(cluster, &key));
            }
            Err(message) => {
                let message = format!("targetRefs invalid: {message}");
                conditions.fail("Accepted", &Fault::new(reason::TARGET_NOT_FOUND, message));
            }
        }
        report.add(ancestor(target), MESH_CONTROLLER, &conditions);
    }
    let controller = cluster.settings.flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME).to_owned();
    for (_, name) in gateways {
        let gateway = ParentReference { name, ..ParentReference::default() };
        report.add(gateway, &controller, &conditions);
    }
    ConvertedPolicy { policies, ancestors: report.finish(MOST_ANCESTORS) }
}

/// Resolves a target of a BackendTLSPolicy to the object and its hosts.
fn tls_target(
    cluster: &ClusterObjects<'_>,
    namespace: &str,
    target: &PolicyTargetReference,
) -> Result<(ObjectKey, Vec<String>), String> {
    let kind = target_kind(cluster, &target.group, &target.kind, namespace, &target.name)?;
    let (hosts, ports): (Vec<String>, Vec<String>) = match kind {
        Kind::Service => {
            let service = cluster.object::<Service>(namespace, &target.name);
            let ports = service.iter().flat_map(|service| &service.spec.ports);
            (
                vec![cluster.service_host(&target.name, namespace)],
                ports.map(|port| port.name.to_string()).collect(),
            )
        }
        Kind::ServiceEntry => {
            let entry = cluster.object::<ServiceEntry>(namespace, &target.name);
            let spec = entry.map(|entry| entry.spec.clone()).unwrap_or_default();
            (spec.hosts, spec.ports.into_iter().map(|port| port.name).collect())
        }
        _ => return Err(format!("unsupported reference kind: {}", target.kind)),
    };
    if let Some(section) = target.section_name.as_deref().filter(|section| !section.is_empty())
        && !ports.iter().any(|port| port == section)
    {
        let (kind, name) = (&target.kind, &target.name);
        return Err(format!("sectionName {section:?} does not exist in {kind} {namespace}/{name}"));
    }
    Ok((ObjectKey::new(kind, namespace, &target.name), hosts))
}

/// The kind of a target. Fails if it is unsupported or the object does not exist.
fn target_kind(
    cluster: &ClusterObjects<'_>,
    group: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<Kind, String> {
    let known = [Kind::Service, Kind::ServiceEntry, Kind::ConfigMap, Kind::Secret];
    let Some(found) = referenced_kind(group, kind).filter(|found| known.contains(found)) else {
        return Err(format!("unsupported kind {kind}"));
    };
    if !cluster.exists(found, namespace, name) {
        return Err(format!("reference {namespace}/{name} (of kind {kind}) not found"));
    }
    Ok(found)
}

/// Finds a policy with the same target that takes precedence: an older one, or one of the same age that sorts first by name.
fn stronger(
    cluster: &ClusterObjects<'_>,
    origin: &Origin,
    policy: &BackendTlsPolicy,
    target: &PolicyTargetReference,
    key: &ObjectKey,
) -> Option<Box<str>> {
    let age = |policy: &BackendTlsPolicy| (policy.meta.creation_timestamp, policy.meta.name.clone());
    let others = cluster.referrers(key).into_iter().filter(|other| other != origin);
    others
        .filter(|other| other.key.kind == Kind::BackendTlsPolicy)
        .filter_map(|other| cluster.object::<BackendTlsPolicy>(other.namespace(), other.name()))
        .filter(|other| !is_ignored(&other.meta) && other.spec.target_refs.contains(target))
        .find(|other| age(other) < age(policy))
        .map(|other| other.meta.name.clone())
}

/// The gateways with routes to a backend, by namespace and name.
fn gateways_before(cluster: &ClusterObjects<'_>, backend: &ObjectKey) -> BTreeSet<(Box<str>, Box<str>)> {
    let mut gateways = BTreeSet::new();
    for origin in cluster.referrers(backend) {
        let object = any_object(cluster.ctx, &origin);
        let parents = match object.as_deref() {
            Some(Object::HttpRoute(route)) => &route.spec.parent_refs,
            Some(Object::GrpcRoute(route)) => &route.spec.parent_refs,
            Some(Object::TcpRoute(route)) => &route.spec.parent_refs,
            Some(Object::TlsRoute(route)) => &route.spec.parent_refs,
            _ => continue,
        };
        let keys = parents.iter().filter_map(|parent| parent_key(parent, origin.namespace()));
        let of_gateways = keys.filter(|key| key.kind == Kind::KubernetesGateway);
        gateways.extend(of_gateways.map(|key| (key.namespace, key.name)));
    }
    gateways
}

fn convert_traffic_policy(
    cluster: &ClusterObjects<'_>,
    origin: &Origin,
    policy: &BackendTrafficPolicy,
) -> ConvertedPolicy {
    let present = &policy.status.ancestors;
    let targets = policy.spec.target_refs.iter();
    let reference = |target: &LocalObjectReference| ParentReference {
        group: target.group.clone(),
        kind: target.kind.clone(),
        name: target.name.clone(),
        ..ParentReference::default()
    };
    if is_ignored(&policy.meta) {
        let ancestors = ignored(cluster, &policy.meta, targets.map(reference), present);
        return ConvertedPolicy { policies: Vec::new(), ancestors };
    }
    let mut conditions = conditions(false);
    if policy.spec.session_persistence.is_some() {
        let message =
            "Configuration is valid, but Istio does not support the following fields: sessionPersistence";
        conditions.expect("Accepted", "Accepted", message);
    }
    let namespace = &*policy.meta.namespace;
    let mut policies = Vec::new();
    let mut report = Report::new(cluster, &policy.meta, present);
    for target in targets {
        let kind = target_kind(cluster, &target.group, &target.kind, namespace, &target.name);
        let kind = kind.and_then(|kind| match kind {
            Kind::Service => Ok(kind),
            _ => Err(format!("unsupported reference kind: {}", target.kind)),
        });
        match kind {
            Ok(kind) => policies.push(BackendPolicy {
                source: origin.key.clone(),
                created: policy.meta.creation_timestamp,
                target: ObjectKey::new(kind, namespace, &target.name),
                host: cluster.service_host(&target.name, namespace),
                section: None,
                port: None,
                tls: None,
                load_balancer: Some(LoadBalancerSettings::default()),
                retry_budget: policy.spec.retry_constraint.as_ref().map(retry_budget),
            }),
            Err(message) => {
                let message = format!("targetRefs invalid: {message}");
                conditions.fail("Accepted", &Fault::new(reason::TARGET_NOT_FOUND, message));
            }
        }
        report.add(reference(target), MESH_CONTROLLER, &conditions);
    }
    ConvertedPolicy { policies, ancestors: report.finish(MOST_ANCESTORS) }
}

fn retry_budget(written: &RetryConstraint) -> RetryBudget {
    let count = written.min_retry_rate.count.unwrap_or(10);
    RetryBudget {
        percent: Some(DoubleValue { value: written.budget.percent.into() }),
        budget_interval: Some(duration(&written.budget.interval).unwrap_or(Duration::from_secs(10))),
        min_retry_concurrency: u32::try_from(count).unwrap_or_default(),
    }
}

/// Converts the TLS settings of an XBackend.
fn convert_backend(
    cluster: &ClusterObjects<'_>,
    origin: &Origin,
    backend: &ExternalBackend,
) -> ConvertedPolicy {
    let mut conditions = conditions(true);
    let outside = backend.spec.external_hostname.as_ref();
    let mut policies = Vec::new();
    match outside.filter(|_| &*backend.spec.r#type == "ExternalHostname") {
        None => {
            let message = format!("unsupported backend type: {}", backend.spec.r#type);
            conditions.fail("Accepted", &Fault::new(reason::INVALID, message));
        }
        Some(outside) => {
            let tls = client_tls::tls_from_backend(cluster, backend, &outside.hostname, &mut conditions);
            policies.extend(tls.map(|tls| BackendPolicy {
                source: origin.key.clone(),
                created: backend.meta.creation_timestamp,
                target: origin.key.clone(),
                host: outside.hostname.to_string(),
                section: None,
                port: Some(backend.spec.port.port.into()),
                tls: Some(tls),
                load_balancer: None,
                retry_budget: None,
            }));
        }
    }
    let mut report = Report::new(cluster, &backend.meta, &[]);
    let own = origin.key.kind.info();
    let reference = ParentReference {
        group: own.group.into(),
        kind: own.kind.into(),
        name: backend.meta.name.clone(),
        ..ParentReference::default()
    };
    report.add(reference, MESH_CONTROLLER, &conditions);
    let controller = cluster.settings.flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME).to_owned();
    for (namespace, name) in gateways_before(cluster, &origin.key) {
        let gateway = ParentReference { namespace: Some(namespace), name, ..ParentReference::default() };
        report.add(gateway, &controller, &conditions);
    }
    ConvertedPolicy { policies, ancestors: report.finish(2 * MOST_ANCESTORS) }
}

fn is_ignored(meta: &Meta) -> bool {
    let annotation = meta.annotation(annotations::IGNORE_POLICY_ATTACHMENT.name);
    annotation.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

fn ignored(
    cluster: &ClusterObjects<'_>,
    meta: &Meta,
    references: impl Iterator<Item = ParentReference>,
    present: &[PolicyAncestorStatus],
) -> Vec<PolicyAncestorStatus> {
    let mut conditions = conditions(false);
    let message =
        format!("Ignored by Istio due to annotation {}=true", annotations::IGNORE_POLICY_ATTACHMENT.name);
    conditions.fail("Accepted", &Fault::new(reason::IGNORED, message));
    let mut report = Report::new(cluster, meta, present);
    for reference in references {
        report.add(reference, MESH_CONTROLLER, &conditions);
    }
    report.finish(MOST_ANCESTORS)
}

fn ancestor(target: &PolicyTargetReference) -> ParentReference {
    ParentReference {
        group: target.group.clone(),
        kind: target.kind.clone(),
        name: target.name.clone(),
        section_name: target.section_name.clone(),
        ..ParentReference::default()
    }
}

/// Collects the status of a policy by ancestor.
struct Report<'a> {
    controllers: [String; 2],
    generation: i64,
    present: &'a [PolicyAncestorStatus],
    ancestors: Vec<PolicyAncestorStatus>,
}

impl<'a> Report<'a> {
    fn new(cluster: &ClusterObjects<'_>, meta: &Meta, present: &'a [PolicyAncestorStatus]) -> Self {
        let own = cluster.settings.flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME).to_owned();
        let controllers = [own, MESH_CONTROLLER.to_owned()];
        Self { controllers, generation: meta.generation, present, ancestors: Vec::new() }
    }

    fn add(&mut self, ancestor_ref: ParentReference, controller: &str, conditions: &Conditions) {
        let present = self.present.iter().find(|present| present.ancestor_ref == ancestor_ref);
        let before: &[Condition] = present.map(|present| present.conditions.as_slice()).unwrap_or_default();
        self.ancestors.push(PolicyAncestorStatus {
            ancestor_ref,
            controller_name: controller.into(),
            conditions: conditions.write(self.generation, before),
        });
    }

    /// Keeps the entries of other controllers, replaces ours in place and appends new ones up to the maximum.
    fn finish(self, most: usize) -> Vec<PolicyAncestorStatus> {
        let mut ours = self.ancestors;
        let mut all = Vec::new();
        for present in self.present {
            if !self.controllers.iter().any(|controller| **controller == *present.controller_name) {
                all.push(present.clone());
            } else if let Some(at) = ours.iter().position(|new| new.ancestor_ref == present.ancestor_ref) {
                all.push(ours.remove(at));
            }
        }
        all.append(&mut ours);
        all.truncate(most);
        all
    }
}
