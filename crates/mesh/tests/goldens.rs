//! What objects mean, before any proxy is configured: scenarios in `tests/goldens/`; see `canopus_golden` for the format.
//!
//! | excerpt | shows |
//! |---|---|
//! | `service NAMESPACE/HOST` | a service with its endpoints, as `canopus world` has it |
//! | `proxy ""` | what the proxy sees, and the policies that apply to it |
//! | `destination-rule HOST` | the rule for connections from the proxy, merged |
//! | `virtual-service NAMESPACE/NAME` | a VirtualService with names resolved and delegates merged in |
//! | `derived HOST` | the VirtualService that Gateway API routes or Ingresses of a host are turned into |
//! | `gateway ""` | the servers that the proxy runs, by port, and those that are rejected |
//! | `network-gateways ""` | the gateways between networks |
//! | `status KIND/NAMESPACE/NAME` | the status of a Gateway API object |
//! | `conditions KIND/NAMESPACE/NAME` | the conditions of an object of an ambient mesh |
//! | `diagnostics ""` | problems of objects that are valid by themselves |
//!
//! After a change of behaviour, run `UPDATE_GOLDENS=1 cargo test -p canopus-mesh --test goldens` and review the diff.

use std::path::Path;
use std::sync::Arc;

use canopus_api::istio::VirtualService;
use canopus_base::tree::Node;
use canopus_engine::{Ctx, Query, Snapshot};
use canopus_golden::{Shown, Subject, check_all};
use canopus_mesh::audience::{Caller, View};
use canopus_mesh::destination_rule::{Rule, outbound_rule};
use canopus_mesh::diagnostic::all_diagnostics;
use canopus_mesh::dump::{DumpSelection, ObjectRef, dump_mesh};
use canopus_mesh::gateway::{MergedGateway, MergedGateways};
use canopus_mesh::gateway_api::{self, RouteGroups, Status, StatusOf};
use canopus_mesh::ingress::{self, IngressHosts};
use canopus_mesh::network::{NetworkGateway, NetworkGateways};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::scope::scope;
use canopus_mesh::virtual_service::ResolvedVirtualService;
use canopus_mesh::waypoint::AmbientConditions;
use canopus_mesh::world::Objects;
use canopus_proto::json;
use serde_json::{Value as Json, json};

#[test]
fn objects_mean_what_scenarios_expect() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let count = check_all(&directory, show).unwrap();
    assert!(count >= 30, "{count} scenarios");
}

fn show(subject: &Subject) -> anyhow::Result<Vec<Shown>> {
    let (mesh, proxy) = (&subject.mesh, &subject.proxy);
    let dump = dump_mesh(&subject.engine, &DumpSelection::default())?;
    let mut services = Vec::new();
    for service in &dump.services {
        let name = format!("{}/{}", service.namespace, service.host);
        services.push((name, serde_json::to_value(service)?.into()));
    }
    let selection = DumpSelection { proxy: Some(proxy.clone()), ..DumpSelection::default() };
    let scope = serde_json::to_value(dump_mesh(&subject.engine, &selection)?.proxy)?;
    let rules = mesh.get::<RulesSeen>(proxy)?;
    let rules = rules.iter().map(|(host, rule)| (host.to_string(), json::write(&rule.spec)));
    let gateways = mesh.get::<NetworkGateways>(&())?;
    let gateways = gateways.iter().map(network_gateway).collect();
    let merged = mesh.get::<Merged>(proxy)?;
    let diagnostics = serde_json::to_value(all_diagnostics(mesh)?)?;
    let (mut virtual_services, mut statuses, mut conditions) = (Vec::new(), Vec::new(), Vec::new());
    for origin in mesh.keys::<Objects>().iter() {
        let name = format!("{}/{}", origin.namespace(), origin.name());
        if let Some(service) = mesh.get::<ResolvedVirtualService>(origin)?.as_ref() {
            virtual_services.push((name.clone(), json::write(&service.spec)));
        }
        let name = format!("{}/{name}", ObjectRef::from(origin).kind);
        if let Some(status) = mesh.get::<StatusOf>(origin)?.as_ref() {
            statuses.push((name.clone(), status_fields(status)?.into()));
        }
        let observed = mesh.get::<AmbientConditions>(origin)?;
        let observed = observed.iter().flat_map(|writer| &writer.observations).map(
            |one| json!({"type": one.kind, "holds": one.holds, "reason": one.reason, "message": one.message}),
        );
        conditions.push((name, observed.collect::<Json>().into()));
    }
    Ok(vec![
        Shown::documents("service", services),
        alone("proxy", scope),
        Shown::documents("destination-rule", rules.collect()),
        Shown::documents("virtual-service", virtual_services),
        Shown::documents("derived", derived(mesh)?),
        alone("gateway", servers(&merged)),
        alone("network-gateways", Json::Array(gateways)),
        Shown::documents("status", statuses),
        Shown::documents("conditions", conditions),
        alone("diagnostics", diagnostics),
    ])
}

