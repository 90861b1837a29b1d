//! Objects as they were read, and policies by namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::istio::{AuthorizationPolicy, Telemetry};
use canopus_api::{Kind, Object, Typed};
use canopus_engine::{Ctx, Query, QueryError};
use canopus_mesh::attachment::PolicyAttachment;
use canopus_mesh::audience::View;
use canopus_mesh::audience::{SelectingKind, policy_target};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::telemetry::TelemetryFor;
use canopus_mesh::world::{
    ObjectIndex, Objects, Origin, all_objects, indexed_objects, oldest_first, qualified_host, settings,
};
use canopus_proto::istio::telemetry::v1alpha1::Telemetry as TelemetrySpec;
use canopus_proto::json;
use serde_json::{Map, Value, json};

use super::{Answer, Debug, Question};
use crate::served_config::is_configuration;

impl Debug {
    /// All configuration objects, as a cluster would show them.
    pub(super) fn configz(&self, question: &Question) -> Result<Answer, QueryError> {
        let world = self.engine().snapshot();
        let settings = self.settings();
        let mut all = Vec::new();
        for kind in configuration_kinds() {
            for origin in world.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
                let object = world.read::<Objects>(origin);
                all.extend(object.map(|object| object_json(&object, &settings.domain)));
            }
        }
        Ok(Answer::json(question, &Value::from(all)))
    }

    /// The kinds of objects that are read.
    pub(super) fn resourcesz(&self, question: &Question) -> Result<Answer, QueryError> {
        let kinds = configuration_kinds().map(|kind| {
            let info = kind.info();
            json!({"group": info.group, "version": info.version(), "kind": info.kind})
        });
        Ok(Answer::json(question, &kinds.collect()))
    }

    /// AuthorizationPolicies by namespace.
    pub(super) fn authorizationz(&self, question: &Question) -> Result<Answer, QueryError> {
        let policies = self.engine().get::<PoliciesByNamespace>(&())?;
        Ok(Answer::json(question, &json!({ "authorization_policies": *policies })))
    }

    /// Telemetry objects by namespace, or what they say together about a proxy.
    pub(super) fn telemetryz(&self, question: &Question) -> Result<Answer, QueryError> {
        let client = match self.optional_client(question) {
            Ok(client) => client,
            Err(answer) => return Ok(answer),
        };
        let Some(client) = client else {
            let all = self.engine().get::<TelemetriesByNamespace>(&())?;
            return Ok(Answer::json(question, &json!({ "telemetries": *all })));
        };
        let applicable = self.engine().get::<ApplicableTelemetries>(&client.proxy)?;
        Ok(Answer::json(question, &applicable))
    }
}

/// The kinds users configure the mesh with.
fn configuration_kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| is_configuration(*kind))
}

/// An object as a cluster would show it.
///
/// Parity: the host of a DestinationRule is a full name, whatever was written.
pub(super) fn object_json(object: &Object, domain: &str) -> Value {
    let mut node = object.to_node().to_json();
    if let Object::DestinationRule(rule) = object {
        let host = qualified_host(&rule.spec.host, &rule.meta.namespace, domain);
        if let Some(written) = node.pointer_mut("/spec/host") {
            *written = Value::from(host);
        }
    }
    node
}

/// The policies of all namespaces, oldest first.
pub(super) struct PoliciesByNamespace;

impl Query for PoliciesByNamespace {
    const NAME: &'static str = "debug_authorization_policies";
    type Key = ();
    type Value = Value;

    fn run(ctx: &Ctx<'_>, (): &()) -> Value {
        let policies = by_namespace::<AuthorizationPolicy>(ctx, |origin, policy| {
            let annotations: Map<String, Value> = policy
                .meta
                .annotations
                .iter()
                .map(|(key, text)| (key.to_owned(), Value::from(text)))
                .collect();
            json!({
                "name": origin.name(),
                "namespace": origin.namespace(),
                "annotations": if annotations.is_empty() { Value::Null } else { Value::Object(annotations) },
                "spec": json::write(&policy.spec).to_json(),
            })
        });
        json!({ "namespace_to_policies": policies, "root_namespace": settings(ctx).root_namespace() })
    }
}

/// The Telemetry objects of all namespaces, oldest first.
struct TelemetriesByNamespace;

impl Query for TelemetriesByNamespace {
    const NAME: &'static str = "debug_telemetries";
    type Key = ();
    type Value = Value;

