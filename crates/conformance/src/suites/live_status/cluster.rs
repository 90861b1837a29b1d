//! A cluster in memory: objects as an API server would store them, and what it does when they are written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canopus_admission::injection::{Config, Injector, Values};
use canopus_api::mesh_config;
use canopus_api::{Kind, Object, ObjectKey, Options};
use canopus_base::tree::Node;
use canopus_controllers::applier::adopt;
use canopus_controllers::{
    AmbientConditionController, AnalysisController, Change, Controller, GatewayClassController,
    GatewayDeploymentController, GatewayStatusController, IngressStatusController, Installation,
    InstalledTemplates, ServiceEntryAddressController, Write,
};
use canopus_engine::{Batch, Engine};
use canopus_install::{Package, generate, merge_inputs};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::IngressControllerMode;
use canopus_runtime::flags::Flags;
use serde_json::{Value as Json, json};

use super::kind_named;
use crate::case::Case;

/// After so many rounds something writes without end.
const MAX_ROUNDS: usize = 20;

/// What there is in every recorded cluster.
const SURROUNDINGS: &str = "
- {apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: istio}, spec: {controller: istio.io/ingress-controller}}
- apiVersion: v1
  kind: Service
  metadata: {name: istio-ingressgateway, namespace: istio-system}
  spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}
  status: {loadBalancer: {ingress: [{ip: 198.51.100.7}]}}
";

pub(super) struct Cluster {
    objects: BTreeMap<ObjectKey, Json>,
    /// What was applied for gateways, without what was there before.
    managed: BTreeMap<ObjectKey, Json>,
    /// Types of conditions by object and manager.
    conditions: BTreeMap<(ObjectKey, Arc<str>), BTreeSet<String>>,
    settings: MeshSettings,
    installation: Installation,
    versions: u64,
}

/// The injector with the templates of the charts.
pub(super) fn injector(case: &Case) -> anyhow::Result<Arc<Injector>> {
    let package = Package::open(case.corpus.absolute("charts/live".as_ref()));
    let flags = [
        "profile=empty",
        "components.pilot.enabled=true",
        "values.global.hub=docker.io/istio",
        "values.global.tag=1.32.0",
    ];
    let operator = merge_inputs(&package, &[], &flags.map(str::to_owned))?;
    let generated = generate(&package, &operator, false, None)?;
    let map = generated
        .manifests
        .iter()
        .find(|manifest| manifest.kind() == "ConfigMap" && manifest.name() == "istio-sidecar-injector");
    let data = map.context("no ConfigMap of the injector")?.object.get("data").context("no data")?;
    let text = |key: &str| data.get(key).and_then(Json::as_str).with_context(|| key.to_owned());
    let config = Config::read(text("config")?, &BTreeMap::new())?;
    let values = Values::read(text("values")?)?;
    Ok(Arc::new(Injector::new(config, values, mesh_config::default_mesh_config(), "default")))
}

