//! Proxies for Gateways: the ServiceAccount, the Deployment and the Service of each, from the installation's templates.
//!
//! ```text
//!   Gateway, ListenerSets, class ──► DeploymentOf (mesh) ─┐
//!   InstalledTemplates (injector's configuration) ────────┼─► RenderedObjects ─► what the watch shows ─► writes
//!   ConfigMaps of the class and of `infrastructure` ──────┘
//! ```
//!
//! What is made has the label `gateway.istio.io/managed`; objects without it are never touched. They belong to the
//! Gateway, so they go when it goes. Field manager, labels and names are Istio's, so that either control plane takes over
//! what the other has deployed; which of two does it is decided by the annotation `gateway.istio.io/controller-version`.

mod metadata;
mod overlay;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_admission::injection::{GatewayInput, Injector};
use canopus_api::gateway_api::Gateway;
use canopus_api::istio::ProxyConfig;
use canopus_api::kube::ConfigMap;
use canopus_api::mesh_config::{self, ProxyTarget};
use canopus_api::{Kind, Object, ObjectKey, annotations, labels};
use canopus_base::labels::Labels;
use canopus_base::tree::Node;
use canopus_engine::{Ctx, Engine, Input, Query, QueryError, Snapshot};
use canopus_mesh::gateway_api::{CONTROLLER_VERSION, DeploymentOf, GatewayDeployment};
use canopus_mesh::world::{
    MeshSettings, ObjectIndex, Objects, Origin, all_objects, is_namespace_discovered, namespace, settings,
};
use canopus_runtime::flags::{
    ENABLE_NATIVE_SIDECARS, PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER, PILOT_GATEWAY_API_CONTROLLER_NAME,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::{Basis, Change, Controller, Observed, Plan, Write};

/// The label of ConfigMaps beside the control plane that hold defaults for the gateways of a class.
const CLASS_DEFAULTS: &str = "gateway.istio.io/defaults-for-class";

/// The label whose value is the name of the gateway that a pod belongs to.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// The engine input with the installation's templates: one value under the key `()`, none until they were read.
pub struct InstalledTemplates;

impl Input for InstalledTemplates {
    const NAME: &'static str = "installed_templates";
    type Key = ();
    type Value = Installation;
    type Index = ();
}

/// The value of [`InstalledTemplates`].
#[derive(Clone, Debug)]
pub struct Installation {
    /// Templates and values.
    pub injector: Arc<Injector>,
    /// The version of Kubernetes, major and minor.
    pub kubernetes_version: (u16, u16),
}

impl PartialEq for Installation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.injector, &other.injector) && self.kubernetes_version == other.kubernetes_version
    }
}

/// The engine input with what the API server last refused to write, by object: its reason.
pub struct RefusedWrites;

impl Input for RefusedWrites {
    const NAME: &'static str = "refused_writes";
    type Key = ObjectKey;
    type Value = Box<str>;
    type Index = ();
}

/// Why a gateway is not deployed as it should be; `None` if it is, if it will be, or if nothing is deployed for it.
pub(crate) struct DeploymentFault;

impl Query for DeploymentFault {
    const NAME: &'static str = "gateway_deployment_fault";
    type Key = Origin;
    type Value = Option<String>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let settings = settings(ctx);
        let is_on = settings.flags.get(PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER);
        // Before the templates were read nothing is known to be wrong.
        if !is_on || ctx.read::<InstalledTemplates>(&()).is_none() {
            return None;
        }
        match ctx.get::<RenderedObjects>(origin).as_ref() {
            Err(fault) => Some(fault.clone()),
            Ok(objects) => objects.iter().find_map(|(target, _)| {
                let reason = ctx.read::<RefusedWrites>(target)?;
                Some(format!("{} {}: {reason}", target.kind.info().kind, target.name))
            }),
        }
    }
}

/// Deploys proxies for Gateways.
#[derive(Clone, Copy, Debug, Default)]
pub struct GatewayDeploymentController;

impl Controller for GatewayDeploymentController {
    fn name(&self) -> &'static str {
        "gateway-deployment"
    }

    fn plan(&self, world: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        Ok(world.get::<GatewayDeployments>(&())?.as_ref().clone())
    }

    fn basis(&self, world: &Snapshot) -> Option<Basis> {
        Basis::result::<GatewayDeployments>(world, &())
    }

    fn watch(&self, engine: &Engine) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(engine.watch::<GatewayDeployments>(())))
    }
}

/// The writes for all gateways.
struct GatewayDeployments;

impl Query for GatewayDeployments {
    const NAME: &'static str = "gateway_deployments";
    type Key = ();
    type Value = Plan;

