//! Telemetry objects that apply to a workload: mesh-wide, namespace-wide and workload-specific, merged.

pub mod logging;
pub mod metrics;
pub mod tracing;

use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::Telemetry;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::telemetry::v1alpha1::{AccessLogging, Metrics, ProviderRef, Tracing};
use canopus_proto::istio::r#type::v1beta1::PolicyTargetReference;

use crate::attachment::{PolicyAttachment, PolicyTarget};
use crate::service::{ServiceKey, ServicesByHost};
use crate::world::{ObjectIndex, Origin, indexed_objects, oldest_first, settings};

/// The side of a connection that is reported on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The caller's, gateways among them.
    Client,
    /// The callee's.
    Server,
}

/// The Telemetry settings that apply to a workload, from the widest to the most specific. Later ones override earlier ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApplicableTelemetry {
    /// Metrics settings.
    pub metrics: Vec<Metrics>,
    /// Access log settings, by object.
    pub logging: Vec<Vec<AccessLogging>>,
    /// Tracing settings.
    pub tracing: Vec<Tracing>,
}

impl ApplicableTelemetry {
    fn add(&mut self, telemetry: &Telemetry) {
        let spec = &telemetry.spec;
        self.metrics.extend(spec.metrics.iter().cloned());
        self.tracing.extend(spec.tracing.iter().cloned());
        if !spec.access_logging.is_empty() {
            self.logging.push(spec.access_logging.clone());
        }
    }
}

/// The Telemetry settings of a proxy; for waypoints, of one of the services behind them.
pub struct TelemetryFor;

impl Query for TelemetryFor {
    const NAME: &'static str = "telemetry_for";
    type Key = (PolicyTarget, Option<ServiceKey>);
    type Value = ApplicableTelemetry;

    fn run(ctx: &Ctx<'_>, (target, service): &Self::Key) -> ApplicableTelemetry {
        let mut found = ApplicableTelemetry::default();
        for (_, telemetry) in selected_telemetry(ctx, target, service.as_ref()) {
            found.add(&telemetry);
        }
        found
    }
}

/// The Telemetry objects that apply to a proxy, from the widest to the most specific.
pub(crate) fn selected_telemetry(
    ctx: &Ctx<'_>,
    target: &PolicyTarget,
    service: Option<&ServiceKey>,
) -> Vec<(Origin, Arc<Telemetry>)> {
    let settings = settings(ctx);
    let root = settings.root_namespace();
    let mut namespaces = vec![root];
    let mut own = &*target.namespace;
    if own != root {
        namespaces.push(own);
    }
    let service = service.filter(|_| target.is_waypoint);
    if let Some(key) = service.filter(|key| *key.namespace != *own) {
        own = &key.namespace;
        namespaces.push(own);
    }
    let wide = |namespace| in_namespace(ctx, namespace).into_iter().find(|(_, one)| is_wide(one));
    let mut found: Vec<_> = namespaces.into_iter().filter_map(wide).collect();
    let services = service.and_then(|key| ctx.get::<ServicesByHost>(&key.host).get(&*key.namespace).cloned());
    let subject = target.subject(ctx).with_services(services);
    let narrow = in_namespace(ctx, own).into_iter().filter(|(_, one)| !is_wide(one));
    found.extend(narrow.filter(|(origin, telemetry)| subject.is_targeted_by(&claim(origin, telemetry))));
    found
}

fn in_namespace(ctx: &Ctx<'_>, namespace: &str) -> Vec<(Origin, Arc<Telemetry>)> {
    let mut found =
        indexed_objects::<Telemetry>(ctx, &ObjectIndex::Namespace(Kind::Telemetry, namespace.into()));
    oldest_first(&mut found);
    found
}

/// Whether an object applies to its whole namespace.
fn is_wide(telemetry: &Telemetry) -> bool {
    let selector = telemetry.spec.selector.as_ref();
    selector.is_none_or(|selector| selector.match_labels.is_empty()) && targets(telemetry).is_empty()
}

fn claim<'a>(origin: &'a Origin, telemetry: &'a Telemetry) -> PolicyAttachment<'a> {
    PolicyAttachment {
        namespace: origin.namespace(),
        selector: telemetry.spec.selector.as_ref().map(|selector| &selector.match_labels),
        targets: targets(telemetry),
    }
}

/// The target references, including the deprecated single one.
fn targets(telemetry: &Telemetry) -> &[PolicyTargetReference] {
    match telemetry.spec.target_refs.as_slice() {
        [] => telemetry.spec.target_ref.as_slice(),
        several => several,
    }
}

fn names(providers: &[ProviderRef]) -> Vec<String> {
    providers.iter().map(|provider| provider.name.clone()).collect()
}