impl Cluster {
    pub(super) fn new(case: &Case, injector: Arc<Injector>) -> anyhow::Result<Self> {
        let environment = case.entry.get("environment").and_then(Node::as_map).into_iter().flatten();
        let scalar = |node: &Node| node.to_json().to_string().trim_matches('"').to_owned();
        let flags: BTreeMap<String, String> =
            environment.map(|entry| (entry.key.to_string(), scalar(&entry.node))).collect();
        let mut mesh = mesh_config::default_mesh_config();
        mesh.ingress_controller_mode = IngressControllerMode::Default as i32;
        let settings = MeshSettings { mesh, flags: Arc::new(Flags::read(&flags)), ..MeshSettings::default() };
        let mut cluster = Self {
            objects: BTreeMap::new(),
            managed: BTreeMap::new(),
            conditions: BTreeMap::new(),
            settings,
            installation: Installation { injector, kubernetes_version: (1, 36) },
            versions: 0,
        };
        let surroundings =
            canopus_base::yaml::parse_one(SURROUNDINGS, &canopus_base::tree::Limits::default())?;
        for document in surroundings.as_list().unwrap_or_default() {
            cluster.create(document.to_json());
        }
        for namespace in ["case-ns", "other-ns", "istio-system", "default"] {
            cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace,
                "labels": {"kubernetes.io/metadata.name": namespace}}}));
        }
        Ok(cluster)
    }

    /// Stores a new object as an API server does.
    pub(super) fn create(&mut self, mut object: Json) {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let Some(kind) = kind_named(&text(&object["apiVersion"]), &text(&object["kind"])) else { return };
        let key =
            ObjectKey::new(kind, &text(&object["metadata"]["namespace"]), &text(&object["metadata"]["name"]));
        self.versions += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.versions));
        object["metadata"]["resourceVersion"] = json!(self.versions.to_string());
        let has_generation =
            !matches!(kind, Kind::Service | Kind::ServiceAccount | Kind::ConfigMap | Kind::Secret);
        if has_generation {
            object["metadata"]["generation"] = json!(1);
        }
        match kind {
            Kind::Secret => fill_in_certificate(&mut object["data"]),
            Kind::Service => {
                if object["spec"]["clusterIP"].is_null() && object["spec"]["type"] != "ExternalName" {
                    object["spec"]["clusterIP"] = json!(format!("10.117.0.{}", self.versions % 250));
                }
                if object["status"].is_null() {
                    object["status"] = json!({"loadBalancer": {}});
                }
            }
            // The definitions of these kinds have a status to begin with.
            Kind::KubernetesGateway => {
                object["status"] = json!({"conditions": waiting(&["Accepted", "Programmed"])});
            }
            Kind::GatewayClass | Kind::ListenerSet => {
                let types: &[&str] =
                    if kind == Kind::ListenerSet { &["Accepted", "Programmed"] } else { &["Accepted"] };
                object["status"] = json!({"conditions": waiting(types)});
            }
            _ => {}
        }
        self.objects.insert(key, object);
    }

    pub(super) fn find(&self, kind: &str, name: &str) -> Option<&Json> {
        let is_wanted = |key: &&ObjectKey| key.kind.info().kind == kind && *key.name == *name;
        self.objects.keys().find(is_wanted).and_then(|key| self.objects.get(key))
    }

    /// The objects that were made for gateways.
    pub(super) fn managed(&self) -> Vec<(&ObjectKey, &Json)> {
        self.managed.iter().collect()
    }

    /// The Deployment that was made for a gateway.
    pub(super) fn deployment(&self) -> Option<&Json> {
        self.objects.iter().find(|(key, _)| key.kind == Kind::Deployment).map(|(_, object)| object)
    }

    /// Deletes the Deployment that was made for a gateway, or lays fields over it. The watch shows it, so the next plan knows.
    pub(super) fn change_deployment(&mut self, change: Option<&Json>) -> anyhow::Result<()> {
        let key = self.objects.keys().find(|key| key.kind == Kind::Deployment).cloned();
        let key = key.context("no Deployment was made")?;
        self.managed.remove(&key);
        match (change, self.objects.get_mut(&key)) {
            (Some(change), Some(deployment)) => overlay(deployment, change),
            _ => drop(self.objects.remove(&key)),
        }
        Ok(())
    }

    /// Gives each gateway that was deployed a pod that is ready, and its Service an address.
    pub(super) fn make_gateways_ready(&mut self) {
        let services: Vec<ObjectKey> =
            self.managed.keys().filter(|key| key.kind == Kind::Service).cloned().collect();
        for key in services {
            let Some(service) = self.objects.get_mut(&key) else { continue };
            if service["spec"]["type"] != "ClusterIP" {
                service["status"] = json!({"loadBalancer": {"ingress": [
                    {"ip": "198.51.100.77"}, {"hostname": "lb.example.com"}]}});
            }
            let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
            let ports: Vec<Json> = ports
                .iter()
                .map(|port| json!({"name": port["name"], "port": port["port"], "protocol": "TCP"}))
                .collect();
            self.create(
                json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": &*key.name, "namespace": &*key.namespace,
                    "labels": {"kubernetes.io/service-name": &*key.name}},
                "endpoints": [{"addresses": ["10.217.3.1"], "conditions": {"ready": true}}], "ports": ports}),
            );
        }
    }

    /// Lets all controllers write until none has anything to write.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        let controllers: [&dyn Controller; 6] = [
            &GatewayClassController,
            &GatewayDeploymentController,
            &GatewayStatusController,
            &IngressStatusController,
            &AmbientConditionController,
            &ServiceEntryAddressController,
        ];
        for _ in 0..MAX_ROUNDS {
            // Analysis comes at an interval, when the others are done.
            let analysis: &dyn Controller = &AnalysisController { interval: Duration::ZERO };
            if !self.carry_out(&controllers)? && !self.carry_out(&[analysis])? {
                return Ok(());
            }
        }
        bail!("controllers still write after {MAX_ROUNDS} rounds")
    }

    /// Makes the writes that controllers plan; whether they changed anything.
    fn carry_out(&mut self, controllers: &[&dyn Controller]) -> anyhow::Result<bool> {
        let engine = self.world()?;
        let mut has_written = false;
        for controller in controllers {
            let plan = controller.plan(&engine.snapshot(), jiff::Timestamp::now())?;
            for write in &plan.writes {
                has_written |= self.perform(write)?;
            }
        }
        Ok(has_written)
    }

    fn world(&self) -> anyhow::Result<Engine> {
        let mut batch = Batch::new();
        for (key, document) in &self.objects {
            let object = Object::decode_as(key.kind, &Node::from(document.clone()), Options::watch());
            let object = object.map_err(|error| anyhow!("{error}"))?.value;
            batch.set::<Objects>(Origin::new(self.settings.cluster.clone(), key.clone()), object);
        }
        batch.set::<Settings>((), self.settings.clone());
        batch.set::<InstalledTemplates>((), self.installation.clone());
        let engine = Engine::new();
        engine.apply(batch);
        Ok(engine)
    }

    /// Makes a write; whether it changed anything.
    fn perform(&mut self, write: &Write) -> anyhow::Result<bool> {
        let key = &write.target;
        match &write.change {
            Change::Create { object } => {
                let is_new = !self.objects.contains_key(key);
                if is_new {
                    self.create(object.clone());
                }
                Ok(is_new)
            }
            Change::Status { status, .. } => {
                let object = self.objects.get_mut(key).with_context(|| format!("no {key}"))?;
                let mut status = status.clone();
                set_times(&mut status);
                let changes = object["status"] != status;
                object["status"] = status;
                Ok(changes)
            }
            Change::ApplyPart { fields, manager, .. } => self.apply_part(key, fields, manager),
            Change::Manage { fields, mark, .. } => {
                if self.managed.get(key) == Some(fields) {
                    return Ok(false);
                }
                let Some(adopted) = adopt(self.objects.get(key), fields, mark) else { return Ok(false) };
                match self.objects.get_mut(key) {
                    Some(stored) => overlay(stored, &adopted),
                    None => self.create(adopted),
                }
                self.managed.insert(key.clone(), fields.clone());
                Ok(true)
            }
            _ => bail!("{write:?} is not expected"),
        }
    }

    /// Applies annotations and conditions of one manager.
    fn apply_part(&mut self, key: &ObjectKey, fields: &Json, manager: &Arc<str>) -> anyhow::Result<bool> {
        let owned = self.conditions.entry((key.clone(), Arc::clone(manager))).or_default();
        let object = self.objects.get_mut(key).with_context(|| format!("no {key}"))?;
        let before = object.clone();
        if let Some(annotations) = fields.pointer("/metadata/annotations") {
            overlay(&mut object["metadata"]["annotations"], annotations);
        }
        if let Some(applied) = fields.pointer("/status/conditions").and_then(Json::as_array) {
            let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let type_of = |condition: &Json| condition["type"].as_str().unwrap_or_default().to_owned();
            conditions.retain(|condition| !owned.contains(&type_of(condition)));
            *owned = applied.iter().map(type_of).collect();
            conditions.extend(applied.iter().cloned());
            object["status"]["conditions"] = conditions.into();
            set_times(&mut object["status"]);
        }
        Ok(*object != before)
    }
}

