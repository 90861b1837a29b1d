//! What the statuses of objects in an ambient mesh say: whether a waypoint is in front of them, and who enforces policies.

use canopus_api::gateway_api::{Gateway, GatewayClass};
use canopus_api::istio::{
    AuthorizationPolicy, RequestAuthentication, ServiceEntry, Telemetry, WasmPlugin, WorkloadEntry,
};
use canopus_api::kube::Service as KubeObject;
use canopus_api::{Kind, Meta, ObjectKey, annotations, labels as known};
use canopus_base::host;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::security::v1beta1::authorization_policy::Action;
use canopus_proto::istio::r#type::v1beta1::PolicyTargetReference;
use canopus_runtime::flags::{AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY, PILOT_ENABLE_AMBIENT};

use super::{ServiceWaypoints, WaypointAttachmentOf, Waypoints, bind_service, front};
use crate::authorization::{http_attributes, matches_connections};
use crate::service::{EntryVisibility, entry_visibility};
use crate::world::{Origin, namespace, object, settings};

/// The controller of waypoints' classes.
const WAYPOINT_CONTROLLER: &str = "istio.io/mesh-controller";

/// A condition that a status should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The type of the condition.
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
    /// The generation of the object that was looked at; 0 where conditions do not say it.
    pub generation: i64,
}

/// Who writes conditions, and which types of them are the writer's. Istio's names, so that what one control plane wrote
/// the other takes over.
const SERVICE: (&str, &[&str]) =
    ("istio-ambient-service", &["istio.io/WaypointBound", "istio.io/WaypointMissing", VISIBILITY]);
const WORKLOAD_ENTRY: (&str, &[&str]) = ("istio-ambient-workloadentry", &["istio.io/WaypointBound"]);
const ZTUNNEL_POLICY: (&str, &[&str]) = ("istio-ambient-ztunnel-policy", &["ZtunnelAccepted"]);
const WAYPOINT_POLICY: (&str, &[&str]) = ("istio-ambient-waypoint-policy", &["WaypointAccepted"]);

/// The condition with how far the mesh lets a ServiceEntry be seen.
const VISIBILITY: &str = "istio.io/VisibilityApplied";

/// The conditions of one writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterConditions {
    /// The field manager.
    pub manager: &'static str,
    /// The types that are the writer's, whether it has something to say or not.
    pub types: &'static [&'static str],
    /// Conditions that the writer sets.
    pub observations: Vec<Observation>,
}

/// The conditions that the status of a Service, ServiceEntry, WorkloadEntry or policy should have.
pub struct AmbientConditions;

impl Query for AmbientConditions {
    const NAME: &'static str = "ambient_conditions";
    /// The object.
    type Key = Origin;
    type Value = Vec<WriterConditions>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let settings = settings(ctx);
        if !settings.flags.get(PILOT_ENABLE_AMBIENT) || origin.cluster != settings.cluster {
            return Vec::new();
        }
        let by = |(manager, types), observations| vec![WriterConditions { manager, types, observations }];
        match origin.key.kind {
            Kind::Service => object::<KubeObject>(ctx, origin)
                .map(|object| by(SERVICE, bound(ctx, origin, &object.meta).into_iter().collect())),
            Kind::ServiceEntry => object::<ServiceEntry>(ctx, origin)
                .map(|entry| by(SERVICE, service_entry(ctx, origin, &entry))),
            Kind::WorkloadEntry => object::<WorkloadEntry>(ctx, origin)
                .map(|_| by(WORKLOAD_ENTRY, workload_entry(ctx, origin).into_iter().collect())),
            Kind::AuthorizationPolicy => object::<AuthorizationPolicy>(ctx, origin).map(|policy| {
                let ztunnel = accepted_by_ztunnel(ctx, &policy).into_iter().collect();
                let targets = Targets::new(&policy.spec.target_refs, policy.spec.target_ref.as_ref());
                let waypoint =
                    accepted_by_waypoint(ctx, origin, &policy.meta, &targets).into_iter().collect();
                let mut all = by(ZTUNNEL_POLICY, ztunnel);
                all.extend(by(WAYPOINT_POLICY, waypoint));
                all
            }),
            Kind::RequestAuthentication => object::<RequestAuthentication>(ctx, origin).map(|policy| {
                let targets = Targets::new(&policy.spec.target_refs, policy.spec.target_ref.as_ref());
                by(WAYPOINT_POLICY, attached_to_waypoint(ctx, origin, &policy.meta, targets))
            }),
            Kind::Telemetry => object::<Telemetry>(ctx, origin).map(|policy| {
                let targets = Targets::new(&policy.spec.target_refs, policy.spec.target_ref.as_ref());
                by(WAYPOINT_POLICY, attached_to_waypoint(ctx, origin, &policy.meta, targets))
            }),
            Kind::WasmPlugin => object::<WasmPlugin>(ctx, origin).map(|policy| {
                let targets = Targets::new(&policy.spec.target_refs, policy.spec.target_ref.as_ref());
                by(WAYPOINT_POLICY, attached_to_waypoint(ctx, origin, &policy.meta, targets))
            }),
            _ => None,
        }
        .unwrap_or_default()
    }
}

