//! How far proxies are, as control planes list it: one resource per proxy with a state per type.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use canopus_base::tree::{Node, Value as Tree};
use serde_json::{Value, json};

use crate::proxy_config::render::{self, Format};
use crate::table::aligned;

const CLIENT_CONFIG: &str = "type.googleapis.com/envoy.service.status.v3.ClientConfig";

/// The types in the order of the table, by their short names; others follow by name.
static TYPES: [(&str, &str); 4] = [
    ("CDS", "type.googleapis.com/envoy.config.cluster.v3.Cluster"),
    ("LDS", "type.googleapis.com/envoy.config.listener.v3.Listener"),
    ("EDS", "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ("RDS", "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"),
];

/// Short names of further types.
static FURTHER_TYPES: [(&str, &str); 6] = [
    ("ECDS", "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"),
    ("SDS", "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"),
    ("NDS", "type.googleapis.com/istio.networking.nds.v1.NameTable"),
    ("PCDS", "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"),
    ("WDS", "type.googleapis.com/istio.workload.Address"),
    ("WADS", "type.googleapis.com/istio.security.Authorization"),
];

/// What control planes answered, as one table or document. A namespace that is not empty selects its proxies.
pub fn render(
    mut responses: Vec<Node>,
    namespace: &str,
    output: &str,
    is_verbose: bool,
) -> anyhow::Result<String> {
    for response in &mut responses {
        if let Some(resources) = resources_mut(response).filter(|_| !namespace.is_empty()) {
            resources.retain(|resource| namespace_of(resource) == namespace);
        }
    }
    let format = match output {
        "table" => return Ok(table(&responses, is_verbose)),
        "json" => Format::Json,
        "yaml" => Format::Yaml,
        other => bail!("output format {other:?} not supported"),
    };
    let mut responses = responses.into_iter();
    let Some(mut all) = responses.next() else { return Ok(String::new()) };
    // One document for all: who listed a proxy is only said by the table.
    let others: Vec<Node> =
        responses.filter_map(|mut one| Some(std::mem::take(resources_mut(&mut one)?))).flatten().collect();
    match resources_mut(&mut all) {
        Some(resources) => resources.extend(others),
        None if others.is_empty() => {}
        None => {
            if let Some(map) = all.as_map_mut() {
                map.insert("resources", Tree::List(others).into());
            }
        }
    }
    Ok(render::node(&all, format))
}

/// The answer of a debug port in the form of a discovery port's.
pub(super) fn response(control_plane: &str, syncz: &Value) -> Node {
    let identifier = json!({"Component": "istiod", "ID": control_plane}).to_string();
    let clients = syncz.as_array().into_iter().flatten().filter(|proxy| !proxy["resources"].is_null());
    let resources: Vec<Value> = clients.map(client_config).collect();
    Node::from(json!({
        "resources": resources,
        "typeUrl": crate::xds::SYNCZ,
        "controlPlane": {"identifier": identifier},
    }))
}

fn client_config(proxy: &Value) -> Value {
    let id = proxy["proxy"].as_str().unwrap_or_default();
    let namespace = id.rsplit_once('.').map_or("", |(_, namespace)| namespace);
    let types = proxy["resources"].as_object().into_iter().flatten();
    let configs: Vec<Value> = types.map(|(type_url, resource)| type_config(type_url, resource)).collect();
    json!({
        "@type": CLIENT_CONFIG,
        "node": {"id": id, "metadata": {
            "CLUSTER_ID": proxy["cluster_id"],
            "ISTIO_VERSION": proxy["istio_version"],
            "NAMESPACE": namespace,
        }},
        "genericXdsConfigs": configs,
    })
}

fn type_config(type_url: &str, resource: &Value) -> Value {
    let text = |key: &str| resource[key].as_str().unwrap_or_default();
    let state = match (text("sent"), text("acked"), text("lastError")) {
        (.., error) if !error.is_empty() => "ERROR",
        ("", ..) => "NOT_SENT",
        (sent, acked, _) if sent == acked => "SYNCED",
        _ => "STALE",
    };
    let mut config = json!({"typeUrl": type_url, "configStatus": state});
    if !resource["sentTime"].is_null() {
        config["lastUpdated"] = resource["sentTime"].clone();
    }
    if state == "ERROR" {
        config["errorState"] = json!({"details": text("lastError")});
    }
    config
}

/// A proxy with its version, for those who count versions.
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) version: String,
}

/// The proxies of an answer.
pub(crate) fn listed(response: &Node) -> Vec<Listed> {
    let proxies = resources(response).map(|resource| Listed {
        id: text(resource, "/node/id").to_owned(),
        version: text(resource, "/node/metadata/ISTIO_VERSION").to_owned(),
    });
    proxies.collect()
}

/// What a control plane says of itself; null if it says nothing.
pub(crate) fn identifier(response: &Node) -> Value {
    serde_json::from_str(text(response, "/controlPlane/identifier")).unwrap_or_default()
}

fn resources(response: &Node) -> impl Iterator<Item = &Node> {
    let listed = response.get("resources").and_then(Node::as_list).into_iter().flatten();
    listed.filter(|resource| text(resource, "/@type") == CLIENT_CONFIG)
}

fn resources_mut(response: &mut Node) -> Option<&mut Vec<Node>> {
    response.get_mut("resources").and_then(Node::as_list_mut)
}

fn text<'a>(node: &'a Node, pointer: &str) -> &'a str {
    node.pointer(pointer).and_then(Node::as_str).unwrap_or_default()
}

