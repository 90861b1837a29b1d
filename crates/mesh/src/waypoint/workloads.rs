//! Waypoints for traffic to workload addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::istio::{ServiceEntry, WorkloadEntry};
use canopus_api::kube::Pod;
use canopus_api::{Kind, Meta, ObjectKey, labels as known};
use canopus_base::labels::Labels;
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::PILOT_ENABLE_AMBIENT;
use jiff::Timestamp;

use super::unbound::Unbound;
use super::{
    Waypoint, WaypointAddress, WaypointLookup, WaypointRunner, Waypoints, addresses_of_proxy, inherited,
    primary,
};
use crate::workload::{EntryWorkload, PodWorkload};
use crate::world::{Origin, all_objects, namespace, object, settings};

/// How a pod or WorkloadEntry relates to waypoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaypointAttachment {
    /// The waypoint that it is an instance of.
    pub instance_of: Option<Arc<Waypoint>>,
    /// The waypoint that its traffic goes through.
    pub behind: Option<Arc<Waypoint>>,
    /// Why traffic does not go through a waypoint that is named.
    pub(super) unbound: Option<Unbound>,
}

/// How a pod or WorkloadEntry relates to waypoints.
pub struct WaypointAttachmentOf;

impl Query for WaypointAttachmentOf {
    const NAME: &'static str = "waypoint_of_workload";
    /// The object.
    type Key = Origin;
    type Value = WaypointAttachment;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> WaypointAttachment {
        let meta = match origin.key.kind {
            Kind::Pod => object::<Pod>(ctx, origin).map(|pod| pod.meta.clone()),
            Kind::WorkloadEntry => object::<WorkloadEntry>(ctx, origin).map(|entry| {
                let labels = ctx.get::<EntryWorkload>(origin).as_ref().as_ref().map(|one| one.labels.clone());
                Meta { labels: labels.unwrap_or_default(), ..entry.meta.clone() }
            }),
            _ => None,
        };
        meta.map(|meta| attachment(ctx, origin, &meta)).unwrap_or_default()
    }
}

/// The attachment of an endpoint that a ServiceEntry lists.
pub fn listed_endpoint_attachment(ctx: &Ctx<'_>, origin: &Origin, labels: &Labels) -> WaypointAttachment {
    attachment(ctx, origin, &Meta { labels: labels.clone(), ..Meta::default() })
}

fn attachment(ctx: &Ctx<'_>, origin: &Origin, meta: &Meta) -> WaypointAttachment {
    if !settings(ctx).flags.get(PILOT_ENABLE_AMBIENT) {
        return WaypointAttachment::default();
    }
    let gateway = meta.label(known::GATEWAY_NAME.name).filter(|name| !name.is_empty());
    let instance_of = gateway.and_then(|name| {
        let key = ObjectKey::new(Kind::KubernetesGateway, origin.namespace(), name);
        ctx.get::<Waypoints>(&Origin::new(origin.cluster.clone(), key)).as_ref().clone()
    });
    if instance_of.is_some() {
        return WaypointAttachment { instance_of, ..Default::default() };
    }
    let home = namespace(ctx, &origin.cluster, origin.namespace());
    let lookup = WaypointLookup { ctx, cluster: &origin.cluster, namespace: origin.namespace() };
    let wanted = inherited(primary(meta, origin.namespace()), home.as_deref(), origin.namespace());
    let (behind, unbound) = match lookup.find(wanted, home.as_deref()) {
        Ok(Some(waypoint)) if !waypoint.traffic.has_workloads() => {
            // A namespace's waypoint may be for services only, and is then no waypoint of its workloads.
            let is_own = meta.label(known::USE_WAYPOINT.name).is_some();
            let why = Unbound::UnsupportedTraffic(waypoint.resource_name(), "workload");
            (None, is_own.then_some(why))
        }
        Ok(behind) => (behind, None),
        Err(why) => (None, Some(why)),
    };
    WaypointAttachment { instance_of: None, behind, unbound }
}

/// A workload behind a waypoint: age and name to sort by, and its addresses.
type Attached = ((Option<Timestamp>, String), Vec<IpAddr>);

/// The workloads attached to each waypoint, by its address.
struct AttachedWorkloads;

impl Query for AttachedWorkloads {
    const NAME: &'static str = "attached_workloads";
    type Key = ();
    type Value = BTreeMap<WaypointAddress, Vec<Attached>>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let here = settings(ctx).cluster.clone();
        let mut attached = Self::Value::new();
        let mut add = |behind: Option<&Arc<Waypoint>>, age, name, ips: Vec<IpAddr>| {
            let Some(address) = behind.and_then(|waypoint| waypoint.address.clone()) else { return };
            attached.entry(address).or_default().push(((age, name), ips));
        };
        let parsed = |addresses: &[Arc<str>]| addresses.iter().filter_map(|one| parse_ip(one).ok()).collect();
        for (origin, pod) in all_objects::<Pod>(ctx).into_iter().filter(|(origin, _)| origin.cluster == here)
        {
            let attachment = ctx.get::<WaypointAttachmentOf>(&origin);
            let Some(workload) = ctx.get::<PodWorkload>(&origin).as_ref().clone() else { continue };
            let name = format!("{here}//Pod/{}/{}", origin.namespace(), origin.name());
            let age = pod.meta.creation_timestamp;
            add(attachment.behind.as_ref(), age, name, parsed(&workload.addresses));
        }
        for (origin, entry) in all_objects::<WorkloadEntry>(ctx) {
            let attachment = ctx.get::<WaypointAttachmentOf>(&origin);
            let name =
                format!("{here}/networking.istio.io/WorkloadEntry/{}/{}", origin.namespace(), origin.name());
            let address = parse_ip(&entry.spec.address).ok().into_iter().collect();
            add(attachment.behind.as_ref(), entry.meta.creation_timestamp, name, address);
        }
        for (origin, entry) in all_objects::<ServiceEntry>(ctx) {
            for listed in &entry.spec.endpoints {
                let labels = listed.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                let attachment = listed_endpoint_attachment(ctx, &origin, &labels);
                let name = format!(
                    "{here}/networking.istio.io/ServiceEntry/{}/{}/{}",
                    origin.namespace(),
                    origin.name(),
                    listed.address
                );
                let address = parse_ip(&listed.address).ok().into_iter().collect();
                add(attachment.behind.as_ref(), entry.meta.creation_timestamp, name, address);
            }
        }
        for workloads in attached.values_mut() {
            workloads.sort();
        }
        attached
    }
}

/// The addresses of the workloads behind a waypoint proxy, those of the oldest first; `None` if there are no such workloads.
/// East-west gateways have none.
pub struct WorkloadsBehind;

impl Query for WorkloadsBehind {
    const NAME: &'static str = "workloads_behind_waypoint";
    type Key = WaypointRunner;
    type Value = Option<Vec<IpAddr>>;

    fn run(ctx: &Ctx<'_>, waypoint: &WaypointRunner) -> Self::Value {
        if waypoint.is_east_west_gateway {
            return None;
        }
        let attached = ctx.get::<AttachedWorkloads>(&());
        let addresses = addresses_of_proxy(ctx, waypoint);
        let mut found: Vec<_> =
            addresses.iter().filter_map(|address| attached.get(address)).flatten().cloned().collect();
        found.sort();
        found.dedup();
        (!found.is_empty()).then(|| found.into_iter().flat_map(|(_, ips)| ips).collect())
    }
}
