//! Services from Kubernetes Services.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::kube::{Namespace, Service as KubeObject, ServicePort, ServiceType};
use canopus_api::visibility::Visibility;
use canopus_api::{Kind, Meta, ObjectKey, annotations};
use canopus_base::protocol::Protocol;
use canopus_base::spiffe::Identity;
use canopus_engine::EagerCtx;

use super::{KubeService, NO_ADDRESS, Port, Registry, Resolution, Service, ServiceKey, TrafficDistribution};
use crate::world::{Origin, object, settings};

/// Converts the Service of one cluster.
pub(super) fn convert(ctx: &EagerCtx<'_>, origin: &Origin, object: &KubeObject) -> Service {
    let settings = settings(ctx);
    let (meta, spec) = (&object.meta, &object.spec);
    let external_name = (spec.r#type == ServiceType::ExternalName && !spec.external_name.is_empty())
        .then(|| Arc::from(&*spec.external_name));
    let resolution = match (spec.is_headless(), &external_name) {
        (true, _) => Resolution::Passthrough,
        (false, Some(_)) => Resolution::Alias,
        (false, None) => Resolution::Listed,
    };
    let addresses = addresses(object);
    Service {
        host: format!("{}.{}.svc.{}", meta.name, meta.namespace, settings.domain).into(),
        name: Arc::from(&*meta.name),
        namespace: Arc::from(&*meta.namespace),
        ports: spec.ports.iter().map(port).collect(),
        resolution,
        external: external_name.is_some(),
        registry: Registry::Kubernetes,
        created: meta.creation_timestamp,
        labels: meta.labels.clone(),
        export_to: Visibility::parse_annotation(
            meta.annotation(annotations::EXPORT_TO.name).unwrap_or_default(),
        ),
        address: addresses[0].clone(),
        cluster_addresses: BTreeMap::from([(origin.cluster.clone(), addresses)]),
        allocated_v4: None,
        allocated_v6: None,
        service_accounts: service_accounts(meta, settings.trust_domain()),
        selector: spec.selector.clone(),
        traffic_distribution: traffic_distribution(ctx, origin, spec.traffic_distribution.as_deref(), meta),
        kube: Some(KubeService {
            kind: spec.r#type.as_str().into(),
            external_name,
            node_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            publish_not_ready: spec.publish_not_ready_addresses,
            headless: spec.is_headless(),
            external_addresses: by_cluster(origin, external_addresses(object)),
            node_ports: by_cluster(origin, node_ports(object)),
        }),
        passthrough_target_ports: BTreeMap::new(),
        races_connections: false,
        aliases: Vec::new(),
        origins: vec![origin.clone()],
    }
}

fn by_cluster<T: Default + PartialEq>(origin: &Origin, value: T) -> BTreeMap<Arc<str>, T> {
    if value == T::default() { BTreeMap::new() } else { BTreeMap::from([(origin.cluster.clone(), value)]) }
}

fn port(port: &ServicePort) -> Port {
    let number = u32::from(port.port);
    Port {
        number,
        name: Arc::from(&*port.name),
        protocol: Protocol::from_port(
            number,
            &port.name,
            port.protocol.as_str(),
            port.app_protocol.as_deref(),
        ),
    }
}

/// The cluster IPs; never empty.
fn addresses(object: &KubeObject) -> Vec<String> {
    let spec = &object.spec;
    if spec.is_headless() || spec.cluster_ip.is_empty() {
        vec![NO_ADDRESS.to_owned()]
    } else if spec.cluster_ips.len() > 1 {
        spec.cluster_ips.iter().map(ToString::to_string).collect()
    } else {
        vec![spec.cluster_ip.to_string()]
    }
}

/// Additional identities of endpoints, from two annotations.
fn service_accounts(meta: &Meta, trust_domain: &str) -> Vec<String> {
    let list = |annotation| {
        let text = meta.annotation(annotation).unwrap_or_default();
        (!text.is_empty()).then(|| text.split(',')).into_iter().flatten()
    };
    let canonical = list(annotations::CANONICAL_SERVICE_ACCOUNTS.name).map(str::to_owned);
    let kubernetes = list(annotations::KUBERNETES_SERVICE_ACCOUNTS.name)
        .filter_map(|account| Identity::new(trust_domain, &meta.namespace, account).ok())
        .map(|identity| identity.to_string());
    canonical.chain(kubernetes).collect()
}

fn external_addresses(object: &KubeObject) -> Vec<String> {
    let mut found = Vec::new();
    if object.spec.r#type == ServiceType::LoadBalancer {
        for ingress in &object.status.load_balancer.ingress {
            let address = if ingress.ip.is_empty() { &ingress.hostname } else { &ingress.ip };
            if !address.is_empty() {
                found.push(address.to_string());
            }
        }
    }
    found.extend(object.spec.external_ips.iter().map(ToString::to_string));
    found
}

