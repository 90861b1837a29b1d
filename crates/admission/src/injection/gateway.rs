//! Templates of gateways, rendered: `kube-gateway`, `waypoint`, and what users put in their place.
//!
//! They are part of the injector's configuration and use the same functions, but are given a Gateway instead of a pod and
//! make whole objects instead of a part of a pod.

use std::borrow::Cow;
use std::collections::BTreeMap;

use canopus_api::builtin;
use canopus_base::tree::Limits;
use canopus_base::yaml;
use canopus_gotemplate::{Budget, IntKind, Map, MapKind, Object, Str, Value};
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use serde_json::Value as Json;

use super::struct_object::StructObject;
use super::{Injector, MessageObject, openshift};

/// The label whose value is the name of the gateway that a pod belongs to.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// A gateway to deploy, as its template sees it.
#[derive(Debug)]
pub struct GatewayInput<'a> {
    /// The Gateway, with its type, metadata and spec.
    pub gateway: &'a Json,
    /// The name of its class.
    pub class: &'a str,
    /// The name of the Deployment and the Service.
    pub deployment_name: &'a str,
    /// The name of the ServiceAccount.
    pub service_account: &'a str,
    /// The ports of the Service, each a Kubernetes `ServicePort`.
    pub ports: &'a [Json],
    /// The type of the Service.
    pub service_type: &'a str,
    /// The cluster of the control plane.
    pub cluster: &'a str,
    /// The version of Kubernetes: 128 for 1.28.
    pub kubernetes_version: i64,
    /// Whether proxies may run as init containers that restart.
    pub native_sidecars: bool,
    /// Annotations of the gateway's namespace, where OpenShift gives user IDs.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
    /// Labels of everything that is deployed.
    pub labels: &'a BTreeMap<String, String>,
    /// Annotations of everything that is deployed.
    pub annotations: &'a BTreeMap<String, String>,
    /// Whether the gateway connects networks of an ambient mesh.
    pub is_east_west: bool,
    /// Which controller manages what is deployed, as a label says it.
    pub controller_label: &'a str,
    /// The settings of the gateway's proxies; none if nothing but the mesh says something of them.
    pub proxy_config: Option<&'a ProxyConfig>,
}

