//! Whether an IstioOperator makes sense: unknown fields, types of values, settings that exclude each other.

use canopus_api::builtin;
use canopus_api::mesh_config;
use canopus_api::validate::{self, Report};
use canopus_base::labels::is_dns_label;
use canopus_base::net;
use canopus_base::tree::Node;
use serde_json::Value as Json;

use crate::Operator;
use crate::schema;
use crate::tree::{self, Tree, kind};

#[derive(Default)]
pub(crate) struct Checked {
    pub(crate) errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

const TOP: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
const SPEC: [&str; 11] = [
    "profile",
    "installPackagePath",
    "hub",
    "tag",
    "namespace",
    "revision",
    "compatibilityVersion",
    "meshConfig",
    "components",
    "values",
    "unvalidatedValues",
];
const COMPONENTS: [&str; 7] =
    ["base", "pilot", "cni", "ztunnel", "istiodRemote", "ingressGateways", "egressGateways"];
const COMPONENT: [&str; 7] = ["enabled", "namespace", "hub", "tag", "k8s", "name", "label"];

/// Settings under `k8s`, with the type of each: a Kubernetes struct, a list of one, or a plain type.
const KUBERNETES: [(&str, &str); 19] = [
    ("affinity", "core/v1.Affinity"),
    ("env", "[]core/v1.EnvVar"),
    ("hpaSpec", "autoscaling/v2.HorizontalPodAutoscalerSpec"),
    ("imagePullPolicy", "string"),
    ("nodeSelector", "map"),
    ("podDisruptionBudget", "policy/v1.PodDisruptionBudgetSpec"),
    ("podAnnotations", "map"),
    ("priorityClassName", "string"),
    ("readinessProbe", "core/v1.Probe"),
    ("replicaCount", "integer"),
    ("resources", "core/v1.ResourceRequirements"),
    ("service", "core/v1.ServiceSpec"),
    ("strategy", "apps/v1.DeploymentStrategy"),
    ("tolerations", "[]core/v1.Toleration"),
    ("serviceAnnotations", "map"),
    ("securityContext", "core/v1.PodSecurityContext"),
    ("volumes", "[]core/v1.Volume"),
    ("volumeMounts", "[]core/v1.VolumeMount"),
    ("overlays", "list"),
];

/// Values that are parts of Kubernetes objects.
const KUBERNETES_VALUES: [(&str, &str); 12] = [
    ("cni.affinity", "core/v1.Affinity"),
    ("cni.seccompProfile", "core/v1.SeccompProfile"),
    ("global.defaultTolerations", "[]core/v1.Toleration"),
    ("global.proxy.lifecycle", "core/v1.Lifecycle"),
    ("global.proxy.seccompProfile", "core/v1.SeccompProfile"),
    ("global.waypoint.affinity", "core/v1.Affinity"),
    ("pilot.affinity", "core/v1.Affinity"),
    ("pilot.seccompProfile", "core/v1.SeccompProfile"),
    ("pilot.tolerations", "[]core/v1.Toleration"),
    ("pilot.topologySpreadConstraints", "[]core/v1.TopologySpreadConstraint"),
    ("pilot.volumeMounts", "[]core/v1.VolumeMount"),
    ("pilot.volumes", "[]core/v1.Volume"),
];

pub(crate) fn check(operator: &Operator) -> Checked {
    let mut checked = Checked::default();
    let tree = &operator.tree;
    unknown_keys(tree, &TOP, "", &mut checked.errors);
    let empty = Tree::new();
    let spec = tree::get_map(tree, "spec").unwrap_or(&empty);
    unknown_keys(spec, &SPEC, "spec.", &mut checked.errors);
    for field in ["profile", "installPackagePath", "hub", "namespace", "revision", "compatibilityVersion"] {
        if let Some(other) = spec.get(field).filter(|value| !value.is_string() && !value.is_null()) {
            checked.errors.push(format!("spec.{field}: expected a string, found a {}", kind(other)));
        }
    }
    let revision = tree::get_text(tree, "spec.revision");
    if !revision.is_empty() && !is_dns_label(revision) {
        let remedy = "use at most 63 lower-case letters, digits and dashes";
        checked.errors.push(format!("invalid revision specified: {revision}; {remedy}"));
    }
    components(spec, &mut checked);
    let values = spec.get("values").cloned().unwrap_or_default();
    checked.errors.extend(schema::check(&values));
    ranges_and_ports(&values, &mut checked.errors);
    for (path, kind) in KUBERNETES_VALUES {
        if let Some(value) = values.as_object().and_then(|values| tree::get(values, path)) {
            let errors = kubernetes(kind, value).into_iter();
            checked.errors.extend(errors.map(|error| format!("invalid schema for {path}: {error}")));
        }
    }
    for mesh in [spec.get("meshConfig"), values.get("meshConfig")].into_iter().flatten() {
        mesh_settings(mesh, &mut checked);
    }
    ports(spec, &values, &mut checked.errors);
    replicas(spec, &values, &mut checked.warnings);
    checked
}

fn unknown_keys(tree: &Tree, known: &[&str], path: &str, errors: &mut Vec<String>) {
    let unknown = tree.keys().filter(|key| !known.contains(&key.as_str()));
    errors.extend(
        unknown.map(|key| format!("could not unmarshal: json: unknown field {key:?} at {path}{key}")),
    );
}

/// Each instance of a component, with the path that leads to it.
fn instances(spec: &Tree) -> Vec<(String, &Tree)> {
    let components = spec.get("components").and_then(Json::as_object);
    let mut found = Vec::new();
    for (name, value) in components.into_iter().flatten() {
        match value {
            Json::Object(map) => found.push((format!("spec.components.{name}"), map)),
            Json::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    found.extend(item.as_object().map(|map| (format!("spec.components.{name}[{at}]"), map)));
                }
            }
            _ => {}
        }
    }
    found
}

