//! A service of Consul as a ServiceEntry.

use std::collections::{BTreeMap, BTreeSet};

use canopus_api::istio::ServiceEntry;
use canopus_api::{Kind, ObjectKey};
use canopus_base::labels::{Labels, is_dns_label};
use canopus_base::net::parse_ip;
use canopus_base::protocol::Protocol;
use canopus_proto::istio::networking::v1alpha3 as networking;
use networking::service_entry::{Location, Resolution};

use super::answer::{Instance, Locality};

/// Where the entries live. Consul has no namespaces, and this is where Istio put its services.
const NAMESPACE: &str = "default";

/// The metadata that says what a service speaks.
const PROTOCOL: &str = "protocol";

/// The metadata that says that a service is outside of the mesh.
const EXTERNAL: &str = "external";

/// An entry, and what is wrong with what it was made of.
pub(super) struct Entry {
    pub(super) object: ServiceEntry,
    pub(super) problems: Vec<String>,
}

/// What names the entry of a service.
pub(super) fn key(service: &str) -> ObjectKey {
    ObjectKey::new(Kind::ServiceEntry, NAMESPACE, &host(service))
}

/// The name Consul's DNS has for a service.
fn host(service: &str) -> String {
    format!("{}.service.consul", service.to_ascii_lowercase())
}

/// The entry of a service with these instances, of which there is at least one.
pub(super) fn build_entry(service: &str, instances: &[Instance]) -> Result<Entry, String> {
    if !is_dns_label(&service.to_ascii_lowercase()) {
        return Err(format!("{service:?} cannot be part of a host name; rename the service"));
    }
    let ports: BTreeSet<u32> = instances.iter().filter_map(port).collect();
    let Some(&number) = ports.first() else {
        return Err(format!("{service}: no instance has a port"));
    };
    let protocol = protocol(instances);
    let name = protocol.as_str().to_ascii_lowercase();
    let mut problems = Vec::new();
    let healthy = instances.iter().filter(|instance| !has_check(instance, "critical"));
    let endpoints: Vec<networking::WorkloadEntry> =
        healthy.filter_map(|instance| endpoint(service, &name, instance, &mut problems)).collect();
    let resolved = endpoints.iter().all(|endpoint| parse_ip(&endpoint.address).is_ok());
    let external = instances.iter().any(|instance| meta(instance, EXTERNAL).is_some());
    let spec = networking::ServiceEntry {
        hosts: vec![host(service)],
        ports: vec![networking::ServicePort {
            number,
            protocol: protocol.as_str().to_owned(),
            name,
            ..Default::default()
        }],
        location: if external { Location::MeshExternal } else { Location::MeshInternal }.into(),
        resolution: if resolved { Resolution::Static } else { Resolution::Dns }.into(),
        endpoints,
        ..Default::default()
    };
    problems.sort();
    problems.dedup();
    Ok(Entry { object: ServiceEntry::new(NAMESPACE, &host(service), spec), problems })
}

fn endpoint(
    service: &str,
    port_name: &str,
    instance: &Instance,
    problems: &mut Vec<String>,
) -> Option<networking::WorkloadEntry> {
    let address =
        [&instance.service.address, &instance.node.address].into_iter().find(|text| !text.is_empty());
    let (Some(address), Some(port)) = (address, port(instance)) else {
        problems.push(format!("{service}: an instance without an address or a port is left out"));
        return None;
    };
    let weights = instance.service.weights.unwrap_or_default();
    let weight = if has_check(instance, "warning") { weights.warning } else { weights.passing };
    Some(networking::WorkloadEntry {
        address: address.clone(),
        ports: BTreeMap::from([(port_name.to_owned(), port)]),
        labels: labels(service, instance, problems),
        locality: locality(instance),
        weight,
        ..Default::default()
    })
}

/// Tags such as `version|v2` are labels; so is the metadata of the instance, where a tag does not say otherwise. Other tags
/// are of no concern to a mesh.
fn labels(service: &str, instance: &Instance, problems: &mut Vec<String>) -> BTreeMap<String, String> {
    let tags = instance.service.tags.iter().filter_map(|tag| tag.split_once('|'));
    let meta = instance.service.meta.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let reserved = |key: &str| key == PROTOCOL || key == EXTERNAL;
    let mut labels = BTreeMap::new();
    for (key, value) in meta.filter(|(key, _)| !reserved(key)).chain(tags) {
        let mut label = Labels::default();
        label.insert(key, value);
        match label.validate().first() {
            None => {
                labels.insert(key.to_owned(), value.to_owned());
            }
            Some(invalid) => problems.push(format!("{service}: {key}={value} is no label: {invalid}")),
        }
    }
    labels
}

/// Region and zone where Consul knows them, else the datacentre as the region.
fn locality(instance: &Instance) -> String {
    let known = [&instance.service.locality, &instance.node.locality].into_iter().flatten();
    match known.into_iter().find(|locality| !locality.region.is_empty()) {
        Some(Locality { region, zone }) if zone.is_empty() => region.clone(),
        Some(Locality { region, zone }) => format!("{region}/{zone}"),
        None => instance.node.datacenter.clone(),
    }
}