/// Why a template of gateways gives nothing that could be deployed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayTemplateError {
    /// The configuration has no such template.
    #[error("the injector's configuration has no template {0:?}; install one, or the charts that have it")]
    Missing(String),
    /// The template failed.
    #[error("template {name:?}: {reason}")]
    Failed {
        /// The template.
        name: String,
        /// Where and why it failed.
        reason: String,
    },
    /// The template gave something that is no list of objects.
    #[error("template {name:?} renders to something that is no Kubernetes object: {reason}")]
    Output {
        /// The template.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Injector {
    /// The network of proxies that nothing else says a network of.
    pub fn network(&self) -> &str {
        &self.values.network
    }

    /// Renders a template for a gateway to the objects it describes.
    pub fn render_gateway(
        &self,
        template: &str,
        input: &GatewayInput<'_>,
    ) -> Result<Vec<Json>, GatewayTemplateError> {
        let Some(templates) = self.config.templates.get(template) else {
            return Err(GatewayTemplateError::Missing(template.to_owned()));
        };
        let failed = |reason: String| GatewayTemplateError::Failed { name: template.to_owned(), reason };
        let data = self.gateway_data(input).map_err(failed)?;
        let text = templates.render("inject", &data).map_err(|error| failed(error.to_string()))?;
        let wrong = |reason: String| GatewayTemplateError::Output { name: template.to_owned(), reason };
        let mut objects = Vec::new();
        for document in yaml::parse_all(&text, &Limits::default()) {
            match document.map_err(|error| wrong(error.to_string()))?.node.to_json() {
                Json::Null => {}
                object @ Json::Object(_) => objects.push(object),
                _ => return Err(wrong("a document is no map".to_owned())),
            }
        }
        Ok(objects)
    }

    fn gateway_data(&self, input: &GatewayInput<'_>) -> Result<Value, String> {
        let (user, group) = openshift::proxy_ids(input.namespace_annotations);
        let (proxy, proxy_object) = match input.proxy_config {
            Some(config) => (config, Value::object(MessageObject::new(config))),
            None => (&self.default_proxy.0, self.default_proxy.1.clone()),
        };
        let values = &self.values.tree;
        let values = if self.config.changes_values {
            values.deep_copy(&Budget::default()).map_err(|error| error.to_string())?
        } else {
            values.clone()
        };
        let table = |name: &str| builtin::struct_type(name).ok_or_else(|| format!("no type {name}"));
        let port = table("core/v1.ServicePort")?;
        let ports = input.ports.iter().map(|json| Value::object(StructObject::new(port, Some(json))));
        let meta = StructObject::new(table("meta/v1.ObjectMeta")?, input.gateway.get("metadata"));
        let fields = [
            ("Spec", Value::object(JsonStruct::new("v1.GatewaySpec", input.gateway.get("spec")))),
            ("Status", Value::object(JsonStruct::new("v1.GatewayStatus", input.gateway.get("status")))),
            ("GatewayClass", Value::string(input.class)),
            ("DeploymentName", Value::string(input.deployment_name)),
            ("ServiceAccount", Value::string(input.service_account)),
            ("Ports", Value::list(ports)),
            ("ServiceType", Value::string(input.service_type)),
            ("ClusterID", Value::string(input.cluster)),
            ("KubeVersion", Value::int(input.kubernetes_version)),
            ("Revision", Value::string(self.revision.as_str())),
            ("NativeSidecars", Value::Bool(input.native_sidecars)),
            ("ProxyUID", Value::int64(user)),
            ("ProxyGID", Value::int64(group)),
            ("CompliancePolicy", Value::string(self.compliance_policy.as_str())),
            ("InfrastructureLabels", string_map(input.labels)),
            ("InfrastructureAnnotations", string_map(input.annotations)),
            ("GatewayNameLabel", Value::string(GATEWAY_NAME)),
            ("IsEastWestGateway", Value::Bool(input.is_east_west)),
            ("ControllerLabel", Value::string(input.controller_label)),
            ("ProxyImage", Value::string(self.values.proxy_image_of(proxy, input.gateway))),
            ("AgentgatewayImage", Value::string(self.values.agentgateway_image_of(proxy, input.gateway))),
            ("ProxyConfig", proxy_object),
            ("MeshConfig", self.mesh_object.clone()),
            ("Values", values),
        ];
        Ok(Value::object(GatewayData { fields: fields.into_iter().collect(), meta: Value::object(meta) }))
    }
}

fn string_map(map: &BTreeMap<String, String>) -> Value {
    let entries = map.iter().map(|(key, value)| (Str::from(key.as_str()), Value::string(value.as_str())));
    Value::Map(Map::typed(MapKind::String, entries.collect()))
}

/// The struct that templates of gateways are rendered with. As in Go, the fields of the Gateway and of its metadata are
/// fields of it too.
#[derive(Debug)]
struct GatewayData {
    fields: BTreeMap<&'static str, Value>,
    meta: Value,
}

impl Object for GatewayData {
    fn type_name(&self) -> Cow<'static, str> {
        "gatewaycommon.derivedInput".into()
    }

    fn field(&self, name: &str) -> Option<Value> {
        if name == "ObjectMeta" {
            return Some(self.meta.clone());
        }
        self.fields.get(name).cloned().or_else(|| match &self.meta {
            Value::Object(meta) => meta.field(name),
            _ => None,
        })
    }

    fn print(&self) -> String {
        "{derivedInput}".to_owned()
    }

    fn encode(&self) -> Value {
        Value::Map(self.fields.iter().map(|(name, value)| (*name, value.clone())).collect::<Map>())
    }
}

/// Fields whose value is a map and no struct.
const MAPS: [&str; 4] = ["labels", "annotations", "options", "matchLabels"];

/// A struct of Gateway API, whose Go types no table has. Go's field names are the names in JSON with other capitals, so a
/// field is found whatever its capitals are. A field that is not set is nil, where Go has the zero value of its type.
#[derive(Debug)]
struct JsonStruct {
    name: &'static str,
    fields: serde_json::Map<String, Json>,
}

