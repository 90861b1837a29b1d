//! The addresses at which Ingresses are reached, for their statuses.

use std::sync::Arc;

use canopus_api::kube::{
    IngressStatus, LoadBalancerIngress, LoadBalancerStatus, Node, Pod, PodPhase, Service, ServiceType,
};
use canopus_api::{Kind, ObjectKey};
use canopus_base::labels::Labels;
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_runtime::flags::K8S_INGRESS_NS;

use super::{ServedIngress, selector};
use crate::world::{ObjectIndex, Origin, indexed_objects, object, settings};

/// The status that an Ingress should have; `None` if another controller serves it.
pub struct IngressStatusOf;

impl Query for IngressStatusOf {
    const NAME: &'static str = "ingress_status_of";
    type Key = Origin;
    type Value = Option<Arc<IngressStatus>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        if origin.cluster != settings(ctx).cluster {
            return None;
        }
        ctx.get::<ServedIngress>(origin).as_ref().as_ref()?;
        let ingress = ctx.get::<IngressAddresses>(&()).as_ref().clone();
        Some(Arc::new(IngressStatus { load_balancer: LoadBalancerStatus { ingress } }))
    }
}

/// Where the proxies that serve Ingresses are reached: at the Service that the mesh configuration names, or else at the
/// node of one of the proxies.
struct IngressAddresses;

impl Query for IngressAddresses {
    const NAME: &'static str = "ingress_addresses";
    type Key = ();
    type Value = Vec<LoadBalancerIngress>;

    fn run(ctx: &Ctx<'_>, (): &()) -> Self::Value {
        let settings = settings(ctx);
        let addresses = match settings.mesh.ingress_service.as_str() {
            "" => node_addresses(ctx),
            service => {
                let key = ObjectKey::new(Kind::Service, settings.flags.get(K8S_INGRESS_NS), service);
                let service = object::<Service>(ctx, &Origin::new(settings.cluster.clone(), key));
                service.map(|service| service_addresses(&service)).unwrap_or_default()
            }
        };
        let place = |address: Box<str>| match parse_ip(&address) {
            Ok(_) => LoadBalancerIngress { ip: address, ..Default::default() },
            Err(_) => LoadBalancerIngress { hostname: address, ..Default::default() },
        };
        let mut places: Vec<_> = addresses.into_iter().map(place).collect();
        places.sort_by(|a, b| (&a.hostname, &a.ip).cmp(&(&b.hostname, &b.ip)));
        places
    }
}

fn service_addresses(service: &Service) -> Vec<Box<str>> {
    if service.spec.r#type == ServiceType::ExternalName {
        return vec![service.spec.external_name.clone()];
    }
    let assigned = service.status.load_balancer.ingress.iter().map(|place| match &*place.ip {
        "" => place.hostname.clone(),
        _ => place.ip.clone(),
    });
    assigned.chain(service.spec.external_ips.iter().cloned()).collect()
}

/// The external addresses of the node of the first proxy that runs.
fn node_addresses(ctx: &Ctx<'_>) -> Vec<Box<str>> {
    let settings = settings(ctx);
    let selected: Labels = selector(&settings.mesh).into_iter().collect();
    let home = settings.flags.get(K8S_INGRESS_NS).into();
    let pods =
        indexed_objects::<Pod>(ctx, &ObjectIndex::InCluster(Kind::Pod, settings.cluster.clone(), home));
    for (_, pod) in pods.iter().filter(|(_, pod)| selected.selects(&pod.meta.labels)) {
        let node = ObjectKey::new(Kind::Node, "", &pod.spec.node_name);
        let node = object::<Node>(ctx, &Origin::new(settings.cluster.clone(), node));
        let Some(node) = node.filter(|_| pod.status.phase == PodPhase::Running) else { continue };
        let external = node.status.addresses.iter().filter(|address| &*address.r#type == "ExternalIP");
        let mut addresses: Vec<Box<str>> = external.map(|address| address.address.clone()).collect();
        addresses.retain(|address| !address.is_empty());
        addresses.dedup();
        return addresses;
    }
    Vec::new()
}