/// What a policy names as its targets.
struct Targets<'a>(Vec<&'a PolicyTargetReference>);

impl<'a> Targets<'a> {
    fn new(several: &'a [PolicyTargetReference], one: Option<&'a PolicyTargetReference>) -> Self {
        if several.is_empty() { Self(one.into_iter().collect()) } else { Self(several.iter().collect()) }
    }
}

/// Whether waypoints have a policy that ordinary gateways can be targets of as well: those say nothing here.
fn attached_to_waypoint(
    ctx: &Ctx<'_>,
    origin: &Origin,
    meta: &Meta,
    Targets(mut targets): Targets<'_>,
) -> Vec<Observation> {
    targets.retain(|target| {
        let key = ObjectKey::new(Kind::KubernetesGateway, target_namespace(origin, target), &target.name);
        let gateway = Origin::new(origin.cluster.clone(), key);
        target.kind != "Gateway"
            || ctx.get::<Waypoints>(&gateway).is_some()
            || object::<Gateway>(ctx, &gateway).is_none()
    });
    accepted_by_waypoint(ctx, origin, meta, &Targets(targets)).into_iter().collect()
}

fn waypoint_bound(holds: bool, reason: &'static str, message: String) -> Observation {
    Observation { kind: "istio.io/WaypointBound", holds, reason, message, generation: 0 }
}

/// Whether a Service or ServiceEntry is bound to a waypoint; `None` if it names none.
fn bound(ctx: &Ctx<'_>, origin: &Origin, meta: &Meta) -> Option<Observation> {
    let (ServiceWaypoints { primary, .. }, unbound) = bind_service(ctx, origin, meta);
    let Some(primary) = primary else {
        return unbound.map(|why| waypoint_bound(false, why.reason(), why.message()));
    };
    let mut message = format!("Successfully attached to waypoint {}", primary.resource_name());
    if front::takes_ingress(ctx, origin) {
        message.push_str(". Ingress traffic will traverse the waypoint");
    } else if has_ingress_label(ctx, origin, meta) {
        message.push_str(
            ". Ingress traffic is not using the waypoint, set the istio.io/ingress-use-waypoint label to true if desired.",
        );
    }
    if let Some(why) = unbound {
        message.push_str(". Canary waypoint not attached: ");
        message.push_str(&why.message());
    }
    Some(waypoint_bound(true, "WaypointAccepted", message))
}

fn has_ingress_label(ctx: &Ctx<'_>, origin: &Origin, meta: &Meta) -> bool {
    let has_label = |meta: &Meta| meta.label(known::INGRESS_USE_WAYPOINT.name).is_some();
    has_label(meta)
        || namespace(ctx, &origin.cluster, origin.namespace()).is_some_and(|home| has_label(&home.meta))
}

fn service_entry(ctx: &Ctx<'_>, origin: &Origin, entry: &ServiceEntry) -> Vec<Observation> {
    let mut observations = Vec::from_iter(bound(ctx, origin, &entry.meta));
    let is_bound = observations.iter().any(|observation| observation.holds);
    if !is_bound && entry.spec.hosts.iter().any(|name| host::is_wildcard(name)) {
        observations.push(Observation {
            kind: "istio.io/WaypointMissing",
            holds: true,
            reason: "NoWaypointForWildcardService",
            message: "ServiceEntry will not apply until it is bound to a valid waypoint.".to_owned(),
            generation: 0,
        });
    }
    observations.extend(visibility(ctx, origin));
    observations
}