fn namespace_of(resource: &Node) -> &str {
    match text(resource, "/node/metadata/NAMESPACE") {
        "" => text(resource, "/node/id").rsplit_once('.').map_or("", |(_, namespace)| namespace),
        namespace => namespace,
    }
}

fn short_name(type_url: &str) -> &str {
    let known = TYPES.iter().chain(&FURTHER_TYPES).find(|(_, known)| *known == type_url);
    known.map_or(type_url, |(name, _)| name)
}

/// A line of the table.
struct Proxy<'a> {
    resource: &'a Node,
    istiod: String,
    /// The state of each type it subscribed to.
    states: BTreeMap<&'a str, &'a str>,
}

impl Proxy<'_> {
    fn cells(&self, middle: Vec<String>) -> Vec<String> {
        let text = |pointer: &str| text(self.resource, pointer).to_owned();
        let mut cells = vec![text("/node/id"), text("/node/metadata/CLUSTER_ID")];
        cells.extend(middle);
        cells.extend([self.istiod.clone(), text("/node/metadata/ISTIO_VERSION")]);
        cells
    }
}

fn table(responses: &[Node], is_verbose: bool) -> String {
    let mut proxies: Vec<Proxy<'_>> = Vec::new();
    for response in responses {
        let istiod = identifier(response)["ID"].as_str().unwrap_or_default().to_owned();
        proxies.extend(resources(response).map(|resource| {
            let configs = resource.get("genericXdsConfigs").and_then(Node::as_list).into_iter().flatten();
            let states = configs.map(|config| (text(config, "/typeUrl"), text(config, "/configStatus")));
            let states = states.filter(|(_, state)| !matches!(*state, "" | "UNKNOWN")).collect();
            Proxy { resource, istiod: istiod.clone(), states }
        }));
    }
    proxies.sort_by_key(|proxy| text(proxy.resource, "/node/id"));
    let all: BTreeSet<&str> = proxies.iter().flat_map(|proxy| proxy.states.keys().copied()).collect();
    let mut rows = Vec::new();
    if is_verbose {
        let known = TYPES.iter().chain(&FURTHER_TYPES[..1]).map(|(_, type_url)| *type_url);
        let columns: BTreeSet<&str> = all.into_iter().chain(known).collect();
        let mut header = vec!["NAME", "CLUSTER"];
        header.extend(columns.iter().map(|type_url| short_name(type_url)));
        header.extend(["ISTIOD", "VERSION"]);
        rows.push(header.into_iter().map(str::to_owned).collect());
        let state = |proxy: &Proxy<'_>, type_url: &str| match proxy.states.get(type_url) {
            None => "IGNORED".to_owned(),
            Some(state) => state.replace('_', " "),
        };
        rows.extend(
            proxies
                .iter()
                .map(|proxy| proxy.cells(columns.iter().map(|type_url| state(proxy, type_url)).collect())),
        );
        return aligned(&rows, 5);
    }
    rows.push(["NAME", "CLUSTER", "ISTIOD", "VERSION", "SUBSCRIBED TYPES"].map(str::to_owned).to_vec());
    for proxy in &proxies {
        let core = TYPES.iter().map(|(_, type_url)| *type_url);
        let further = all.iter().copied().filter(|known| !TYPES.iter().any(|(_, core)| core == known));
        let own = core.chain(further).filter(|type_url| proxy.states.contains_key(type_url));
        let names: Vec<&str> = own.map(short_name).collect();
        let types = match names.len() {
            0 => "0".to_owned(),
            count => format!("{count} ({})", names.join(",")),
        };
        let mut cells = proxy.cells(Vec::new());
        cells.push(types);
        rows.push(cells);
    }
    aligned(&rows, 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Node {
        response(
            "istiod-0",
            &json!([
                {
                    "proxy": "cart-1.shop", "cluster_id": "Kubernetes", "istio_version": "1.32.0",
                    "resources": {
                        TYPES[0].1: {"sent": "a", "acked": "a"},
                        TYPES[1].1: {"sent": "b", "lastError": "bad"},
                        TYPES[3].1: {"sent": "c", "acked": "b"},
                    },
                },
                {"proxy": "asking.default"},
            ]),
        )
    }

    #[test]
    fn types_are_listed_with_their_state() {
        let short = render(vec![answer()], "", "table", false).unwrap();
        assert!(short.ends_with("istiod-0     1.32.0      3 (CDS,LDS,RDS)\n"), "{short}");
        assert_eq!(short.lines().count(), 2, "who only asks is no proxy");
        let verbose = render(vec![answer()], "", "table", true).unwrap();
        let cells: Vec<&str> = verbose.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = [
            "cart-1.shop",
            "Kubernetes",
            "SYNCED",
            "IGNORED",
            "IGNORED",
            "ERROR",
            "STALE",
            "istiod-0",
            "1.32.0",
        ];
        assert_eq!(cells, expected);
    }

    #[test]
    fn answers_of_several_control_planes_are_one_document() {
        let other = response(
            "istiod-1",
            &json!([{"proxy": "a.shop", "resources": {}}, {"proxy": "b.other", "resources": {}}]),
        );
        let table = render(vec![answer(), other.clone()], "shop", "table", false).unwrap();
        let names: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, ["a.shop", "cart-1.shop"]);
        let json: Value =
            serde_json::from_str(&render(vec![answer(), other], "", "json", false).unwrap()).unwrap();
        assert_eq!(json["resources"].as_array().unwrap().len(), 3);
        assert_eq!(json["resources"][0]["genericXdsConfigs"][1]["errorState"]["details"], "bad");
        assert!(render(Vec::new(), "", "xml", false).is_err());
    }
}