fn components(spec: &Tree, checked: &mut Checked) {
    if let Some(components) = spec.get("components").and_then(Json::as_object) {
        unknown_keys(components, &COMPONENTS, "spec.components.", &mut checked.errors);
    }
    for (path, instance) in instances(spec) {
        unknown_keys(instance, &COMPONENT, &format!("{path}."), &mut checked.errors);
        if let Some(name) = instance.get("name").and_then(Json::as_str).filter(|name| !is_object_name(name)) {
            checked.errors.push(format!(
                "{path}.name: invalid value {name}; use lower-case letters, digits, dots and dashes"
            ));
        }
        let Some(settings) = instance.get("k8s").and_then(Json::as_object) else { continue };
        for (key, value) in settings {
            match KUBERNETES.iter().find(|(known, _)| known == key) {
                None => {
                    let error =
                        format!("could not unmarshal: json: unknown field {key:?} at {path}.k8s.{key}");
                    checked.errors.push(error);
                }
                Some((_, kind)) => {
                    let errors = kubernetes(kind, value).into_iter();
                    checked.errors.extend(
                        errors.map(|error| format!("could not unmarshal: {path}.k8s.{key}: {error}")),
                    );
                }
            }
        }
    }
}

fn is_object_name(name: &str) -> bool {
    name.len() <= 254 && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'))
}

/// What keeps a value from being of a type of Kubernetes'.
fn kubernetes(expected: &str, value: &Json) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let fits = match expected {
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "map" => value.is_object(),
        "list" => value.is_array(),
        _ => return kubernetes_struct(expected, value),
    };
    (!fits).then(|| format!("expected a {expected}, found a {}", kind(value)))
}

fn kubernetes_struct(expected: &str, value: &Json) -> Option<String> {
    if let Some(item) = expected.strip_prefix("[]") {
        let Json::Array(items) = value else {
            return Some(format!("expected a list, found a {}", kind(value)));
        };
        let numbered = items.iter().enumerate();
        return numbered
            .filter_map(|(at, value)| Some(format!("[{at}]: {}", kubernetes_struct(item, value)?)))
            .next();
    }
    let kind = builtin::struct_type(expected)?;
    if let Err(error) = kind.normalize(&mut value.clone()) {
        return Some(error.to_string());
    }
    kind.unknown_field(value).map(|path| format!("unknown field {path:?}"))
}