/// The VirtualServices that are derived from routes and Ingresses, by their first host.
fn derived(mesh: &Snapshot) -> anyhow::Result<Vec<(String, Node)>> {
    let mut found = Vec::new();
    let mut add = |service: Option<&Arc<VirtualService>>| {
        if let Some(service) = service {
            found.push((service.spec.hosts.join(","), json::write(&service.spec)));
        }
    };
    for key in mesh.get::<RouteGroups>(&())?.keys() {
        add(mesh.get::<gateway_api::DerivedVirtualService>(key)?.as_ref().as_ref());
    }
    for host in mesh.get::<IngressHosts>(&())?.keys() {
        add(mesh.get::<ingress::DerivedVirtualService>(host)?.as_ref().as_ref());
    }
    Ok(found)
}

/// A document of which there is one, under the empty name.
fn alone(kind: &'static str, document: Json) -> Shown {
    Shown::documents(kind, vec![(String::new(), Node::from(document))])
}

/// The destination rules for connections from a proxy, by host.
struct RulesSeen;

impl Query for RulesSeen {
    const NAME: &'static str = "rules_seen";
    type Key = Proxy;
    type Value = Vec<(Arc<str>, Arc<Rule>)>;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> Self::Value {
        let caller = Caller::new(ctx, &View::new(ctx, proxy));
        let scope = scope(ctx, &caller.scope);
        let rules = scope
            .services()
            .iter()
            .map(|service| Some((service.host.clone(), outbound_rule(ctx, &caller, &service.key())?)));
        rules.flatten().collect()
    }
}

/// The Gateways that a proxy runs.
struct Merged;

impl Query for Merged {
    const NAME: &'static str = "merged";
    type Key = Proxy;
    type Value = MergedGateway;

    fn run(ctx: &Ctx<'_>, proxy: &Proxy) -> MergedGateway {
        let runner = View::new(ctx, proxy).gateway_runner(ctx);
        ctx.get::<MergedGateways>(&runner).as_ref().clone()
    }
}

fn servers(merged: &MergedGateway) -> Json {
    let ports = merged.ports.iter().map(|port| {
        let servers = merged.servers_at(&port.servers).map(|server| {
            json!({"gateway": server.gateway, "port": server.port_name(), "hosts": server.server.hosts, "route": server.route_name})
        });
        json!({"number": port.port.number, "protocol": port.port.protocol, "servers": servers.collect::<Json>()})
    });
    json!({
        "ports": ports.collect::<Json>(),
        "certificates": merged.certificates,
        "rejected": merged.rejected.iter().map(ToString::to_string).collect::<Json>(),
    })
}

fn network_gateway(gateway: &NetworkGateway) -> Json {
    json!({
        "network": gateway.network, "cluster": gateway.cluster, "address": gateway.address,
        "port": gateway.port, "hbonePort": gateway.hbone_port,
    })
}

fn status_fields(status: &Status) -> serde_json::Result<Json> {
    match status {
        Status::Class(status) => serde_json::to_value(status),
        Status::Gateway(status) => serde_json::to_value(status),
        Status::ListenerSet(status) => serde_json::to_value(status),
        Status::Route(status) => serde_json::to_value(status),
        Status::Policy(status) => serde_json::to_value(status),
        Status::Pool(status) => serde_json::to_value(status),
    }
}
