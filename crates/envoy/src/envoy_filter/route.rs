//! Patches of route tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_engine::Ctx;
use canopus_mesh::audience::GatewayRunner;
use canopus_mesh::gateway::{BoundServer, MergedGateways};
use canopus_proto::{Any, Message};
use canopus_proto::envoy::config::listener::v3::{FilterChain, Listener, filter::ConfigType};
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::RouteConfigurationMatch;
use canopus_proto::resource::Resource;

use super::compile::{Patch, Patches};
use super::listener::Patching;
use super::tally::Tally;
use super::{Patched, Side, merge, patches, virtual_host};
use crate::audience::{PatchSet, RouteAudience};
use crate::names::ClusterName;
use crate::pool;

/// A generated route table after its patches.
pub(crate) fn table(ctx: &Ctx<'_>, audience: &RouteAudience, set: &PatchSet, generated: Resource) -> Patched {
    let patches = patches(ctx, set);
    if !patches.touch_routes() {
        return Patched::untouched(Arc::new(vec![generated]));
    }
    let Ok(message) = RouteConfiguration::decode(generated.body.clone()) else {
        return Patched::untouched(Arc::new(vec![generated]));
    };
    let mut table = message.clone();
    let mut tally = Tally::default();
    let side = Side::for_kind(audience.role.kind);
    let ports = if side == Side::Gateway { server_ports(ctx, &audience.gateway) } else { BTreeMap::new() };
    patch(&patches, &TableUse { side, ports }, &mut table, &mut tally);
    let resource = match table == message {
        // A table that no patch is for stays the very bytes that others have.
        true => generated,
        false => pool::ROUTES.share(Resource::encode(generated.name.clone(), &table)),
    };
    Patched { resources: Arc::new(vec![resource]), tally }
}

/// Patches the route tables that connection managers of a listener have with them.
pub(super) fn inline_tables(patching: &mut Patching<'_>, listener: &mut Listener) {
    if !patching.patches.touch_routes() {
        return;
    }
    for chain in listener.filter_chains.iter_mut().chain(&mut listener.default_filter_chain) {
        inline_table(patching, chain);
    }
}

fn inline_table(patching: &mut Patching<'_>, chain: &mut FilterChain) {
    for filter in &mut chain.filters {
        let Some(ConfigType::TypedConfig(config)) = &mut filter.config_type else { continue };
        let Ok(mut manager) = config.unpack::<HttpConnectionManager>() else { continue };
        if let Some(RouteSpecifier::RouteConfig(table)) = &mut manager.route_specifier {
            let place = TableUse { side: patching.side, ports: BTreeMap::new() };
            patch(patching.patches, &place, table, &mut patching.tally);
            *config = Any::pack(&manager);
        }
    }
}

/// Where a table is used.
pub(super) struct TableUse {
    pub(super) side: Side,
    /// The ports that servers have in Gateways, by the port they listen on.
    ports: BTreeMap<u32, BTreeSet<u32>>,
}

fn server_ports(ctx: &Ctx<'_>, gateway: &GatewayRunner) -> BTreeMap<u32, BTreeSet<u32>> {
    let merged = ctx.get::<MergedGateways>(gateway);
    let mut ports: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (name, servers) in &merged.routes {
        let written = merged.servers_at(servers).map(BoundServer::port_number);
        ports.entry(GatewayTable::parse(name).port).or_default().extend(written);
    }
    ports
}

fn patch(patches: &Patches, place: &TableUse, table: &mut RouteConfiguration, tally: &mut Tally) {
    for patch in patches.tables.iter().filter(|patch| patch.is_merge()) {
        let value = patch.value.as_ref().filter(|_| is_meant(patch, place, &table.name));
        let merged = value.is_some_and(|value| merge::into(table, value, patch.operation));
        tally.note(&patch.id, merged);
    }
    virtual_host::patch(patches, place, table, tally);
}

/// Whether a patch of a table, or of something in it, may be for this one.
pub(super) fn is_meant<M>(patch: &Patch<M>, place: &TableUse, name: &str) -> bool {
    patch.is_on(place.side) && patch.route_configuration().is_none_or(|wanted| is_table(wanted, place, name))
}

fn is_table(wanted: &RouteConfigurationMatch, place: &TableUse, name: &str) -> bool {
    if !wanted.name.is_empty() && wanted.name != name {
        return false;
    }
    if place.side != Side::Gateway {
        return wanted.port_number == 0 || wanted.port_number == sidecar_port(name);
    }
    let table = GatewayTable::parse(name);
    let has_port = |wanted: u32| match place.ports.get(&table.port) {
        Some(written) => written.contains(&wanted),
        None => table.port == wanted,
    };
    (wanted.port_name.is_empty() || wanted.port_name == table.port_name)
        && (wanted.gateway.is_empty() || wanted.gateway == table.gateway)
        && (wanted.port_number == 0 || has_port(wanted.port_number))
}

/// The port of a sidecar's table: part of an inbound table's name, the name of an outbound one.
fn sidecar_port(name: &str) -> u32 {
    if name.starts_with("inbound") {
        return ClusterName::parse(name).map_or(0, |name| name.port);
    }
    name.parse().unwrap_or_default()
}

/// What the name of a gateway's table says: `http.<port>` or `https.<port>.<port name>.<gateway>.<namespace>`.
#[derive(Default)]
struct GatewayTable {
    port: u32,
    port_name: String,
    gateway: String,
}

impl GatewayTable {
    fn parse(name: &str) -> Self {
        match *name.split('.').collect::<Vec<_>>() {
            ["http", port, ..] => Self { port: port.parse().unwrap_or_default(), ..Self::default() },
            ["https", port, port_name, gateway, namespace] => Self {
                port: port.parse().unwrap_or_default(),
                port_name: port_name.to_owned(),
                gateway: format!("{namespace}/{gateway}"),
            },
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_for_port(name: &str, side: Side, port: u32) -> bool {
        let wanted = RouteConfigurationMatch { port_number: port, ..Default::default() };
        is_table(&wanted, &TableUse { side, ports: [(8080, [80].into())].into() }, name)
    }

    #[test]
    fn tables_are_known_by_the_ports_users_write() {
        assert!(is_for_port("80", Side::Outbound, 80));
        assert!(is_for_port("inbound|9080||", Side::Inbound, 9080));
        assert!(!is_for_port("a.default.svc.cluster.local:80", Side::Outbound, 80));
        // A gateway listens on 8080 for what a Gateway calls 80.
        assert!(is_for_port("http.8080", Side::Gateway, 80));
        assert!(!is_for_port("http.8080", Side::Gateway, 8080));
        assert!(is_for_port("https.443.https.gw.default", Side::Gateway, 443));
    }

    #[test]
    fn tables_of_https_servers_are_known_by_gateway_and_port_name() {
        let wanted = RouteConfigurationMatch {
            gateway: "default/gw".into(),
            port_name: "https".into(),
            ..Default::default()
        };
        let place = TableUse { side: Side::Gateway, ports: BTreeMap::new() };
        assert!(is_table(&wanted, &place, "https.443.https.gw.default"));
        assert!(!is_table(&wanted, &place, "https.443.https.gw.other"));
        assert!(!is_table(&wanted, &place, "http.80"));
    }
}