/// How far a ServiceEntry is visible, if `serviceEntryVisibility` says something about it. Parity: the reason is the answer. Other
/// than with Istio, an entry that is visible nowhere has the condition too, so that its owner learns why it has no effect.
fn visibility(ctx: &Ctx<'_>, origin: &Origin) -> Option<Observation> {
    settings(ctx).mesh.service_entry_visibility.as_ref()?;
    let (reason, message) = match entry_visibility(ctx, origin) {
        EntryVisibility::Public => ("Public", "visible as far as exportTo says"),
        EntryVisibility::Namespace => ("Namespace", "visible in its own namespace only"),
        EntryVisibility::None => ("None", "visible nowhere"),
    };
    let message = format!("{message}, by serviceEntryVisibility of the mesh configuration");
    Some(Observation { kind: VISIBILITY, holds: true, reason, message, generation: 0 })
}

fn workload_entry(ctx: &Ctx<'_>, origin: &Origin) -> Option<Observation> {
    let attachment = ctx.get::<WaypointAttachmentOf>(origin);
    match (&attachment.behind, &attachment.unbound) {
        (Some(waypoint), _) => {
            let message = format!("Successfully attached to waypoint {}", waypoint.resource_name());
            Some(waypoint_bound(true, "WaypointAccepted", message))
        }
        (None, Some(why)) => Some(waypoint_bound(false, why.reason(), why.message())),
        (None, None) => None,
    }
}

/// Whether ztunnels enforce a policy; `None` if it is not for them.
fn accepted_by_ztunnel(ctx: &Ctx<'_>, policy: &AuthorizationPolicy) -> Option<Observation> {
    let accepted = |holds, reason, message| {
        let generation = policy.meta.generation;
        Some(Observation { kind: "ZtunnelAccepted", holds, reason, message, generation })
    };
    let annotation = policy.meta.annotation(annotations::DRY_RUN.name);
    let dry_run = matches!(annotation, Some("1" | "t" | "T" | "true" | "TRUE" | "True"));
    if dry_run && !settings(ctx).flags.get(AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY) {
        let message = format!(
            "found policy \"{}/{}\" using dry-run annotation, but support for ambient dry-run authorizationPolicies \
             isn't enabled",
            policy.meta.namespace, policy.meta.name
        );
        return accepted(false, UNSUPPORTED, message);
    }
    if policy.spec.target_ref.is_some() || !policy.spec.target_refs.is_empty() {
        return None;
    }
    let action = Action::try_from(policy.spec.action).unwrap_or_default();
    if !matches!(action, Action::Allow | Action::Deny) {
        let message = format!("ztunnel does not support the {} action", action.as_str_name());
        return accepted(false, UNSUPPORTED, message);
    }
    let rules = &policy.spec.rules;
    let mut attributes: Vec<&str> = rules.iter().flat_map(http_attributes).collect();
    attributes.sort_unstable();
    attributes.dedup();
    if attributes.is_empty() {
        return accepted(true, "Accepted", "attached to ztunnel".to_owned());
    }
    let consequence = match action {
        Action::Deny if !rules.iter().any(matches_connections) => {
            "After omitting unsupported HTTP attributes, this DENY policy has no enforceable rules at ztunnel and will \
             have no effect. Deploy a waypoint proxy and use a targetRef to enforce this policy."
        }
        Action::Deny => {
            "DENY policy with HTTP attributes is enforced without the HTTP rules. This will be more restrictive than \
             requested."
        }
        _ => {
            "Within an ALLOW policy, rules matching HTTP attributes are omitted. This will be more restrictive than \
             requested."
        }
    };
    let message = format!(
        "ztunnel does not support HTTP attributes (found: {}). In ambient mode you must use a waypoint proxy to enforce \
         HTTP rules. {consequence}",
        attributes.join(", ")
    );
    accepted(true, UNSUPPORTED, message)
}

const UNSUPPORTED: &str = "UnsupportedValue";
const NOT_FOUND: &str = "TargetNotFound";
const NOT_BOUND: &str = "AncestorNotBound";
const INVALID: &str = "Invalid";

