//! Templates rendered for a pod and merged over it.

use std::collections::BTreeMap;
use std::fmt;

use canopus_api::builtin;
use canopus_base::tree::Limits;
use canopus_base::yaml;
use canopus_gotemplate::{Budget, Map, Object, Value};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::inbound_traffic_policy::Mode;
use serde_json::{Value as Json, json};

use super::pod::{self, CONTAINERS, INIT_CONTAINERS, PROXY};
use super::struct_object::StructObject;
use super::{InjectionError, Injector, Subject, openshift, overrides};

const TEMPLATES: &str = "inject.istio.io/templates";
const NATIVE: &str = "sidecar.istio.io/nativeSidecar";

/// What templates made.
pub(super) struct Rendered {
    /// The pod with all templates merged over it.
    pub(super) merged: Json,
    /// The templates merged over nothing: what was injected.
    pub(super) template: Json,
}

pub(super) fn render(
    injector: &Injector,
    original: &Json,
    subject: &Subject<'_>,
) -> Result<Rendered, InjectionError> {
    let stripped = overrides::strip(original, injector.status_port())?;
    let data = template_data(injector, &stripped, subject)?;
    let native = match pod::annotation(original, NATIVE) {
        Some("true") => true,
        Some("false") => false,
        _ => subject.native_sidecars,
    };
    let mut merged = original.clone();
    let mut template = builtin::pod().zero();
    for name in selected_templates(injector, original) {
        let overlay = render_template(injector, &name, &data)?;
        lay_over(&mut template, overlay.clone())?;
        if native
            && pod::find(pod::containers(&template, INIT_CONTAINERS), PROXY).is_some()
            && pod::find(pod::containers(&merged, CONTAINERS), PROXY).is_some()
        {
            move_proxy_to_init(&mut merged);
        }
        lay_over(&mut merged, overlay)?;
    }
    Ok(Rendered { merged, template })
}

fn lay_over(pod: &mut Json, overlay: Json) -> Result<(), InjectionError> {
    builtin::pod()
        .merge(pod, overlay)
        .map_err(|error| InjectionError::Overlay(format!("strategic merge: {error}")))?;
    builtin::pod()
        .normalize(pod)
        .map_err(|error| InjectionError::Overlay(format!("unmarshal patched pod: json: {error}")))
}

/// Users set a native sidecar among the containers; templates have it among the init containers.
fn move_proxy_to_init(pod: &mut Json) {
    let Some(containers) = pod::containers_mut(pod, CONTAINERS) else { return };
    let Some(at) = containers.iter().position(|container| pod::name(container) == PROXY) else { return };
    let proxy = containers.remove(at);
    match pod::object_mut(pod, "spec").entry(INIT_CONTAINERS).or_insert_with(|| json!([])) {
        Json::Array(items) => items.push(proxy),
        other => *other = json!([proxy]),
    }
}

/// The templates that a pod asks for, or the default ones, with aliases expanded once.
fn selected_templates(injector: &Injector, pod: &Json) -> Vec<String> {
    let asked = pod::annotation(pod, TEMPLATES)
        .map(|names| names.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>());
    let names = asked.unwrap_or_else(|| injector.config.default_templates.clone());
    let expand = |name: String| match injector.config.aliases.get(&name) {
        Some(names) => names.clone(),
        None => vec![name],
    };
    names.into_iter().flat_map(expand).collect()
}

/// Renders a template to the part of a pod that it describes.
fn render_template(injector: &Injector, name: &str, data: &Value) -> Result<Json, InjectionError> {
    let Some(templates) = injector.config.templates.get(name) else {
        let known: Vec<&str> = injector.config.templates.keys().map(String::as_str).collect();
        return Err(InjectionError::UnknownTemplate { name: name.to_owned(), known: known.join(", ") });
    };
    let text =
        templates.render("inject", data).map_err(|error| InjectionError::Template(error.to_string()))?;
    // Istio's own template names a volume of the user's twice, and the second name counts.
    let parsed = yaml::parse_one_lenient(&text, &Limits::default());
    // Parity: Istio says this of whatever is no map, without a place.
    let document =
        parsed.map_err(|_| InjectionError::Overlay("strategic merge: invalid JSON document".to_owned()))?;
    match document.to_json() {
        json @ (Json::Object(_) | Json::Null) => Ok(json),
        _ => Err(InjectionError::Overlay("strategic merge: invalid JSON document".to_owned())),
    }
}

/// The dot of a template.
fn template_data(injector: &Injector, pod: &Json, subject: &Subject<'_>) -> Result<Value, InjectionError> {
    let (user, group) = openshift::proxy_ids(subject.namespace_annotations);
    let owner = &subject.owner;
    let (proxy_config, proxy_object) = injector.proxy_config(subject);
    let structs =
        |pairs: [(&str, &str); 2]| Value::map(pairs.map(|(key, value)| (key, Value::string(value))));
    let part = |field: &str, name: &str| {
        let kind =
            builtin::struct_type(name).ok_or_else(|| InjectionError::Template(format!("no type {name}")))?;
        Ok::<_, InjectionError>(Value::object(StructObject::new(kind, pod.get(field))))
    };
    let mode = injector
        .mesh
        .inbound_traffic_policy
        .as_ref()
        .map(canopus_proto::istio::mesh::v1alpha1::mesh_config::InboundTrafficPolicy::mode);
    let mode = if mode == Some(Mode::Localhost) { "localhost" } else { "passthrough" };
    let values = &injector.values.tree;
    let values = if injector.config.changes_values {
        let copy = values.deep_copy(&Budget::default());
        copy.map_err(|error| InjectionError::Template(error.to_string()))?
    } else {
        values.clone()
    };
    let fields = [
        ("TypeMeta", structs([("Kind", &owner.kind), ("APIVersion", &owner.api_version)])),
        ("DeploymentMeta", structs([("Name", &owner.name), ("Namespace", &owner.namespace)])),
        ("ObjectMeta", part("metadata", "meta/v1.ObjectMeta")?),
        ("Spec", part("spec", "core/v1.PodSpec")?),
        ("ProxyConfig", proxy_object),
        ("MeshConfig", injector.mesh_object.clone()),
        ("Values", values),
        ("Revision", Value::string(injector.revision.as_str())),
        ("NativeSidecars", Value::Bool(subject.native_sidecars)),
        ("ProxyImage", Value::string(injector.values.proxy_image_of(proxy_config, pod))),
        ("ProxyInitImage", Value::string(injector.values.init_image_of(pod))),
        ("ProxyUID", Value::int64(user)),
        ("ProxyGID", Value::int64(group)),
        ("InboundTrafficPolicyMode", Value::string(mode)),
        ("CompliancePolicy", Value::string(injector.compliance_policy.as_str())),
    ];
    Ok(Value::object(TemplateData { fields: fields.into_iter().collect() }))
}

/// The struct that templates are rendered with.
struct TemplateData {
    fields: BTreeMap<&'static str, Value>,
}

impl fmt::Debug for TemplateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TemplateData")
    }
}

impl Object for TemplateData {
    fn type_name(&self) -> std::borrow::Cow<'static, str> {
        "*inject.SidecarTemplateData".into()
    }

    fn field(&self, name: &str) -> Option<Value> {
        self.fields.get(name).cloned()
    }

    fn print(&self) -> String {
        "{SidecarTemplateData}".to_owned()
    }

    fn encode(&self) -> Value {
        Value::Map(self.fields.iter().map(|(name, value)| (*name, value.clone())).collect::<Map>())
    }
}