/// Puts a certificate with its key where the recording says that there was one.
fn fill_in_certificate(data: &mut Json) {
    static MADE: LazyLock<[String; 2]> = LazyLock::new(|| {
        let made = rcgen::generate_simple_self_signed(["a.example.com".to_owned()]);
        made.map(|made| [made.cert.pem(), made.signing_key.serialize_pem()]).unwrap_or_default()
    });
    for (field, text) in ["tls.crt", "tls.key"].into_iter().zip(&*MADE) {
        if data[field] == "<valid PEM>" {
            data[field] = json!(STANDARD.encode(text));
        }
    }
}

/// The conditions of an object that nobody has looked at.
fn waiting(types: &[&str]) -> Vec<Json> {
    let condition = |kind: &&str| {
        json!({"type": kind, "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"})
    };
    types.iter().map(condition).collect()
}

fn set_times(value: &mut Json) {
    match value {
        Json::Object(fields) => {
            if fields.contains_key("type") && fields.contains_key("status") {
                fields.entry("lastTransitionTime").or_insert_with(|| json!("2026-01-01T00:00:00Z"));
            }
            fields.values_mut().for_each(set_times);
        }
        Json::Array(items) => items.iter_mut().for_each(set_times),
        _ => {}
    }
}

/// Lays fields over an object; lists are replaced.
fn overlay(object: &mut Json, fields: &Json) {
    match (object, fields) {
        (Json::Object(object), Json::Object(fields)) => {
            for (name, field) in fields {
                overlay(object.entry(name.clone()).or_insert(Json::Null), field);
            }
        }
        (object, fields) => *object = fields.clone(),
    }
}