/// Whether waypoints enforce a policy; `None` if it is not for them.
fn accepted_by_waypoint(
    ctx: &Ctx<'_>,
    origin: &Origin,
    meta: &Meta,
    Targets(targets): &Targets<'_>,
) -> Option<Observation> {
    let bindings: Vec<_> = targets.iter().map(|target| (*target, bind_target(ctx, origin, target))).collect();
    let accepted = |holds, reason, message| {
        let generation = meta.generation;
        Some(Observation { kind: "WaypointAccepted", holds, reason, message, generation })
    };
    match bindings.as_slice() {
        [] => None,
        [(_, Ok(waypoint))] => accepted(true, "Accepted", format!("bound to {waypoint}")),
        [(_, Err((reason, message)))] => accepted(false, *reason, message.clone()),
        many => {
            let unbound = many.iter().filter(|(_, binding)| binding.is_err());
            let unbound: Vec<_> = unbound.map(|(target, _)| ancestor(origin, target)).collect();
            let any_bound = unbound.len() < many.len();
            let reason = match (any_bound, unbound.is_empty()) {
                (true, true) => "Accepted",
                (true, false) => "PartiallyInvalid",
                (false, _) => INVALID,
            };
            let message = if unbound.is_empty() {
                String::new()
            } else {
                format!("Invalid targetRefs: {}", unbound.join(", "))
            };
            accepted(any_bound, reason, message)
        }
    }
}

fn target_namespace<'a>(origin: &'a Origin, target: &'a PolicyTargetReference) -> &'a str {
    if target.namespace.is_empty() { origin.namespace() } else { &target.namespace }
}

fn ancestor(origin: &Origin, target: &PolicyTargetReference) -> String {
    let group = if target.group.is_empty() { "core" } else { &target.group };
    format!("{}.{group}:{}/{}", target.kind, target_namespace(origin, target), target.name)
}

/// The waypoint that a target leads to, or reason and message why there is none.
fn bind_target(
    ctx: &Ctx<'_>,
    policy: &Origin,
    target: &PolicyTargetReference,
) -> Result<String, (&'static str, String)> {
    let namespace = target_namespace(policy, target);
    let key = format!("{namespace}/{}", target.name);
    let origin = |kind, namespace: &str| {
        Origin::new(policy.cluster.clone(), ObjectKey::new(kind, namespace, &target.name))
    };
    let of_service = |kind: Kind, meta: Option<Meta>| {
        let name = kind.info().kind;
        let Some(meta) = meta else { return Err((NOT_FOUND, format!("{name} {key} was not found"))) };
        match bind_service(ctx, &origin(kind, namespace), &meta).0.primary {
            Some(waypoint) => Ok(waypoint.resource_name()),
            None => Err((NOT_BOUND, format!("{name} {key} is not bound to a waypoint"))),
        }
    };
    match target.kind.as_str() {
        "GatewayClass" => {
            let root = settings(ctx).root_namespace().to_owned();
            if namespace != root {
                let message = format!(
                    "AuthorizationPolicy must be in the root namespace `{root}` when referencing a GatewayClass"
                );
                return Err((INVALID, message));
            }
            let class = object::<GatewayClass>(ctx, &origin(Kind::GatewayClass, ""));
            let class = class.ok_or((NOT_FOUND, "not bound".to_owned()))?;
            if &*class.spec.controller_name != WAYPOINT_CONTROLLER {
                let message =
                    format!("GatewayClass must use controller name `{WAYPOINT_CONTROLLER}` for waypoints");
                return Err((INVALID, message));
            }
            Ok(target.name.clone())
        }
        "Gateway" => match ctx.get::<Waypoints>(&origin(Kind::KubernetesGateway, namespace)).as_ref() {
            Some(waypoint) => Ok(waypoint.resource_name()),
            None => Err((NOT_FOUND, "not bound".to_owned())),
        },
        "Service" => {
            let object = object::<KubeObject>(ctx, &origin(Kind::Service, namespace));
            of_service(Kind::Service, object.map(|object| object.meta.clone()))
        }
        "ServiceEntry" => {
            let object = object::<ServiceEntry>(ctx, &origin(Kind::ServiceEntry, namespace));
            of_service(Kind::ServiceEntry, object.map(|object| object.meta.clone()))
        }
        _ => Err(("unknown", "not bound".to_owned())),
    }
}