fn protocol(instances: &[Instance]) -> Protocol {
    let named = instances.iter().find_map(|instance| meta(instance, PROTOCOL));
    match named.map_or(Protocol::Tcp, Protocol::parse) {
        protocol if protocol.is_unsupported() => Protocol::Tcp,
        protocol => protocol,
    }
}

/// Metadata of the instance, or else of its node.
fn meta<'a>(instance: &'a Instance, key: &str) -> Option<&'a str> {
    let found = instance.service.meta.get(key).or_else(|| instance.node.meta.get(key));
    found.map(String::as_str).filter(|value| !value.is_empty())
}

fn port(instance: &Instance) -> Option<u32> {
    u16::try_from(instance.service.port).ok().filter(|port| *port != 0).map(u32::from)
}

/// Like Consul's DNS: critical instances are left out, those with warnings are not.
fn has_check(instance: &Instance, status: &str) -> bool {
    instance.checks.iter().any(|check| check.status == status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn instances(json: serde_json::Value) -> Vec<Instance> {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn instances_become_endpoints() {
        let instances = instances(json!([
            {
                "Node": {"Node": "n1", "Address": "10.0.0.1", "Datacenter": "dc1", "Meta": null},
                "Service": {
                    "ID": "web-1", "Service": "web", "Address": "", "Port": 9080,
                    "Tags": ["version|v1", "plain"], "Meta": {"protocol": "http", "team": "a"},
                    "Weights": {"Passing": 5, "Warning": 2},
                },
                "Checks": [{"Status": "passing"}],
            },
            {
                "Node": {"Address": "10.0.0.2", "Datacenter": "dc1", "Locality": {"Region": "eu", "Zone": "a"}},
                "Service": {"Address": "10.9.0.2", "Port": 9081, "Tags": null, "Weights": {"Passing": 5, "Warning": 2}},
                "Checks": [{"Status": "passing"}, {"Status": "warning"}],
            },
            {
                "Node": {"Address": "10.0.0.3", "Datacenter": "dc1"},
                "Service": {"Port": 9082},
                "Checks": [{"Status": "critical"}],
            },
        ]));
        let entry = build_entry("Web", &instances).unwrap();
        assert_eq!(entry.problems, [""; 0]);
        let node = canopus_api::Object::from(entry.object).to_node().to_json();
        assert_eq!(
            node,
            json!({
                "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
                "metadata": {"name": "web.service.consul", "namespace": "default"},
                "spec": {
                    "hosts": ["web.service.consul"], "location": "MESH_INTERNAL", "resolution": "STATIC",
                    "ports": [{"number": 9080, "protocol": "HTTP", "name": "http"}],
                    "endpoints": [
                        {
                            "address": "10.0.0.1", "ports": {"http": 9080}, "locality": "dc1", "weight": 5,
                            "labels": {"team": "a", "version": "v1"},
                        },
                        {"address": "10.9.0.2", "ports": {"http": 9081}, "locality": "eu/a", "weight": 2},
                    ],
                },
            })
        );
    }

    #[test]
    fn service_without_a_healthy_instance_is_still_a_service() {
        let instances = instances(json!([
            {"Node": {"Address": "10.0.0.3"}, "Service": {"Port": 80}, "Checks": [{"Status": "critical"}]},
        ]));
        let entry = build_entry("web", &instances).unwrap();
        assert_eq!((entry.object.spec.hosts.len(), entry.object.spec.endpoints.len()), (1, 0));
    }

    #[test]
    fn names_of_hosts_are_resolved_by_proxies() {
        let instances = instances(json!([
            {"Node": {}, "Service": {"Address": "db.example.com", "Port": 5432, "Meta": {"external": "true"}}},
        ]));
        let spec = build_entry("db", &instances).unwrap().object.spec;
        assert_eq!((spec.resolution(), spec.location()), (Resolution::Dns, Location::MeshExternal));
    }

    #[test]
    fn nonsense_is_reported_and_left_out() {
        assert!(build_entry("under_score", &instances(json!([{"Service": {"Port": 1}}]))).is_err());
        assert!(
            build_entry("web", &instances(json!([{"Service": {"Port": 0}}, {"Service": {"Port": -1}}])))
                .is_err()
        );
        assert!(build_entry("web", &instances(json!([{"Service": {"Port": 70000}}]))).is_err());
        let odd = instances(json!([
            {"Node": {"Address": "10.0.0.1"}, "Service": {"Port": 80, "Tags": ["bad key|x", "good|y"]}},
            {"Node": {}, "Service": {"Port": 80}},
        ]));
        let entry = build_entry("web", &odd).unwrap();
        assert_eq!(entry.object.spec.endpoints.len(), 1);
        assert_eq!(entry.object.spec.endpoints[0].labels.len(), 1);
        assert_eq!(entry.problems.len(), 2, "{:?}", entry.problems);
    }
}
