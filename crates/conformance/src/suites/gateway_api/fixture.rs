//! The world of a case: its input, and what the driver puts around it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use canopus_api::decode::Reason;
use canopus_api::gateway_api::HttpRoute;
use canopus_api::{Kind, Object, ObjectKey, Options};
use canopus_base::tree::Node;
use canopus_engine::{Batch, Engine, Snapshot};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_runtime::flags::Flags;
use serde_json::json;

use crate::case::Case;

/// The port at which the first port of a service is served; others are served at none that anybody asks for.
const FIRST_TARGET: u16 = 8080;
const OTHER_TARGET: u16 = 1;

pub(super) struct World {
    pub(super) snapshot: Snapshot,
    /// Where all objects are.
    pub(super) origins: Vec<Origin>,
}

impl World {
    pub(super) fn load(case: &Case) -> anyhow::Result<Self> {
        let defaults = case.shared.get("defaults").context("no defaults")?;
        let text = |key: &str| defaults.get(key).and_then(Node::as_str).context("a default is missing");
        let features = defaults.get("features").and_then(Node::as_map).into_iter().flatten();
        let scalar = |node: &Node| node.to_json().to_string().trim_matches('"').to_owned();
        let mut features: BTreeMap<String, String> =
            features.map(|entry| (entry.key.to_string(), scalar(&entry.node))).collect();
        features.insert("PILOT_ENABLE_AMBIENT".to_owned(), "true".to_owned());
        let settings = MeshSettings {
            domain: text("domainSuffix")?.into(),
            flags: Arc::new(Flags::read(&features)),
            ..MeshSettings::default()
        };

        let mut objects = BTreeMap::new();
        for file in ["fixture-objects.yaml", case.text("input").context("no input")?] {
            for document in case.corpus.documents(&case.path(Path::new(file)))? {
                add(&mut objects, &document)?;
            }
        }
        for namespace in namespaces(objects.keys()) {
            let part = namespace.split('-').next().unwrap_or_default();
            let document = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": *namespace, "labels": {"istio.io/test-name-part": part}}});
            add(&mut objects, &Node::from(document))?;
        }
        let registry = case.corpus.document(&case.path(text("services")?))?;
        let services = registry.get("services").and_then(Node::as_list).context("no services")?;
        for (position, service) in services.iter().enumerate() {
            register(&mut objects, position, service, &settings.domain)?;
        }

        let cluster = settings.cluster.clone();
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings);
        let mut origins = Vec::new();
        for (key, object) in objects {
            let origin = Origin::new(cluster.clone(), key);
            origins.push(origin.clone());
            batch.set::<Objects>(origin, object);
        }
        let engine = Engine::new();
        engine.apply(batch);
        Ok(Self { snapshot: engine.snapshot(), origins })
    }

    pub(super) fn origins_of_kinds(&self, kinds: &[Kind]) -> impl Iterator<Item = &Origin> {
        self.origins.iter().filter(|origin| kinds.contains(&origin.key.kind))
    }

    pub(super) fn namespaces(&self) -> Vec<Arc<str>> {
        let keys = self.origins.iter().map(|origin| &origin.key);
        namespaces(keys).into_iter().map(|namespace| Arc::from(&*namespace)).collect()
    }
}

fn namespaces<'a>(keys: impl Iterator<Item = &'a ObjectKey>) -> BTreeSet<Box<str>> {
    keys.map(|key| key.namespace.clone()).filter(|namespace| !namespace.is_empty()).collect()
}

fn add(objects: &mut BTreeMap<ObjectKey, Object>, document: &Node) -> anyhow::Result<()> {
    if document.is_null() {
        return Ok(());
    }
    let mut object = match Object::decode(document, Options::watch()) {
        Ok(decoded) => decoded.value,
        Err(error) if matches!(error.reason, Reason::UnknownKind) => return Ok(()),
        Err(error) => bail!("{error}"),
    };
    if let Object::HttpRoute(route) = &mut object {
        without_defaults(Arc::make_mut(route), document);
    }
    objects.insert(object.key(), object);
    Ok(())
}

