//! A world for people to read: a section for each sort of fact, the objects behind it in the last column.

use canopus_mesh::dump::{Affected, EndpointFacts, ObjectRef, ProxyFacts, ServiceFacts, World};

/// The whole world.
pub(super) fn of(world: &World) -> String {
    let mut sections = vec![services(&world.services), endpoints(&world.services)];
    if world.services.iter().any(|service| service.dependents.is_some()) {
        sections.push(dependents(&world.services));
    }
    if let Some(proxy) = &world.proxy {
        sections.extend([scope(proxy), policies(proxy)]);
    }
    sections.join("\n")
}

fn services(services: &[ServiceFacts]) -> String {
    let rows = services.iter().map(|service| {
        let addresses: Vec<&str> = service.addresses.values().flatten().map(String::as_str).collect();
        let port = |number: u32, protocol: &str| format!("{number}/{protocol}");
        let ports: Vec<String> = service.ports.iter().map(|p| port(p.number, p.protocol)).collect();
        [
            service.host.to_string(),
            service.namespace.to_string(),
            service.registry.to_owned(),
            service.resolution.to_owned(),
            or_dash(addresses.join(",")),
            or_dash(ports.join(",")),
            service.endpoints.len().to_string(),
            named(&service.objects),
        ]
    });
    let heads =
        ["SERVICE", "NAMESPACE", "REGISTRY", "RESOLUTION", "ADDRESSES", "PORTS", "ENDPOINTS", "OBJECTS"];
    table(heads, rows.collect())
}

fn endpoints(services: &[ServiceFacts]) -> String {
    let row = |service: &ServiceFacts, endpoint: &EndpointFacts| {
        let object = endpoint.object.as_ref();
        [
            format!("{}:{}", endpoint.addresses.join(","), endpoint.port),
            service.host.to_string(),
            endpoint.port_name.to_string(),
            endpoint.health.to_owned(),
            or_dash(endpoint.locality.trim_end_matches('/').to_owned()),
            or_dash(endpoint.network.to_string()),
            or_dash(endpoint.identity.to_string()),
            named(object),
        ]
    };
    let rows = services.iter().flat_map(|service| service.endpoints.iter().map(move |one| row(service, one)));
    let heads = ["ENDPOINT", "SERVICE", "PORT", "HEALTH", "LOCALITY", "NETWORK", "IDENTITY", "OBJECT"];
    table(heads, rows.collect())
}

fn dependents(services: &[ServiceFacts]) -> String {
    let row = |service: &ServiceFacts, affected: &Affected| {
        [service.host.to_string(), affected.query.to_owned(), affected.count.to_string()]
    };
    let rows = services
        .iter()
        .flat_map(|service| service.dependents.iter().flatten().map(move |affected| row(service, affected)));
    table(["SERVICE", "DEPENDENT", "COUNT"], rows.collect())
}

fn scope(proxy: &ProxyFacts) -> String {
    let scope = &proxy.scope;
    let mut rows = Vec::new();
    let mut row = |kind: &str, name: String, objects: String| rows.push([kind.to_owned(), name, objects]);
    row("Sidecar", "-".to_owned(), named(&scope.sidecar));
    row("Other hosts", if scope.allows_any { "allowed" } else { "blocked" }.to_owned(), "-".to_owned());
    for gateway in &scope.gateways {
        row("Gateway", "-".to_owned(), named([gateway]));
    }
    for routes in &scope.virtual_services {
        row("VirtualService", routes.hosts.join(","), named(&routes.objects));
    }
    for rules in &scope.destination_rules {
        row("DestinationRule", rules.host.to_string(), named(&rules.objects));
    }
    for host in &scope.hosts {
        row("Host", host.to_string(), "-".to_owned());
    }
    table(["SCOPE", "OF", "OBJECTS"], rows)
}

fn policies(proxy: &ProxyFacts) -> String {
    let policies = &proxy.policies;
    let mut rows = vec![["Mutual TLS".to_owned(), policies.mutual_tls.to_owned()]];
    for (port, mode) in &policies.mutual_tls_ports {
        rows.push([format!("Mutual TLS of port {port}"), (*mode).to_owned()]);
    }
    for (kind, objects) in &policies.objects {
        rows.push([(*kind).to_owned(), named(objects)]);
    }
    table(["POLICY", "OBJECTS"], rows)
}

fn named<'a>(objects: impl IntoIterator<Item = &'a ObjectRef>) -> String {
    let name = |object: &ObjectRef| match &*object.namespace {
        "" => format!("{}/{}", object.kind, object.name),
        namespace => format!("{}/{}.{namespace}", object.kind, object.name),
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