    fn run(ctx: &Ctx<'_>, (): &()) -> Plan {
        let settings = settings(ctx);
        if !settings.flags.get(PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER) {
            return Plan::default();
        }
        let gateways = ctx.members::<Objects>(&ObjectIndex::Kind(Kind::KubernetesGateway)).to_vec();
        let gateways: Vec<_> =
            gateways.into_iter().filter(|origin| origin.cluster == settings.cluster).collect();
        let mut plan = Plan::default();
        for (origin, writes) in gateways.iter().zip(ctx.get_all::<GatewayWrites>(&gateways)) {
            match writes.as_ref() {
                Ok(writes) => plan.writes.extend(writes.iter().cloned()),
                Err((writes, fault)) => {
                    plan.writes.extend(writes.iter().cloned());
                    plan.faults.insert(origin.key.clone(), fault.clone());
                }
            }
        }
        plan
    }
}

type Writes = Vec<Arc<Write>>;

/// The writes for one gateway; with an error, those that can be made in spite of it.
struct GatewayWrites;

impl Query for GatewayWrites {
    const NAME: &'static str = "gateway_deployment_writes";
    type Key = Origin;
    type Value = Result<Writes, (Writes, String)>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let deployment = ctx.get::<DeploymentOf>(origin);
        let Some(deployment) = deployment.as_ref() else { return Ok(Vec::new()) };
        let settings = settings(ctx);
        let manager: Arc<str> = settings.flags.get(PILOT_GATEWAY_API_CONTROLLER_NAME).into();
        let mut writes = Vec::new();
        if deployment.takes_over {
            let gateway = ctx.get::<GatewayToDeploy>(origin);
            let uid = gateway.as_ref().as_ref().map_or("", |gateway| &*gateway.meta.uid);
            writes.push(Arc::new(take_over(origin, uid, &manager)));
        }
        let rendered = ctx.get::<RenderedObjects>(origin);
        let objects = match rendered.as_ref() {
            Ok(objects) => objects,
            Err(fault) => return Err((writes, fault.clone())),
        };
        for (target, fields) in objects {
            let seen = ctx.read::<Objects>(&Origin::new(Arc::clone(&origin.cluster), target.clone()));
            // What is not marked is somebody else's, so nothing has been seen of ours.
            let seen = seen.filter(|object| object.meta().label(labels::GATEWAY_MANAGED.name).is_some());
            let change = Change::Manage {
                fields: fields.clone(),
                manager: Arc::clone(&manager),
                mark: labels::GATEWAY_MANAGED.name,
                seen: seen.map(|object| Observed::new(object.meta())),
            };
            writes.push(Arc::new(Write { target: target.clone(), change }));
        }
        Ok(writes)
    }
}

/// Writes to a Gateway which version of the logic deploys it.
///
/// The annotation is applied to the Gateway itself. Istio sends it with the status, where API servers drop it, so that no control
/// plane ever sees that of another.
fn take_over(gateway: &Origin, uid: &str, manager: &Arc<str>) -> Write {
    let mut fields = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"annotations": {annotations::GATEWAY_CONTROLLER_VERSION.name: CONTROLLER_VERSION.to_string()}},
    });
    if !uid.is_empty() {
        // A Gateway that is gone meanwhile must not come back for the sake of an annotation.
        fields["metadata"]["uid"] = uid.into();
    }
    let change = Change::ApplyPart { fields, manager: Arc::clone(manager), subresource: "" };
    Write { target: gateway.key.clone(), change }
}

/// A Gateway without its status, which is written much more often than the rest and says nothing that is deployed.
struct GatewayToDeploy;

impl Query for GatewayToDeploy {
    const NAME: &'static str = "gateway_to_deploy";
    type Key = Origin;
    type Value = Option<Arc<Gateway>>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let object = ctx.read::<Objects>(origin)?;
        if !is_namespace_discovered(ctx, &origin.cluster, origin.namespace()) {
            return None;
        }
        let mut gateway = object.get::<Gateway>()?.as_ref().clone();
        gateway.status = Default::default();
        gateway.meta.resource_version = Box::default();
        Some(Arc::new(gateway))
    }
}

/// The objects that a gateway should have, in the order of the template; or why they cannot be known.
struct RenderedObjects;

impl Query for RenderedObjects {
    const NAME: &'static str = "rendered_gateway_objects";
    type Key = Origin;
    type Value = Result<Vec<(ObjectKey, Value)>, String>;

    fn run(ctx: &Ctx<'_>, origin: &Origin) -> Self::Value {
        let (gateway, deployment) = (ctx.get::<GatewayToDeploy>(origin), ctx.get::<DeploymentOf>(origin));
        let (Some(gateway), Some(deployment)) = (gateway.as_ref(), deployment.as_ref()) else {
            return Ok(Vec::new());
        };
        let Some(installation) = ctx.read::<InstalledTemplates>(&()) else {
            return Err("the injector's configuration was not read, so there are no templates of gateways; install the \
                        ConfigMap istio-sidecar-injector, and leave INJECT_ENABLED on"
                .to_owned());
        };
        let settings = settings(ctx);
        let overlays = overlays(ctx, &settings, gateway)?;
        let rendered = render(ctx, &settings, &installation, gateway, deployment)?;
        let mut objects = Vec::new();
        for object in rendered {
            if let Some(object) = overlay::apply(object, &overlays)? {
                objects.push(overlay::checked(object, gateway, deployment)?);
            }
        }
        Ok(objects)
    }
}

