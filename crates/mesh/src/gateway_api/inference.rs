//! InferencePools: their statuses, and the Services that stand for them.
//!
//! A pool has no address, so routes lead to a headless Service that selects its pods (its shadow Service). The labels of that
//! Service say which endpoint picker to ask, so that generation needs to know nothing of pools: [`EndpointPicker::of`] reads
//! them, and [`LeadsToPool`] tells which gateways ask pickers at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::gateway_api::{GROUP, Gateway, RouteParentStatus};
use canopus_api::inference::{FailureMode, InferencePool, InferencePoolStatus, PoolParent, PoolParentStatus};
use canopus_api::value::ConditionStatus;
use canopus_api::{Kind, ObjectKey, annotations, labels};
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::ENABLE_GATEWAY_API_INFERENCE_EXTENSION;
use sha2::{Digest, Sha256};

use super::class::Class;
use super::cluster_objects::ClusterObjects;
use super::condition::Conditions;
use super::fault::Fault;
use super::route::RouteOf;
use crate::service::Service;
use crate::world::{ObjectIndex, Objects, Origin};

/// The number of the first port of a shadow Service. Nobody connects to it: the endpoint picker names endpoints.
const FIRST_PORT: u16 = 54321;

/// A Gateway: namespace and name.
type Parent = (Box<str>, Box<str>);

/// The Service that stands for an InferencePool.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadowService {
    /// Name of the service.
    pub name: String,
    /// Labels of the service.
    pub labels: BTreeMap<&'static str, String>,
    /// The ports: numbers, and the ports of the pods they lead to.
    pub ports: Vec<(u16, u16)>,
    /// The pool.
    pub pool: Arc<InferencePool>,
}

/// The label with the name of the pool that a shadow Service stands for.
pub const POOL_NAME: &str = labels::INFERENCE_POOL_NAME.name;

/// The label of shadow Services, and its value.
const SEMANTICS: (&str, &str) = (annotations::INTERNAL_SERVICE_SEMANTICS.name, "inferencepool");

/// The server that chooses which endpoint of a pool takes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPicker {
    /// The host of its Service.
    pub host: String,
    /// The port of its Service.
    pub port: u32,
    /// Whether requests go to any endpoint while it does not answer. Otherwise they fail.
    pub fails_open: bool,
}

impl EndpointPicker {
    /// The picker that the labels of a shadow Service name; `None` for other services.
    pub fn of(service: &Service) -> Option<Self> {
        if !is_inference_pool(service) {
            return None;
        }
        let label =
            |key: canopus_api::catalogue::Key| service.labels.get(key.name).filter(|value| !value.is_empty());
        // The picker is in the namespace of the pool, so the hosts differ in their first label alone.
        let parent = service.host.strip_prefix(&*service.name)?;
        Some(Self {
            host: format!("{}{parent}", label(labels::INFERENCE_POOL_EXTENSION_SERVICE)?),
            port: label(labels::INFERENCE_POOL_EXTENSION_PORT)?.parse().ok()?,
            fails_open: label(labels::INFERENCE_POOL_FAILURE_MODE)? == FailureMode::FailOpen.as_str(),
        })
    }
}

/// Whether a service is the shadow Service of a pool.
///
/// All ports of a shadow Service lead to the same pods, so clusters are made for the first one only and hold the endpoints of all.
pub fn is_inference_pool(service: &Service) -> bool {
    service.labels.get(SEMANTICS.0) == Some(SEMANTICS.1)
}

/// Whether a Gateway has a route to some InferencePool, so that its proxies ask endpoint pickers.
pub struct LeadsToPool;

impl Query for LeadsToPool {
    const NAME: &'static str = "gateway_leads_to_pool";
    /// Namespace and name of the Gateway.
    type Key = (Arc<str>, Arc<str>);
    type Value = bool;

    fn run(ctx: &Ctx<'_>, (namespace, name): &Self::Key) -> bool {
        ctx.get::<GatewaysWithPools>(&()).contains(&((&**namespace).into(), (&**name).into()))
    }
}

/// The Gateways with a route to some InferencePool.
struct GatewaysWithPools;

impl Query for GatewaysWithPools {
    const NAME: &'static str = "gateways_with_pools";
    type Key = ();
    type Value = BTreeSet<Parent>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let cluster = ClusterObjects::new(ctx);
        if !cluster.settings.flags.get(ENABLE_GATEWAY_API_INFERENCE_EXTENSION) {
            return BTreeSet::new();
        }
        let pools = ctx.members::<Objects>(&ObjectIndex::Kind(Kind::InferencePool)).to_vec();
        let ours = pools.iter().filter(|pool| pool.cluster == cluster.settings.cluster);
        ours.flat_map(|pool| parents(&cluster, pool).into_keys()).collect()
    }
}

/// The shadow Service of an InferencePool; `None` while no gateway of ours has a route to the pool.
pub struct ShadowServiceOf;

impl Query for ShadowServiceOf {
    const NAME: &'static str = "shadow_service_of";
    type Key = Origin;
    type Value = Option<Arc<ShadowService>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let cluster = ClusterObjects::new(ctx);
        if !cluster.settings.flags.get(ENABLE_GATEWAY_API_INFERENCE_EXTENSION)
            || origin.cluster != cluster.settings.cluster
        {
            return None;
        }
        let pool = cluster.object::<InferencePool>(origin.namespace(), origin.name())?;
        let picker = &pool.spec.endpoint_picker_ref;
        let picker_port = picker.port.as_ref()?.number;
        if parents(&cluster, origin).is_empty() {
            return None;
        }
        let labels = BTreeMap::from([
            (POOL_NAME, pool.meta.name.to_string()),
            (labels::INFERENCE_POOL_EXTENSION_SERVICE.name, picker.name.to_string()),
            (labels::INFERENCE_POOL_EXTENSION_PORT.name, picker_port.to_string()),
            (labels::INFERENCE_POOL_FAILURE_MODE.name, picker.failure_mode.as_str().to_owned()),
            (SEMANTICS.0, SEMANTICS.1.to_owned()),
        ]);
        let ports =
            pool.spec.target_ports.iter().zip(FIRST_PORT..).map(|(port, number)| (number, port.number));
        let ports = ports.collect();
        Some(Arc::new(ShadowService { name: shadow_service_name(&pool.meta.name), labels, ports, pool }))
    }
}