fn ranges_and_ports(values: &Json, errors: &mut Vec<String>) {
    let text = |field: &str| {
        values.pointer(&format!("/global/proxy/{field}")).and_then(Json::as_str).unwrap_or_default()
    };
    for field in ["includeIPRanges", "excludeIPRanges"] {
        for range in text(field).split(',').filter(|range| !matches!(*range, "*" | "")) {
            if let Err(error) = net::parse_prefix(range) {
                errors.push(format!("global.proxy.{field} {error}"));
            }
        }
    }
    for field in ["includeInboundPorts", "excludeInboundPorts"] {
        for port in text(field).split(',').filter(|port| !matches!(*port, "*" | "")) {
            if port.parse::<u16>().is_err() {
                errors.push(format!("global.proxy.{field}: {port:?} is no port number"));
            }
        }
    }
}

fn mesh_settings(mesh: &Json, checked: &mut Checked) {
    let node = Node::from(mesh.clone());
    match mesh_config::apply_node(&node, &mesh_config::default_mesh_config()) {
        Err(error) => checked.errors.push(format!("meshConfig: {error}")),
        Ok(decoded) => {
            // Parity: only warnings of a mesh configuration that could be read are told.
            let report: Report =
                validate::fragment(|scope| validate::mesh_config::check(&decoded.value, scope));
            checked.warnings.extend(report.warning_text());
        }
    }
}

/// Gateways that do not run as root cannot listen on low ports.
fn ports(spec: &Tree, values: &Json, errors: &mut Vec<String>) {
    for (components, gateway) in
        [("ingressGateways", "istio-ingressgateway"), ("egressGateways", "istio-egressgateway")]
    {
        let as_root = values.pointer(&format!("/gateways/{gateway}/runAsRoot")).and_then(Json::as_bool);
        if as_root == Some(true) {
            continue;
        }
        let path = format!("components.{components}");
        for item in tree::get(spec, &path).and_then(Json::as_array).into_iter().flatten() {
            let name = item.get("name").and_then(Json::as_str).unwrap_or_default();
            for port in item.pointer("/k8s/service/ports").and_then(Json::as_array).into_iter().flatten() {
                let number = |field: &str| port.get(field).and_then(Json::as_i64).unwrap_or_default();
                let (target, own) = (number("targetPort"), number("port"));
                let is_named = port.get("targetPort").is_some_and(Json::is_string);
                if is_named || (target == 0 && own > 1024) || target >= 1024 {
                    continue;
                }
                let port_name = port.get("name").and_then(Json::as_str).unwrap_or_default();
                errors.push(format!(
                    "port {port_name}/{own} in gateway {name} invalid: targetPort is set to {target}, which requires root. \
                     Set targetPort to be greater than 1024 or configure values.gateways.{gateway}.runAsRoot=true"
                ));
            }
        }
    }
}

/// An autoscaler and a number of replicas fight each other.
fn replicas(spec: &Tree, values: &Json, warnings: &mut Vec<String>) {
    let autoscaled = |path: &str| values.pointer(path).and_then(Json::as_bool) == Some(true);
    let count = |json: &Json| json.pointer("/k8s/replicaCount").and_then(Json::as_i64).unwrap_or_default();
    let pilot = tree::get(spec, "components.pilot");
    if autoscaled("/pilot/autoscaleEnabled") && pilot.is_some_and(|pilot| count(pilot) > 1) {
        let setting = "components.pilot.k8s.replicaCount";
        warnings.push(format!("{setting} should not be set when values.pilot.autoscaleEnabled is true"));
    }
    for kind in ["ingress", "egress"] {
        if !autoscaled(&format!("/gateways/istio-{kind}gateway/autoscaleEnabled")) {
            continue;
        }
        let gateways = tree::get(spec, &format!("components.{kind}Gateways")).and_then(Json::as_array);
        for gateway in gateways.into_iter().flatten().filter(|gateway| count(gateway) != 0) {
            let name = gateway.get("name").and_then(Json::as_str).unwrap_or_default();
            warnings.push(format!(
                "components.{kind}Gateways[name={name}].k8s.replicaCount should not be set when \
                 values.gateways.istio-{kind}gateway.autoscaleEnabled is true"
            ));
        }
    }
}
