//! Services and endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::labels::TOPOLOGY_NETWORK;
use canopus_engine::{Engine, QueryError};
use canopus_mesh::endpoint::{Endpoint, Endpoints, Health};
use canopus_mesh::service::{AllServices, Registry, Resolution, Service, TrafficDistribution};
use canopus_mesh::world::Objects;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Answer, Debug, Question};

impl Debug {
    /// All services.
    pub(super) fn registryz(&self, question: &Question) -> Result<Answer, QueryError> {
        let services = self.engine().get::<AllServices>(&())?;
        let all: Vec<Value> = services.iter().map(|service| service_json(self.engine(), service)).collect();
        Ok(Answer::json(question, &Value::from(all)))
    }

    /// All endpoints, by host, namespace and registry.
    pub(super) fn endpoint_shardz(&self, question: &Question) -> Result<Answer, QueryError> {
        let mut hosts: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Value>> = BTreeMap::new();
        for service in self.engine().get::<AllServices>(&())?.iter() {
            let endpoints = self.engine().get::<Endpoints>(&service.key())?;
            if !endpoints.is_empty() {
                let namespaces = hosts.entry(service.host.clone()).or_default();
                namespaces.insert(service.namespace.clone(), shards_json(&endpoints));
            }
        }
        let all: Map<String, Value> = hosts
            .into_iter()
            .map(|(host, namespaces)| {
                let namespaces = namespaces.into_iter().map(|(name, shards)| (name.to_string(), shards));
                (host.to_string(), namespaces.collect())
            })
            .collect();
        Ok(Answer::json(question, &Value::Object(all)))
    }
}

/// The name of a registry.
fn registry_name(registry: Registry) -> &'static str {
    match registry {
        Registry::External => "External",
        Registry::Kubernetes => "Kubernetes",
    }
}

/// A time as Istio writes it, where none is the beginning of its calendar.
pub(super) fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), |time| time.to_string())
}

/// A map of texts; none of them is written as null.
fn texts<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let map: Map<String, Value> = pairs.map(|(key, text)| (key.to_owned(), Value::from(text))).collect();
    or_null(map)
}

fn or_null(map: Map<String, Value>) -> Value {
    if map.is_empty() { Value::Null } else { Value::Object(map) }
}

fn addresses_json(addresses: &BTreeMap<Arc<str>, Vec<String>>) -> Value {
    let map =
        addresses.iter().map(|(cluster, addresses)| (cluster.to_string(), Value::from(addresses.clone())));
    json!({ "Addresses": or_null(map.collect()) })
}

/// A service as Istio shows it.
pub(super) fn service_json(engine: &Engine, service: &Service) -> Value {
    let mut all = Map::new();
    let ports: Vec<Value> = service
        .ports
        .iter()
        .map(|port| json!({"name": &*port.name, "port": port.number, "protocol": port.protocol.to_string()}))
        .collect();
    let created = time(service.created);
    let fixed = json!({
        "Attributes": attributes_json(service),
        "creationTime": created,
        "hostname": &*service.host,
        "clusterVIPs": addresses_json(&cluster_addresses(service)),
        "Resolution": resolution_number(service.resolution),
        "MeshExternal": service.external,
        "ResourceVersion": resource_version(engine, service),
    });
    if let Value::Object(fixed) = fixed {
        all.extend(fixed);
    }
    let optional = [
        ("ports", Value::from(ports)),
        ("serviceAccounts", Value::from(service.service_accounts.clone())),
        ("defaultAddress", Value::from(service.address.as_str())),
        ("autoAllocatedIPv4Address", Value::from(service.allocated_v4.as_deref().unwrap_or_default())),
        ("autoAllocatedIPv6Address", Value::from(service.allocated_v6.as_deref().unwrap_or_default())),
    ];
    let is_empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        value => value == "",
    };
    all.extend(
        optional
            .into_iter()
            .filter(|(_, value)| !is_empty(value))
            .map(|(key, value)| (key.to_owned(), value)),
    );
    Value::Object(all)
}

/// Parity: a Kubernetes service without an address has one in the cluster it is from, which stands for none.
fn cluster_addresses(service: &Service) -> BTreeMap<Arc<str>, Vec<String>> {
    if !service.cluster_addresses.is_empty() || !service.is_kubernetes() {
        return service.cluster_addresses.clone();
    }
    let clusters = service.origins.iter().map(|origin| origin.cluster.clone());
    clusters.map(|cluster| (cluster, vec![service.address.clone()])).collect()
}

/// Parity: services of ServiceEntries have no version of their own.
fn resource_version(engine: &Engine, service: &Service) -> String {
    let origin = service.origins.first().filter(|_| service.is_kubernetes());
    let object = origin.and_then(|origin| engine.read::<Objects>(origin));
    object.map(|object| object.meta().resource_version.to_string()).unwrap_or_default()
}

