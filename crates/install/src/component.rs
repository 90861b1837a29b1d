//! The parts of a mesh that can be installed, and what an IstioOperator says of each.

use canopus_base::quantity::Quantity;
use serde_json::{Value as Json, json};

use crate::tree::{self, Tree};
use crate::{Error, Operator};

/// A part of a mesh.
#[derive(Debug)]
pub struct Component {
    /// What users call it.
    pub name: &'static str,
    /// Key of the component under `spec.components`.
    pub key: &'static str,
    /// The name of its chart in Istio's Helm repository, if it has one of its own.
    pub helm_chart: Option<&'static str>,
    /// Path of the component's chart, below `charts`.
    pub(crate) chart: &'static str,
    /// Whether it is installed if nothing is said of it.
    is_default: bool,
    /// Whether there can be several.
    is_list: bool,
    /// Kind and name of the workload that it is.
    pub(crate) workload: Option<(&'static str, &'static str)>,
    pub(crate) container: &'static str,
    /// Where its values are.
    pub(crate) values_root: &'static str,
    /// Whether the chart has its values at the top.
    is_flat: bool,
    /// A value that switches it on too.
    alternative_switch: Option<&'static str>,
}

/// All components, in the order they are rendered.
pub(crate) const COMPONENTS: [Component; 6] = [
    Component {
        name: "Base",
        key: "base",
        helm_chart: Some("base"),
        chart: "base",
        is_default: true,
        is_list: false,
        workload: None,
        container: "",
        values_root: "global",
        is_flat: false,
        alternative_switch: None,
    },
    Component {
        name: "Pilot",
        key: "pilot",
        helm_chart: Some("istiod"),
        chart: "istio-control/istio-discovery",
        is_default: true,
        is_list: false,
        workload: Some(("Deployment", "istiod")),
        container: "discovery",
        values_root: "pilot",
        is_flat: false,
        alternative_switch: None,
    },
    Component {
        name: "IngressGateways",
        key: "ingressGateways",
        helm_chart: None,
        chart: "gateways/istio-ingress",
        is_default: true,
        is_list: true,
        workload: Some(("Deployment", "istio-ingressgateway")),
        container: "istio-proxy",
        values_root: "gateways.istio-ingressgateway",
        is_flat: false,
        alternative_switch: Some("spec.values.gateways.istio-ingressgateway.enabled"),
    },
    Component {
        name: "EgressGateways",
        key: "egressGateways",
        helm_chart: None,
        chart: "gateways/istio-egress",
        is_default: false,
        is_list: true,
        workload: Some(("Deployment", "istio-egressgateway")),
        container: "istio-proxy",
        values_root: "gateways.istio-egressgateway",
        is_flat: false,
        alternative_switch: Some("spec.values.gateways.istio-egressgateway.enabled"),
    },
    Component {
        name: "Cni",
        key: "cni",
        helm_chart: Some("cni"),
        chart: "istio-cni",
        is_default: false,
        is_list: false,
        workload: Some(("DaemonSet", "istio-cni-node")),
        container: "install-cni",
        values_root: "cni",
        is_flat: false,
        alternative_switch: None,
    },
    Component {
        name: "Ztunnel",
        key: "ztunnel",
        helm_chart: Some("ztunnel"),
        chart: "ztunnel",
        is_default: false,
        is_list: false,
        workload: Some(("DaemonSet", "ztunnel")),
        container: "istio-proxy",
        values_root: "ztunnel",
        is_flat: true,
        alternative_switch: None,
    },
];

/// One instance of a component that is to be installed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Instance {
    pub(crate) namespace: String,
    /// The name of a gateway.
    pub(crate) name: String,
    labels: Tree,
    hub: String,
    tag: Option<Json>,
    /// `k8s`, as the user wrote it.
    pub(crate) kubernetes: Option<Tree>,
}

impl Component {
    pub(crate) fn is_gateway(&self) -> bool {
        self.is_list
    }

    /// The instances that an operator asks for.
    pub(crate) fn instances(&self, operator: &Operator) -> Result<Vec<Instance>, Error> {
        let tree = &operator.tree;
        let switched_on = self.alternative_switch.is_some_and(|path| tree::is_true(tree, path));
        let namespace = tree::get_text(tree, "metadata.namespace");
        let default = || {
            let present = self.is_default || switched_on;
            let instance = Instance { namespace: namespace.to_owned(), ..Instance::default() };
            if present { vec![instance] } else { Vec::new() }
        };
        let refused = |reason: String| Error::Component { component: self.name, reason };
        let specs: Vec<&Json> = match tree::get(tree, &format!("spec.components.{}", self.key)) {
            None => return Ok(default()),
            Some(Json::Array(items)) if self.is_list => items.iter().collect(),
            Some(map @ Json::Object(_)) if !self.is_list => vec![map],
            Some(Json::Null) => return Ok(default()),
            Some(other) => {
                let expected = if self.is_list { "a list" } else { "a map" };
                return Err(refused(format!(
                    "spec.components.{}: expected {expected}, found a {}",
                    self.key,
                    tree::kind(other)
                )));
            }
        };
        let mut instances = Vec::new();
        for spec in specs {
            let spec = spec
                .as_object()
                .ok_or_else(|| refused(format!("expected a map, found a {}", tree::kind(spec))))?;
            let enabled = match spec.get("enabled") {
                None | Some(Json::Null) => true,
                Some(Json::Bool(enabled)) => *enabled,
                Some(other) => {
                    return Err(refused(format!(
                        "enabled: expected true or false, found a {}",
                        tree::kind(other)
                    )));
                }
            };
            if enabled || switched_on {
                instances.push(instance(spec, namespace).map_err(refused)?);
            }
        }
        Ok(instances)
    }