fn render(
    ctx: &Ctx<'_>,
    settings: &MeshSettings,
    installation: &Installation,
    gateway: &Gateway,
    deployment: &GatewayDeployment,
) -> Result<Vec<Value>, String> {
    let injector = &installation.injector;
    let marks = metadata::Marks::new(gateway, &settings.flags, injector.network());
    let configs = all_objects::<ProxyConfig>(ctx);
    let labels: Labels = [(GATEWAY_NAME, &*gateway.meta.name)].into_iter().collect();
    let target = ProxyTarget { namespace: &gateway.meta.namespace, labels: &labels, annotation: None };
    let configs = configs.iter().map(|(_, config)| config.as_ref());
    let proxy_config = mesh_config::effective_proxy_config(injector.mesh(), configs, target);
    let namespace = namespace(ctx, &settings.cluster, &gateway.meta.namespace);
    let namespace_annotations = namespace.map(|namespace| {
        let all = namespace.meta.annotations.iter();
        all.map(|(key, value)| (key.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
    });
    let document = Object::KubernetesGateway(Arc::new(gateway.clone())).to_node().to_json();
    let ports: Vec<Value> = deployment
        .ports
        .iter()
        .map(|port| {
            json!({
                "name": port.name,
                "port": port.number,
                "protocol": if port.is_udp { "UDP" } else { "TCP" },
                "appProtocol": port.application_protocol,
            })
        })
        .collect();
    let (major, minor) = installation.kubernetes_version;
    let input = GatewayInput {
        gateway: &document,
        class: &gateway.spec.gateway_class_name,
        deployment_name: &deployment.name,
        service_account: &deployment.service_account,
        ports: &ports,
        service_type: &deployment.service_type,
        cluster: &settings.cluster,
        kubernetes_version: i64::from(major) * 100 + i64::from(minor),
        native_sidecars: settings.flags.get(ENABLE_NATIVE_SIDECARS) != "false",
        namespace_annotations: namespace_annotations.as_ref(),
        labels: &marks.labels,
        annotations: &marks.annotations,
        is_east_west: deployment.is_east_west,
        controller_label: deployment.controller_label,
        proxy_config: Some(&proxy_config),
    };
    injector.render_gateway(deployment.template, &input).map_err(|error| error.to_string())
}

/// What users lay over the rendered objects: the defaults of the class, then the gateway's own parameters.
fn overlays(
    ctx: &Ctx<'_>,
    settings: &MeshSettings,
    gateway: &Gateway,
) -> Result<Vec<Arc<ConfigMap>>, String> {
    let mut overlays = Vec::from_iter(class_defaults(ctx, settings, &gateway.spec.gateway_class_name));
    let infrastructure = gateway.spec.infrastructure.as_ref();
    let Some(parameters) = infrastructure.and_then(|infrastructure| infrastructure.parameters_ref.as_ref())
    else {
        return Ok(overlays);
    };
    if !parameters.group.is_empty() || &*parameters.kind != Kind::ConfigMap.info().kind {
        return Err(format!(
            "spec.infrastructure.parametersRef: {}/{} cannot hold parameters; refer to a ConfigMap",
            parameters.group, parameters.kind
        ));
    }
    let key = ObjectKey::new(Kind::ConfigMap, &gateway.meta.namespace, &parameters.name);
    let object = ctx.read::<Objects>(&Origin::new(Arc::clone(&settings.cluster), key));
    let Some(map) = object.as_deref().and_then(Object::get::<ConfigMap>) else {
        return Err(format!(
            "spec.infrastructure.parametersRef: ConfigMap {} does not exist in namespace {}; create it",
            parameters.name, gateway.meta.namespace
        ));
    };
    overlays.push(Arc::clone(map));
    Ok(overlays)
}

/// The oldest ConfigMap with defaults for a class.
fn class_defaults(ctx: &Ctx<'_>, settings: &MeshSettings, class: &str) -> Option<Arc<ConfigMap>> {
    let cluster = Arc::clone(&settings.cluster);
    let index = ObjectIndex::InCluster(Kind::ConfigMap, cluster, (&*settings.system_namespace).into());
    let origins = ctx.members::<Objects>(&index);
    let objects = origins.iter().filter_map(|origin| ctx.read::<Objects>(origin));
    let maps = objects.filter_map(|object| object.get::<ConfigMap>().cloned());
    maps.filter(|map| map.meta.label(CLASS_DEFAULTS) == Some(class))
        .min_by_key(|map| (map.meta.creation_timestamp, map.meta.name.clone()))
}

/// The text of an overlay as a tree.
fn parse_overlay(text: &str) -> Result<Value, String> {
    let document = canopus_base::yaml::parse_one(text, &canopus_base::tree::Limits::default());
    document.map(|node: Node| node.to_json()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