impl JsonStruct {
    fn new(name: &'static str, json: Option<&Json>) -> Self {
        Self { name, fields: json.and_then(Json::as_object).cloned().unwrap_or_default() }
    }
}

fn convert(name: &str, json: &Json) -> Value {
    match json {
        Json::Object(fields) if MAPS.contains(&name) => {
            let entries =
                fields.iter().map(|(key, value)| (Str::from(key.as_str()), Value::from(value.clone())));
            Value::Map(Map::typed(MapKind::String, entries.collect()))
        }
        Json::Object(_) => Value::object(JsonStruct::new("v1.Struct", Some(json))),
        Json::Array(items) => Value::list(items.iter().map(|item| convert(name, item))),
        Json::Number(number) if number.is_i64() => {
            Value::Int(number.as_i64().unwrap_or_default(), IntKind::Int32)
        }
        other => Value::from(other.clone()),
    }
}

impl Object for JsonStruct {
    fn type_name(&self) -> Cow<'static, str> {
        self.name.into()
    }

    fn field(&self, name: &str) -> Option<Value> {
        let found = self.fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        Some(found.map_or(Value::Nil, |(key, json)| convert(key, json)))
    }

    fn print(&self) -> String {
        Json::Object(self.fields.clone()).to_string()
    }

    fn encode(&self) -> Value {
        Value::from(Json::Object(self.fields.clone()))
    }
}

#[cfg(test)]
mod tests {
    use canopus_api::mesh_config;
    use serde_json::json;

    use super::*;
    use crate::injection::{Config, Values};

    fn render(template: &str) -> Result<Vec<Json>, GatewayTemplateError> {
        let templates = [("edge".to_owned(), template.to_owned())].into_iter().collect();
        let config = Config::from_templates(templates, &BTreeMap::new()).unwrap();
        let values = Values::read("global: {hub: hub, tag: tag}").unwrap();
        let injector = Injector::new(config, values, mesh_config::default_mesh_config(), "");
        let gateway = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "7"},
            "spec": {"addresses": [{"value": "192.0.2.1"}], "listeners": [{"name": "http", "port": 80}]}});
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        injector.render_gateway(
            "edge",
            &GatewayInput {
                gateway: &gateway,
                class: "istio",
                deployment_name: "web-istio",
                service_account: "web-istio",
                ports: &[json!({"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "http"})],
                service_type: "LoadBalancer",
                cluster: "Kubernetes",
                kubernetes_version: 136,
                native_sidecars: true,
                namespace_annotations: None,
                labels: &labels,
                annotations: &BTreeMap::new(),
                is_east_west: false,
                controller_label: "istio.io-gateway-controller",
                proxy_config: None,
            },
        )
    }

    #[test]
    fn template_sees_the_gateway_as_go_does() {
        let objects = render(
            "a: {{.Name}}.{{.Namespace}}.{{.UID}}\nb: {{(index .Spec.Addresses 0).Value}}\nc: {{range .Spec.Listeners}}{{.Port}}{{end}}\n---\n\
             d: {{range .Ports}}{{.Name}}/{{.AppProtocol}}{{end}}\ne: {{.ProxyImage}} {{.ProxyUID}}\nf: {{index .InfrastructureLabels \"team\"}}\n\
             g: {{if ge .KubeVersion 128}}new{{end}}{{with .Spec.TLS}} tls{{end}}\n---\n",
        );
        let expected = [
            json!({"a": "web.shop.7", "b": "192.0.2.1", "c": 80}),
            json!({"d": "http/http", "e": "hub/proxyv2:tag 1337", "f": "a", "g": "new"}),
        ];
        assert_eq!(objects.unwrap(), expected);
    }

    #[test]
    fn error_says_which_template_when_it_cannot_be_rendered() {
        let error = render("{{fail \"no\"}}").unwrap_err().to_string();
        assert!(error.starts_with("template \"edge\": ") && error.contains("no"), "{error}");
        assert!(matches!(render("- a"), Err(GatewayTemplateError::Output { .. })));
        assert!(matches!(render("a: ["), Err(GatewayTemplateError::Output { .. })));
    }
}