    /// The values that the chart of an instance is rendered with.
    pub(crate) fn values(&self, instance: &Instance, operator: &Operator) -> Result<Json, Error> {
        let mut values = match operator.values() {
            Json::Object(values) => values,
            _ => Tree::new(),
        };
        let refused = |reason: String| Error::Component { component: self.name, reason };
        let set = |values: &mut Tree, path: &str, value: Json| {
            tree::set(values, &format!("{}.{path}", self.values_root), value).map_err(refused)
        };
        let kubernetes = instance.kubernetes.as_ref();
        let field = |path: &str| kubernetes.and_then(|kubernetes| tree::get(kubernetes, path));
        if self.is_gateway() {
            set(&mut values, "name", json!(instance.name))?;
            set(&mut values, "labels", Json::Object(instance.labels.clone()))?;
            if let Some(ports) =
                field("service.ports").filter(|ports| ports.as_array().is_some_and(|ports| !ports.is_empty()))
            {
                set(&mut values, "ports", service_ports(ports))?;
            }
        }
        // Charts decide by these whether there is an autoscaler and a disruption budget.
        if matches!(self.workload, Some(("Deployment", _))) {
            for (from, to) in [
                ("hpaSpec.minReplicas", "autoscaleMin"),
                ("hpaSpec.maxReplicas", "autoscaleMax"),
                ("replicaCount", "replicaCount"),
            ] {
                let always = from == "hpaSpec.minReplicas";
                if let Some(count) = field(from).and_then(Json::as_i64).filter(|count| always || *count > 0) {
                    set(&mut values, to, json!(count))?;
                }
            }
        }
        for bound in ["limits", "requests"] {
            let cpu = field(&format!("resources.{bound}.cpu")).and_then(quantity).filter(|cpu| cpu != "0");
            if let Some(cpu) = cpu {
                set(&mut values, &format!("resources.{bound}.cpu"), json!(cpu))?;
            }
        }
        if !instance.hub.is_empty() {
            set(&mut values, "hub", json!(instance.hub))?;
        }
        if let Some(tag) = &instance.tag {
            set(&mut values, "tag", tag.clone())?;
        }
        if self.is_flat
            && let Some(own) = tree::get_map(&values, self.values_root).cloned()
        {
            let global = values.remove("global").unwrap_or_default();
            values.retain(|_, value| !value.is_object());
            values.insert("global".to_owned(), global);
            values.extend(own);
        }
        Ok(Json::Object(values))
    }
}

/// Ports of a Service as Go encodes them.
fn service_ports(ports: &Json) -> Json {
    let mut ports = ports.clone();
    if let Some(kind) = canopus_api::builtin::struct_type("core/v1.ServicePort") {
        for port in ports.as_array_mut().into_iter().flatten() {
            // What is wrong with a port was reported when the operator was validated.
            let _ = kind.normalize(port);
        }
    }
    ports
}

fn quantity(json: &Json) -> Option<String> {
    let text = match json {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        _ => return None,
    };
    Some(text.parse::<Quantity>().ok()?.canonical())
}

fn instance(spec: &Tree, namespace: &str) -> Result<Instance, String> {
    let text = |field: &str| match spec.get(field) {
        None | Some(Json::Null) => Ok(String::new()),
        Some(Json::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("{field}: expected a string, found a {}", tree::kind(other))),
    };
    let map = |field: &str| match spec.get(field) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Object(map)) => Ok(Some(map.clone())),
        Some(other) => Err(format!("{field}: expected a map, found a {}", tree::kind(other))),
    };
    let mut own_namespace = text("namespace")?;
    if own_namespace.is_empty() {
        own_namespace = if namespace.is_empty() { "istio-system" } else { namespace }.to_owned();
    }
    Ok(Instance {
        namespace: own_namespace,
        name: text("name")?,
        labels: map("label")?.unwrap_or_default(),
        hub: text("hub")?,
        tag: spec.get("tag").filter(|tag| !tag.is_null()).cloned(),
        kubernetes: map("k8s")?,
    })
}
