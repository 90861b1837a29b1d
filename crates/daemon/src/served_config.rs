//! Configuration served over xDS, as other control planes read it.
//!
//! Each object is a resource in the envelope of Istio's mesh configuration protocol (MCP). A type is named
//! `group/version/Kind`. Only kinds that configure the mesh are served: other objects may hold secrets.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use canopus_api::registry::Category;
use canopus_api::{Kind, Object};
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};
use canopus_mesh::service::{AllServices, Registry, Resolution, Service};
use canopus_mesh::world::{ObjectIndex, Objects, Origin, qualified_host, settings};
use canopus_proto::Any;
use canopus_proto::google::protobuf::{Struct, Timestamp};
use canopus_proto::istio::mcp::v1alpha1::{Metadata, Resource as Envelope};
use canopus_proto::istio::networking::v1alpha3::service_entry::{Location, Resolution as Written};
use canopus_proto::istio::networking::v1alpha3::{ServiceEntry, ServicePort, WorkloadSelector};
use canopus_proto::json::{self, Unknown};
use canopus_proto::resource::Resource;
use canopus_xds::types;
use jiff::Timestamp as Instant;

/// The type of the mesh configuration, which is no object.
const MESH_CONFIG: &str = "core/v1alpha1/MeshConfig";

/// What Go's clock says of things that never happened.
const NEVER: Timestamp = Timestamp { seconds: -62_135_596_800, nanos: 0 };

/// Whether users configure the mesh with objects of this kind.
pub(crate) fn is_configuration(kind: Kind) -> bool {
    matches!(kind.info().category, Category::Istio | Category::GatewayApi | Category::Inference)
}

/// Whether a type stands for configuration. No other objects are served: some of them hold secrets.
pub(crate) fn is_served(type_url: &str) -> bool {
    types::is_packed(type_url) && (type_url == MESH_CONFIG || kind(type_url).is_some())
}

/// The kind that a type stands for.
///
/// Parity: only in the version that is used first.
fn kind(type_url: &str) -> Option<Kind> {
    let (api_version, name) = type_url.rsplit_once('/')?;
    let kind = Kind::lookup(api_version, name).ok()?;
    let info = kind.info();
    let preferred = api_version.split_once('/') == Some((info.group, info.version()));
    (preferred && is_configuration(kind)).then_some(kind)
}

/// All resources of a type.
pub(crate) struct ServedConfig;

impl Query for ServedConfig {
    const NAME: &'static str = "served_config";
    type Key = Box<str>;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, type_url: &Box<str>) -> Self::Value {
        if **type_url == *MESH_CONFIG {
            return vec![Resource::encode("", &Any::pack(&settings(ctx).mesh))];
        }
        let Some(kind) = kind(type_url) else { return Vec::new() };
        let own = settings(ctx).cluster.clone();
        let members = ctx.members::<Objects>(&ObjectIndex::Kind(kind));
        let members = members.iter().filter(|origin| origin.cluster == own);
        let mut all: Vec<_> =
            members.filter_map(|one| ctx.get::<ServedConfigObject>(one).as_ref().clone()).collect();
        if kind == Kind::ServiceEntry {
            // Parity: so that who reads the configuration knows of all services.
            let services = ctx.get::<AllServices>(&());
            let of_cluster = services.iter().filter(|service| service.registry == Registry::Kubernetes);
            all.extend(of_cluster.map(|service| synthetic(ctx, service)));
        }
        all
    }
}

/// One object.
struct ServedConfigObject;

impl Query for ServedConfigObject {
    const NAME: &'static str = "served_config_object";
    type Key = Origin;
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let object = ctx.read::<Objects>(origin)?;
        let meta = object.meta();
        let described = Metadata {
            name: format!("{}/{}", meta.namespace, meta.name),
            create_time: Some(timestamp(meta.creation_timestamp)),
            version: meta.resource_version.to_string(),
            labels: map(&meta.labels),
            annotations: map(&meta.annotations),
        };
        Some(resource(described, body(&object, &settings(ctx).domain)?))
    }
}