/// The name of a pool's shadow Service, within the length limit of Service names.
pub(super) fn shadow_service_name(pool: &str) -> String {
    const LONGEST: usize = 63;
    const SEPARATOR: &str = "-ip-";
    let digest = Sha256::digest(pool.as_bytes());
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let room = LONGEST - SEPARATOR.len() - hash.len();
    let end = pool.floor_char_boundary(room);
    format!("{}{SEPARATOR}{hash}", &pool[..end])
}

/// The gateways of ours with a route to a pool, each with the route's condition `Accepted`: whether it holds, and the route
/// and the message if it does not.
fn parents(cluster: &ClusterObjects<'_>, pool: &Origin) -> BTreeMap<Parent, Result<(), String>> {
    let mut found = BTreeMap::new();
    let routes = cluster.referrers(&pool.key).into_iter().filter(|origin| origin.key.kind == Kind::HttpRoute);
    for route in routes {
        for parent in &cluster.ctx.get::<RouteOf>(&route).parents {
            if Class::made_by(&parent.controller_name, &cluster.settings.flags).is_none() {
                continue;
            }
            let reference = &parent.parent_ref;
            let namespace = reference.namespace.as_deref().unwrap_or(route.namespace());
            let key = (namespace.into(), reference.name.clone());
            let accepted = is_accepted(parent).map_err(|message| {
                format!(
                    "Referenced HTTPRoute {}/{} not accepted by Gateway {namespace}/{}: {message}",
                    route.namespace(),
                    route.name(),
                    reference.name
                )
            });
            found.entry(key).or_insert(accepted);
        }
    }
    found
}

fn is_accepted(parent: &RouteParentStatus) -> Result<(), String> {
    let condition = parent.conditions.iter().find(|condition| &*condition.r#type == "Accepted");
    match condition {
        Some(condition) if condition.status != ConditionStatus::True => Err(condition.message.to_string()),
        _ => Ok(()),
    }
}

/// The status of a pool.
pub(super) fn status(
    cluster: &ClusterObjects<'_>,
    origin: &Origin,
    pool: &InferencePool,
) -> InferencePoolStatus {
    let parents = parents(cluster, origin);
    let ours: BTreeSet<&Parent> = parents.keys().collect();
    let key_of = |parent: &PoolParent| -> Parent {
        let namespace = parent.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        (namespace.unwrap_or(origin.namespace()).into(), parent.name.clone())
    };
    let is_foreign = |parent: &&PoolParentStatus| {
        let key = key_of(&parent.parent_ref);
        let is_placeholder = &*parent.parent_ref.kind == "Status" && &*parent.parent_ref.name == "default";
        !ours.contains(&key) && !is_placeholder && !is_our_gateway(cluster, &key)
    };
    let mut all: Vec<PoolParentStatus> = pool.status.parents.iter().filter(is_foreign).cloned().collect();
    for (key, accepted) in &parents {
        let present = pool.status.parents.iter().find(|parent| key_of(&parent.parent_ref) == *key);
        let present = present.map_or(&[][..], |parent| parent.conditions.as_slice());
        let mut conditions = Conditions::default();
        conditions.expect(
            "Accepted",
            "Accepted",
            "Referenced by an HTTPRoute accepted by the parentRef Gateway",
        );
        if let Err(message) = accepted {
            conditions.fail("Accepted", &Fault::new("HTTPRouteNotAccepted", message.clone()));
        }
        conditions.expect("ResolvedRefs", "ResolvedRefs", "Referenced ExtensionRef resolved successfully");
        if let Some(message) = unresolved_picker(cluster, pool) {
            conditions.fail("ResolvedRefs", &Fault::new("InvalidExtensionRef", message));
        }
        all.push(PoolParentStatus {
            parent_ref: PoolParent {
                group: GROUP.into(),
                kind: "Gateway".into(),
                namespace: Some(key.0.clone()),
                name: key.1.clone(),
            },
            controller_name: None,
            conditions: conditions.write(pool.meta.generation, present),
        });
    }
    InferencePoolStatus { parents: all }
}

/// Whether a gateway is of a class of ours, so that an entry for it was written by us before.
fn is_our_gateway(cluster: &ClusterObjects<'_>, (namespace, name): &Parent) -> bool {
    let gateway = cluster.object::<Gateway>(namespace, name);
    gateway.is_some_and(|gateway| Class::named(cluster, &gateway.spec.gateway_class_name).is_some())
}

/// Why the endpoint picker of a pool cannot be asked.
fn unresolved_picker(cluster: &ClusterObjects<'_>, pool: &InferencePool) -> Option<String> {
    let picker = &pool.spec.endpoint_picker_ref;
    if !picker.kind.is_empty() && &*picker.kind != "Service" {
        return Some(format!("Unsupported ExtensionRef kind {}", picker.kind));
    }
    if picker.name.is_empty() {
        return Some("ExtensionRef not defined".to_owned());
    }
    let key = ObjectKey::new(Kind::Service, &pool.meta.namespace, &picker.name);
    let exists = cluster.exists(key.kind, &key.namespace, &key.name);
    (!exists).then(|| format!("Referenced ExtensionRef not found {}", picker.name))
}
