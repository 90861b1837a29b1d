//! A world for people to read: a section for each sort of fact, the objects behind it in the last column.
//!
//! It is made of the JSON that programs read, so it looks the same whoever answered.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The whole world.
pub(super) fn render(world: &Value) -> String {
    let all = list(world, "services");
    let mut sections = vec![services(all), endpoints(all)];
    if all.iter().any(|service| service.get("dependents").is_some()) {
        sections.push(dependents(all));
    }
    if let Some(proxy) = world.get("proxy") {
        sections.extend([scope(&proxy["scope"]), policies(&proxy["policies"])]);
    }
    sections.join("\n")
}

fn services(services: &[Value]) -> String {
    let rows = services.iter().map(|service| {
        let addresses = map(service, "addresses").into_iter().flat_map(Map::values);
        let addresses: Vec<&str> = addresses.flat_map(texts).collect();
        let port = |port: &Value| format!("{}/{}", port["number"], text(port, "protocol"));
        let ports: Vec<String> = list(service, "ports").iter().map(port).collect();
        [
            text(service, "host").to_owned(),
            text(service, "namespace").to_owned(),
            text(service, "registry").to_owned(),
            text(service, "resolution").to_owned(),
            or_dash(addresses.join(",")),
            or_dash(ports.join(",")),
            list(service, "endpoints").len().to_string(),
            named(list(service, "objects")),
        ]
    });
    let heads =
        ["SERVICE", "NAMESPACE", "REGISTRY", "RESOLUTION", "ADDRESSES", "PORTS", "ENDPOINTS", "OBJECTS"];
    table(heads, rows.collect())
}

fn endpoints(services: &[Value]) -> String {
    let row = |service: &Value, endpoint: &Value| {
        let addresses: Vec<&str> = texts(&endpoint["addresses"]).collect();
        [
            format!("{}:{}", addresses.join(","), endpoint["port"]),
            text(service, "host").to_owned(),
            text(endpoint, "portName").to_owned(),
            text(endpoint, "health").to_owned(),
            or_dash(text(endpoint, "locality").trim_end_matches('/').to_owned()),
            or_dash(text(endpoint, "network").to_owned()),
            or_dash(text(endpoint, "identity").to_owned()),
            named(endpoint.get("object")),
        ]
    };
    let rows = services.iter().flat_map(|service| {
        let endpoints = list(service, "endpoints").iter();
        endpoints.map(move |endpoint| row(service, endpoint))
    });
    let heads = ["ENDPOINT", "SERVICE", "PORT", "HEALTH", "LOCALITY", "NETWORK", "IDENTITY", "OBJECT"];
    table(heads, rows.collect())
}

fn dependents(services: &[Value]) -> String {
    let row = |service: &Value, affected: &Value| {
        let [host, query] = [text(service, "host"), text(affected, "query")].map(str::to_owned);
        [host, query, affected["count"].to_string()]
    };
    let rows = services.iter().flat_map(|service| {
        let dependents = list(service, "dependents").iter();
        dependents.map(move |affected| row(service, affected))
    });
    table(["SERVICE", "DEPENDENT", "COUNT"], rows.collect())
}

fn scope(scope: &Value) -> String {
    let mut rows = Vec::new();
    let mut row = |kind: &str, name: String, objects: String| rows.push([kind.to_owned(), name, objects]);
    row("Sidecar", "-".to_owned(), named(scope.get("sidecar")));
    let others = if scope["allowsAny"] == true { "allowed" } else { "blocked" };
    row("Other hosts", others.to_owned(), "-".to_owned());
    for gateway in list(scope, "gateways") {
        row("Gateway", "-".to_owned(), named([gateway]));
    }
    for routes in list(scope, "virtualServices") {
        let hosts: Vec<&str> = texts(&routes["hosts"]).collect();
        row("VirtualService", hosts.join(","), named(list(routes, "objects")));
    }
    for rules in list(scope, "destinationRules") {
        row("DestinationRule", text(rules, "host").to_owned(), named(list(rules, "objects")));
    }
    for host in texts(&scope["hosts"]) {
        row("Host", host.to_owned(), "-".to_owned());
    }
    table(["SCOPE", "OF", "OBJECTS"], rows)
}

fn policies(policies: &Value) -> String {
    let mut rows = vec![["Mutual TLS".to_owned(), text(policies, "mutualTls").to_owned()]];
    let ports = map(policies, "mutualTlsPorts").into_iter().flatten();
    let ports: BTreeMap<u32, &Value> =
        ports.filter_map(|(port, mode)| Some((port.parse().ok()?, mode))).collect();
    for (port, mode) in ports {
        rows.push([format!("Mutual TLS of port {port}"), mode.as_str().unwrap_or_default().to_owned()]);
    }
    for (kind, objects) in map(policies, "objects").into_iter().flatten() {
        rows.push([kind.clone(), named(objects.as_array().into_iter().flatten())]);
    }
    table(["POLICY", "OBJECTS"], rows)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn map<'a>(value: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    value[key].as_object()
}

fn named<'a>(objects: impl IntoIterator<Item = &'a Value>) -> String {
    let name = |object: &Value| match text(object, "namespace") {
        "" => format!("{}/{}", text(object, "kind"), text(object, "name")),
        namespace => format!("{}/{}.{namespace}", text(object, "kind"), text(object, "name")),
    };
    or_dash(objects.into_iter().map(name).collect::<Vec<_>>().join(" "))
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Columns as wide as what is in them; nothing follows the last one.
fn table<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(heads.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("   ").trim_end();
        text.push('\n');
    }
    text
}