fn resource(metadata: Metadata, body: Any) -> Resource {
    let name = metadata.name.clone();
    Resource::encode(name, &Any::pack(&Envelope { metadata: Some(metadata), body: Some(body) }))
}

/// What an object says: a message of its own where its kind has one.
fn body(object: &Object, domain: &str) -> Option<Any> {
    Some(match object {
        Object::AuthorizationPolicy(object) => Any::pack(&object.spec),
        Object::DestinationRule(object) => {
            // Parity: the host is a full name, whatever was written.
            let mut spec = object.spec.clone();
            spec.host = qualified_host(&spec.host, &object.meta.namespace, domain);
            Any::pack(&spec)
        }
        Object::EnvoyFilter(object) => Any::pack(&object.spec),
        Object::Gateway(object) => Any::pack(&object.spec),
        Object::PeerAuthentication(object) => Any::pack(&object.spec),
        Object::ProxyConfig(object) => Any::pack(&object.spec),
        Object::RequestAuthentication(object) => Any::pack(&object.spec),
        Object::ServiceEntry(object) => Any::pack(&object.spec),
        Object::Sidecar(object) => Any::pack(&object.spec),
        Object::Telemetry(object) => Any::pack(&object.spec),
        Object::TrafficExtension(object) => Any::pack(&object.spec),
        Object::VirtualService(object) => Any::pack(&object.spec),
        Object::WasmPlugin(object) => Any::pack(&object.spec),
        Object::WorkloadEntry(object) => Any::pack(&object.spec),
        Object::WorkloadGroup(object) => Any::pack(&object.spec),
        other => {
            let node = other.to_node();
            let spec = node.get("spec").map(|spec| json::read::<Struct>(spec, Unknown::Reject));
            Any::pack(&spec.transpose().ok()?.map(|read| read.value).unwrap_or_default())
        }
    })
}

/// A service of the cluster, as a ServiceEntry would define it.
fn synthetic(ctx: &Ctx<'_>, service: &Service) -> Resource {
    let object = service.origins.first().and_then(|origin| ctx.read::<Objects>(origin));
    let metadata = Metadata {
        name: format!("{}/synthetic-{}", service.namespace, service.name),
        create_time: Some(timestamp(service.created)),
        version: object.map(|object| object.meta().resource_version.to_string()).unwrap_or_default(),
        ..Default::default()
    };
    let ports = service.ports.iter().map(|port| ServicePort {
        number: port.number,
        name: port.name.to_string(),
        protocol: port.protocol.to_string(),
        ..Default::default()
    });
    let location = if service.external { Location::MeshExternal } else { Location::MeshInternal };
    let resolution = match service.resolution {
        Resolution::Listed => Written::Static,
        Resolution::Dns => Written::Dns,
        Resolution::DnsRoundRobin => Written::DnsRoundRobin,
        Resolution::DynamicDns => Written::DynamicDns,
        Resolution::Passthrough | Resolution::Alias => Written::None,
    };
    let selector =
        (!service.selector.is_empty()).then(|| WorkloadSelector { labels: map(&service.selector) });
    let entry = ServiceEntry {
        hosts: vec![service.host.to_string()],
        addresses: service.cluster_addresses.values().flatten().cloned().collect(),
        ports: ports.collect(),
        location: location.into(),
        resolution: resolution.into(),
        workload_selector: selector,
        export_to: service.export_to.iter().map(ToString::to_string).collect(),
        subject_alt_names: service.service_accounts.clone(),
        ..Default::default()
    };
    resource(metadata, Any::pack(&entry))
}

fn timestamp(instant: Option<Instant>) -> Timestamp {
    instant.map_or(NEVER, |instant| Timestamp {
        seconds: instant.as_second(),
        nanos: instant.subsec_nanosecond(),
    })
}

fn map(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
