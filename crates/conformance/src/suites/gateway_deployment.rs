//! Gateways in, what is deployed for them out: every write of the controller, in the order of the templates.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use canopus_admission::injection::{Config, Injector, Values};
use canopus_api::{Object, ObjectKey, Options, mesh_config};
use canopus_base::tree::{Node, Value as Tree};
use canopus_controllers::applier::adopt;
use canopus_controllers::{
    Change, Controller as _, GatewayDeploymentController, Installation, InstalledTemplates,
};
use canopus_engine::{Batch, Engine};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::istio::mesh::v1alpha1::{LabelSelector, MeshConfig};
use canopus_runtime::flags::Flags;
use serde_json::{Value as Json, json};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;

/// The templates that the driver reads, and where from.
const TEMPLATES: [&str; 4] = ["kube-gateway", "waypoint", "agentgateway", "agentgateway-waypoint"];
const FILES: &str = "charts/live/charts/istio-control/istio-discovery/files";

pub(super) struct GatewayDeployment;

impl Suite for GatewayDeployment {
    fn name(&self) -> &str {
        "gateway-deployment"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let expected = match case.text("golden") {
        Some(golden) => case.corpus.documents(&case.path(golden))?,
        None => Vec::new(),
    };
    let expected = expected.into_iter().filter(|document| !document.is_null());
    // The recording repeats the first write where the controller had to try again.
    let mut expected: Vec<Node> = expected.collect();
    expected.dedup_by(|a, b| a.to_json() == b.to_json());
    let got = writes(case)?.into_iter().map(Node::from).collect();
    let list = |documents: Vec<Node>| Node::from(Tree::List(documents));
    Ok(tree::difference(&list(expected), &list(got), &Rules::default()))
}

/// What the controller writes.
fn writes(case: &Case) -> anyhow::Result<Vec<Json>> {
    let mut objects = BTreeMap::new();
    let preexisting = case.shared.pointer("/defaults/preexistingObjects").and_then(Node::as_list);
    for document in preexisting.context("no objects")? {
        add(&mut objects, document)?;
    }
    add(&mut objects, case.entry.get("gateway").context("no gateway")?)?;
    for key in ["extraObjects", "proxyConfigs"] {
        if let Some(reference) = case.text(key) {
            let path = reference.trim_start_matches("see ").replace('.', "/");
            let document = case.shared.pointer(&format!("/{path}")).with_context(|| reference.to_owned())?;
            add(&mut objects, document)?;
        }
    }

    let mesh = mesh(case, &mut objects)?;
    let settings = MeshSettings {
        mesh: mesh.clone(),
        revision: "".into(),
        flags: Arc::new(flags(case)),
        ..MeshSettings::default()
    };
    let mut batch = Batch::new();
    for (key, (object, _)) in &objects {
        batch.set::<Objects>(Origin::new(settings.cluster.clone(), key.clone()), object.clone());
    }
    batch.set::<Settings>((), settings);
    let installation =
        Installation { injector: Arc::new(injector(case, mesh)?), kubernetes_version: (1, 28) };
    batch.set::<InstalledTemplates>((), installation);
    let engine = Engine::new();
    engine.apply(batch);

    let plan = GatewayDeploymentController.plan(&engine.snapshot(), jiff::Timestamp::now())?;
    let mut written = Vec::new();
    for write in &plan.writes {
        written.push(match &write.change {
            Change::ApplyPart { fields, .. } => fields.clone(),
            Change::Manage { fields, mark, .. } => {
                let stored = objects.get(&write.target).map(|(_, document)| document);
                adopt(stored, fields, mark).with_context(|| format!("{} is somebody else's", write.target))?
            }
            _ => bail!("{write:?} is no write that deploys"),
        });
    }
    Ok(written)
}

fn add(objects: &mut BTreeMap<ObjectKey, (Object, Json)>, document: &Node) -> anyhow::Result<()> {
    let object = Object::decode(document, Options::watch()).map_err(|error| anyhow!("{error}"))?.value;
    objects.insert(object.key(), (object, document.to_json()));
    Ok(())
}

/// The mesh configuration. Namespaces that the driver discovers are selected by a label.
fn mesh(case: &Case, objects: &mut BTreeMap<ObjectKey, (Object, Json)>) -> anyhow::Result<MeshConfig> {
    let mut mesh = mesh_config::default_mesh_config();
    let Some(discovered) = case.entry.get("discoveryNamespaces").and_then(Node::as_list) else {
        return Ok(mesh);
    };
    for name in discovered.iter().filter_map(Node::as_str) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"discovered": "true"}}});
        add(objects, &Node::from(namespace))?;
    }
    let match_labels = [("discovered".to_owned(), "true".to_owned())].into_iter().collect();
    mesh.discovery_selectors = vec![LabelSelector { match_labels, ..Default::default() }];
    Ok(mesh)
}

fn flags(case: &Case) -> Flags {
    // Waypoints need an ambient mesh in a real process.
    let mut flags = BTreeMap::from([("PILOT_ENABLE_AMBIENT".to_owned(), "true".to_owned())]);
    let features = [case.shared.pointer("/defaults/features"), case.entry.get("features")];
    for entry in features.into_iter().flatten().filter_map(Node::as_map).flatten() {
        flags.insert(entry.key.to_string(), entry.node.to_json().to_string().trim_matches('"').to_owned());
    }
    Flags::read(&flags)
}

fn injector(case: &Case, mesh: MeshConfig) -> anyhow::Result<Injector> {
    let mut templates = BTreeMap::new();
    for name in TEMPLATES {
        let text = case.corpus.bytes(format!("{FILES}/{name}.yaml").as_ref())?;
        templates.insert(name.to_owned(), String::from_utf8(text)?);
    }
    let config = Config::from_templates(templates, &BTreeMap::new())?;
    let values = Values::read(case.text("values").unwrap_or("global: {hub: test, tag: test}"))?;
    Ok(Injector::new(config, values, mesh, ""))
}