    fn run(ctx: &Ctx<'_>, (): &()) -> Value {
        let telemetries = by_namespace::<Telemetry>(ctx, |origin, telemetry| {
            let spec = json::write(&telemetry.spec).to_json();
            json!({"name": origin.name(), "namespace": origin.namespace(), "spec": spec})
        });
        json!({ "namespace_to_telemetries": telemetries, "root_namespace": settings(ctx).root_namespace() })
    }
}

fn by_namespace<T: Typed>(
    ctx: &Ctx<'_>,
    shown: impl Fn(&Origin, &T) -> Value,
) -> BTreeMap<String, Vec<Value>> {
    let mut objects = all_objects::<T>(ctx);
    oldest_first(&mut objects);
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (origin, object) in &objects {
        all.entry(origin.namespace().to_owned()).or_default().push(shown(origin, object));
    }
    all
}

/// What Telemetry objects say together about a proxy, and which objects do.
struct ApplicableTelemetries;

impl Query for ApplicableTelemetries {
    const NAME: &'static str = "debug_applicable_telemetries";
    type Key = Proxy;
    type Value = Value;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Value {
        let target = policy_target(ctx, &View::new(ctx, proxy), &[SelectingKind::Telemetry]);
        let settings = settings(ctx);
        let root = settings.root_namespace();
        let found = ctx.get::<TelemetryFor>(&(target.clone(), None));
        let wide =
            |namespace: &str| in_namespace(ctx, namespace).into_iter().find(|(_, one)| is_wide(&one.spec));
        let of_root = wide(root);
        let of_namespace = if *target.namespace == *root { None } else { wide(&target.namespace) };
        let subject = target.subject(ctx);
        let own = in_namespace(ctx, &target.namespace)
            .into_iter()
            .rfind(|(origin, one)| !is_wide(&one.spec) && subject.is_targeted_by(&claim(origin, &one.spec)));
        let mut logging = Vec::new();
        for (level, one) in [("Root", &of_root), ("Proxy", &of_namespace), ("Workload", &own)] {
            let Some((origin, one)) = one.as_ref().filter(|(_, one)| !one.spec.access_logging.is_empty())
            else {
                continue;
            };
            // Parity: which object of the namespace it was is not said.
            let mut entry = levels(|of| (of == level && level != "Proxy").then_some(origin));
            entry.insert(
                "Logging".to_owned(),
                one.spec.access_logging.iter().map(|l| json::write(l).to_json()).collect(),
            );
            logging.push(Value::Object(entry));
        }
        let mut all = levels(|level| match level {
            "Root" => of_root.as_ref().map(|(origin, _)| origin),
            "Proxy" => of_namespace.as_ref().map(|(origin, _)| origin),
            "Workload" => own.as_ref().map(|(origin, _)| origin),
            _ => None,
        });
        all.insert(
            "Metrics".to_owned(),
            found.metrics.iter().map(|one| json::write(one).to_json()).collect(),
        );
        all.insert("Logging".to_owned(), Value::from(logging));
        all.insert(
            "Tracing".to_owned(),
            found.tracing.iter().map(|one| json::write(one).to_json()).collect(),
        );
        Value::Object(all)
    }
}

/// Which object speaks at each level.
fn levels<'a>(of: impl Fn(&str) -> Option<&'a Origin>) -> Map<String, Value> {
    let named = |level: &str| {
        let origin = of(level);
        let (namespace, name) = origin.map_or(("", ""), |origin| (origin.namespace(), origin.name()));
        json!({"Namespace": namespace, "Name": name})
    };
    ["Root", "Proxy", "Namespace", "Workload"]
        .iter()
        .map(|level| ((*level).to_owned(), named(level)))
        .collect()
}

fn in_namespace(ctx: &Ctx<'_>, namespace: &str) -> Vec<(Origin, Arc<Telemetry>)> {
    let mut found =
        indexed_objects::<Telemetry>(ctx, &ObjectIndex::Namespace(Kind::Telemetry, namespace.into()));
    oldest_first(&mut found);
    found
}

fn is_wide(spec: &TelemetrySpec) -> bool {
    let selector = spec.selector.as_ref().is_none_or(|selector| selector.match_labels.is_empty());
    selector && spec.target_refs.is_empty() && spec.target_ref.is_none()
}

fn claim<'a>(origin: &'a Origin, spec: &'a TelemetrySpec) -> PolicyAttachment<'a> {
    let targets = match spec.target_refs.as_slice() {
        [] => spec.target_ref.as_slice(),
        several => several,
    };
    let selector = spec.selector.as_ref().map(|selector| &selector.match_labels);
    PolicyAttachment { namespace: origin.namespace(), selector, targets }
}