fn attributes_json(service: &Service) -> Value {
    let kube = service.kube.as_ref();
    let exported: Map<String, Value> =
        service.export_to.iter().map(|entry| (entry.to_string(), json!({}))).collect();
    let aliases: Vec<Value> = service
        .aliases
        .iter()
        .map(|alias| json!({"Hostname": &*alias.host, "Namespace": &*alias.namespace}))
        .collect();
    let node_ports: Map<String, Value> = kube
        .into_iter()
        .flat_map(|kube| &kube.node_ports)
        .map(|(cluster, ports)| (cluster.to_string(), numbers_json(ports)))
        .collect();
    let none = BTreeMap::new();
    let object_name = service.origins.first().filter(|_| !service.is_kubernetes());
    json!({
        "ServiceRegistry": registry_name(service.registry),
        "Name": &*service.name,
        "Namespace": &*service.namespace,
        "Labels": texts(service.labels.iter()),
        "ExportTo": or_null(exported),
        "Visibility": 0,
        "LabelSelectors": texts(service.selector.iter()),
        "Aliases": if aliases.is_empty() { Value::Null } else { Value::from(aliases) },
        "ClusterExternalAddresses": addresses_json(kube.map_or(&none, |kube| &kube.external_addresses)),
        "ClusterExternalPorts": or_null(node_ports),
        "PassthroughTargetPorts": numbers_json(&service.passthrough_target_ports),
        "Type": kube.map_or("", |kube| &kube.kind),
        "ExternalName": kube.and_then(|kube| kube.external_name.as_deref()).unwrap_or_default(),
        "NodeLocal": kube.is_some_and(|kube| kube.node_local),
        "TrafficDistribution": distribution_number(service.traffic_distribution),
        "ObjectName": object_name.map_or("", |origin| origin.name()),
        "DNSConnectStrategy": u8::from(service.races_connections),
        "PublishNotReadyAddresses": kube.is_some_and(|kube| kube.publish_not_ready),
    })
}

fn numbers_json(numbers: &BTreeMap<u32, u32>) -> Value {
    or_null(numbers.iter().map(|(key, value)| (key.to_string(), Value::from(*value))).collect())
}

fn resolution_number(resolution: Resolution) -> u8 {
    match resolution {
        Resolution::Listed => 0,
        Resolution::Dns => 1,
        Resolution::Passthrough => 2,
        Resolution::DnsRoundRobin => 3,
        Resolution::Alias => 4,
        Resolution::DynamicDns => 5,
    }
}

fn distribution_number(distribution: TrafficDistribution) -> u8 {
    match distribution {
        TrafficDistribution::Any => 0,
        TrafficDistribution::PreferSameZone => 1,
        TrafficDistribution::PreferSameNode => 2,
    }
}

fn shards_json(endpoints: &[Arc<Endpoint>]) -> Value {
    let mut shards: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut accounts = BTreeSet::new();
    for endpoint in endpoints {
        let shard = format!("{}/{}", registry_name(endpoint.registry), endpoint.workload.cluster);
        shards.entry(shard).or_default().push(endpoint_json(endpoint));
        accounts.insert(endpoint.workload.service_account.to_string());
    }
    let accounts = accounts.into_iter().filter(|account| !account.is_empty());
    let accounts: Map<String, Value> = accounts.map(|account| (account, json!({}))).collect();
    json!({ "Shards": shards, "ServiceAccounts": accounts })
}

/// Parity: an endpoint in Kubernetes says its network also where it has none.
fn labels_json(endpoint: &Endpoint) -> Value {
    let workload = &endpoint.workload;
    let mut all = texts(workload.labels.iter());
    if let Value::Object(labels) = &mut all
        && endpoint.registry == Registry::Kubernetes
    {
        labels.entry(TOPOLOGY_NETWORK.name).or_insert_with(|| Value::from(&*workload.network));
    }
    all
}

fn endpoint_json(endpoint: &Endpoint) -> Value {
    let workload = &endpoint.workload;
    let (host_name, sub_domain) =
        workload.host_name.as_ref().map_or(("", ""), |(name, domain)| (&**name, &**domain));
    json!({
        "Labels": labels_json(endpoint),
        "Addresses": endpoint.addresses.iter().map(|address| &**address).collect::<Vec<_>>(),
        "ServicePortName": &*endpoint.port_name,
        "LegacyClusterPortKey": endpoint.port_number.unwrap_or_default(),
        "ServiceAccount": &*workload.service_account,
        "Network": &*workload.network,
        "Locality": {"Label": &*workload.locality, "ClusterID": &*workload.cluster},
        "EndpointPort": endpoint.port,
        "LbWeight": endpoint.weight,
        "TLSMode": &*workload.tls_mode,
        "Namespace": &*workload.namespace,
        "WorkloadName": &*workload.name,
        "HostName": host_name,
        "SubDomain": sub_domain,
        "HealthStatus": match endpoint.health {
            Health::Unknown => 0,
            Health::Healthy => 1,
            Health::Unhealthy => 2,
            Health::Draining => 3,
            Health::Terminating => 4,
        },
        // Endpoints that are not ready are sent to proxies too, which then keep what they know of them.
        "SendUnhealthyEndpoints": endpoint.registry == Registry::Kubernetes,
        "NodeName": &*workload.node,
    })
}