/// The recorded conversion saw objects as they are written, without what a cluster adds to rules.
fn without_defaults(route: &mut HttpRoute, document: &Node) {
    let written = document.pointer("/spec/rules").and_then(Node::as_list).unwrap_or_default();
    for (rule, written) in route.spec.rules.iter_mut().zip(written) {
        if written.get("matches").is_none() {
            rule.matches.clear();
        }
        let filters = written.get("filters").and_then(Node::as_list).unwrap_or_default();
        for (filter, written) in rule.filters.iter_mut().zip(filters) {
            if let (Some(cors), None) = (&mut filter.cors, written.pointer("/cors/maxAge")) {
                cors.max_age = 0;
            }
        }
    }
}

/// A service that the registry knows: as the Service there is with that name, else as a ServiceEntry.
fn register(
    objects: &mut BTreeMap<ObjectKey, Object>,
    position: usize,
    service: &Node,
    domain: &str,
) -> anyhow::Result<()> {
    let text = |key: &str| service.get(key).and_then(Node::as_str);
    let host = text("hostname").context("no hostname")?;
    let namespace = text("namespace").context("no namespace")?;
    let ports = service.get("ports").and_then(Node::as_list).unwrap_or_default();
    let port = |node: &Node| -> (String, i64) {
        let name = node.get("name").and_then(Node::as_str).unwrap_or_default();
        (name.to_owned(), node.get("port").and_then(Node::as_i64).unwrap_or_default())
    };
    let ports: Vec<_> = ports.iter().map(port).collect();
    let target = |position: usize| if position == 0 { FIRST_TARGET } else { OTHER_TARGET };
    let address = format!("10.1.{}.{}", position / 250, position % 250 + 1);
    let labels = service.get("labels").map(Node::to_json).unwrap_or_else(|| json!({}));
    let name = host.strip_suffix(&format!(".{namespace}.svc.{domain}"));
    let existing = name.map(|name| ObjectKey::new(Kind::Service, namespace, name));
    if let (Some(name), Some(key)) = (name, existing.filter(|key| objects.contains_key(key))) {
        let present = objects.get(&key).context("the Service is there")?.to_node();
        let external = service.pointer("/externalAddresses/Kubernetes").map(Node::to_json);
        let external = external.as_ref().and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
        let external: Vec<_> = external.into_iter().map(|ip| json!({"ip": ip})).collect();
        let spec: Vec<_> = ports.iter().map(|(name, number)| json!({"name": name, "port": number})).collect();
        let mut metadata = present.get("metadata").cloned().unwrap_or_default().to_json();
        metadata["labels"] = labels;
        let document = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"clusterIP": address, "type": "LoadBalancer", "ports": spec},
            "status": {"loadBalancer": {"ingress": external}}});
        add(objects, &Node::from(document))?;
        let served: Vec<_> = ports
            .iter()
            .enumerate()
            .map(|(position, (name, _))| json!({"name": name, "port": target(position)}))
            .collect();
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
            "endpoints": [{"addresses": ["10.2.0.1"], "conditions": {"ready": true}}], "ports": served});
        return add(objects, &Node::from(slice));
    }
    let written: Vec<_> = ports
        .iter()
        .enumerate()
        .map(|(position, (name, number))| {
            json!({"name": name, "number": number, "protocol": "TCP", "targetPort": target(position)})
        })
        .collect();
    let entry = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": format!("registry-{position}"), "namespace": namespace, "labels": labels},
        "spec": {"hosts": [host], "addresses": [address], "ports": written, "resolution": "STATIC",
            "location": "MESH_INTERNAL", "endpoints": [{"address": "10.2.0.1"}]}});
    add(objects, &Node::from(entry))
}