/// Node ports are used only for a Service that selects nodes by annotation.
fn node_ports(object: &KubeObject) -> BTreeMap<u32, u32> {
    let chosen = object.meta.annotation(annotations::NODE_SELECTOR.name).is_some();
    if object.spec.r#type != ServiceType::NodePort || !chosen {
        return BTreeMap::new();
    }
    object.spec.ports.iter().map(|port| (port.port.into(), port.node_port.into())).collect()
}

/// Reads the traffic distribution: the field wins, then the annotation of the object, then that of its namespace.
pub(super) fn traffic_distribution(
    ctx: &EagerCtx<'_>,
    origin: &Origin,
    field: Option<&str>,
    meta: &Meta,
) -> TrafficDistribution {
    match field {
        Some("PreferSameZone" | "PreferClose") => return TrafficDistribution::PreferSameZone,
        Some("PreferSameNode") => return TrafficDistribution::PreferSameNode,
        _ => {}
    }
    let annotated = |meta: &Meta| {
        let text = meta.annotation(annotations::TRAFFIC_DISTRIBUTION.name).filter(|text| !text.is_empty())?;
        Some(match text.to_ascii_lowercase().as_str() {
            "prefersamezone" | "preferclose" => TrafficDistribution::PreferSameZone,
            "prefersamenode" => TrafficDistribution::PreferSameNode,
            _ => TrafficDistribution::Any,
        })
    };
    let namespace = || {
        let key = ObjectKey::new(Kind::Namespace, "", &meta.namespace);
        object::<Namespace>(ctx, &Origin::new(origin.cluster.clone(), key))
    };
    annotated(meta).or_else(|| annotated(&namespace()?.meta)).unwrap_or_default()
}

/// Merges the services of several clusters. The first decides everything but addresses and accounts.
pub(super) fn merge(services: impl IntoIterator<Item = Arc<Service>>) -> Option<Arc<Service>> {
    let mut services = services.into_iter();
    let mut merged = services.next()?;
    for other in services {
        let into = Arc::make_mut(&mut merged);
        for (cluster, addresses) in &other.cluster_addresses {
            into.cluster_addresses.entry(cluster.clone()).or_insert_with(|| addresses.clone());
        }
        for account in &other.service_accounts {
            if !into.service_accounts.contains(account) {
                into.service_accounts.push(account.clone());
            }
        }
        if let (Some(into), Some(other)) = (&mut into.kube, &other.kube) {
            into.external_addresses.extend(other.external_addresses.clone());
            into.node_ports.extend(other.node_ports.clone());
        }
        into.origins.extend(other.origins.iter().cloned());
    }
    Some(merged)
}

/// Resolves `ExternalName` Services to the hosts they are aliases of, through other aliases. Loops are dropped.
pub(super) fn aliases(services: &[Arc<Service>]) -> BTreeMap<Arc<str>, Vec<ServiceKey>> {
    let target_of = |service: &Service| service.kube.as_ref()?.external_name.clone();
    let targets: BTreeMap<ServiceKey, Arc<str>> = services
        .iter()
        .filter(|service| service.resolution == Resolution::Alias)
        .filter_map(|service| Some((service.key(), target_of(service)?)))
        .collect();
    // An alias names a host without a namespace.
    let by_host: BTreeMap<&str, &Arc<str>> = targets.iter().map(|(key, to)| (&*key.host, to)).collect();
    let mut aliases: BTreeMap<Arc<str>, Vec<ServiceKey>> = BTreeMap::new();
    for (alias, target) in &targets {
        let mut seen = BTreeSet::from([&*alias.host, &**target]);
        let mut end = Some(target);
        while let Some(next) = end.and_then(|at| by_host.get(&**at)) {
            end = seen.insert(next).then_some(*next);
        }
        if let Some(end) = end {
            aliases.entry(end.clone()).or_default().push(alias.clone());
        }
    }
    for of_one in aliases.values_mut() {
        of_one.sort_by(|a, b| (&a.namespace, &a.host).cmp(&(&b.namespace, &b.host)));
    }
    aliases
}
