//! Where requests go: calls that are followed through the configuration of a proxy, and the routes of virtual hosts.
//!
//! A row is a world with one proxy. Calls compare the listener, filter chain, route table, virtual host, route, cluster or
//! error that the row names; the rest of a journey is not looked at unless the row says so.

mod call;
mod world;

use std::collections::BTreeMap;

use anyhow::Context;
use canopus_base::tree::Node;
use canopus_envoy::simulate::{Config, End};
use canopus_proto::Message;
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::{Route, RouteConfiguration};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::{ABSENT, Difference};
use crate::dump::Dump;

pub(super) struct TablesSimulation;

impl Suite for TablesSimulation {
    fn name(&self) -> &str {
        "tables-simulation"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        let result = if case.entry.get("calls").is_some() { calls(case) } else { routes(case) };
        result.into()
    }
}

/// Follows every call of a row.
fn calls(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let world = world::for_traffic(&case.entry, &case.shared)?;
    let config = world.config()?;
    let calls = case.entry.get("calls").and_then(Node::as_list).context("no calls")?;
    let mut found = Vec::new();
    for written in calls {
        let name = written.get("name").and_then(Node::as_str).unwrap_or_default();
        found.extend(
            follow(&config, written)?
                .into_iter()
                .map(|d| Difference { path: format!("/{name}{}", d.path), ..d }),
        );
    }
    Ok(found)
}

fn follow(config: &Config, written: &Node) -> anyhow::Result<Vec<Difference>> {
    let journey = config.follow(&call::read(written.get("call").context("no call")?)?);
    let cluster = match &journey.end {
        Ok(End::Cluster(cluster)) => cluster.clone(),
        _ => String::new(),
    };
    let error = journey.end.as_ref().err().map(|failure| call::error_name(*failure).to_owned());
    let got = [
        ("listenerMatched", journey.listener),
        ("filterChainMatched", journey.filter_chain),
        ("routeConfigMatched", journey.route_table),
        ("virtualHostMatched", journey.virtual_host),
        ("routeMatched", journey.route),
        ("clusterMatched", Some(cluster)),
        ("error", error),
    ];
    let expect = written.get("expect").context("no expectation")?;
    let strict = expect.get("strictMatch").and_then(Node::as_bool).unwrap_or_default();
    let mut found = Vec::new();
    for (field, got) in got {
        let wanted = expect.get(field).and_then(Node::as_str).unwrap_or_default();
        let got = got.unwrap_or_default();
        // An error that is not expected always counts.
        let counts = strict || !wanted.is_empty() || field == "error";
        if counts && wanted != got {
            found.push(Difference::new(format!("/{field}"), wanted, got));
        }
    }
    Ok(found)
}

/// Looks up virtual hosts by domain and compares where their routes lead.
fn routes(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let world = world::for_routes(&case.entry, &case.shared)?;
    let name = case.text("routeName").context("no routeName")?;
    let table = world.route_table(name)?;
    let expected = case.entry.get("expectVirtualHosts").context("no expectation")?;
    let mut found = Vec::new();
    let hosts = clusters_by_domain(&table);
    for entry in expected.as_map().into_iter().flatten() {
        let wanted: Option<Vec<&str>> =
            entry.node.as_list().map(|clusters| clusters.iter().filter_map(Node::as_str).collect());
        let got =
            hosts.get(&*entry.key).map(|clusters| clusters.iter().map(String::as_str).collect::<Vec<_>>());
        if wanted != got {
            let shown =
                |clusters: Option<Vec<&str>>| clusters.map_or(ABSENT.to_owned(), |c| format!("{c:?}"));
            found.push(Difference::new(format!("/{}", entry.key), shown(wanted), shown(got)));
        }
    }
    Ok(found)
}

fn clusters_by_domain(table: &RouteConfiguration) -> BTreeMap<&str, Vec<String>> {
    let mut found = BTreeMap::new();
    for host in &table.virtual_hosts {
        let clusters: Vec<_> = host.routes.iter().map(cluster).collect();
        for domain in &host.domains {
            found.insert(domain.as_str(), clusters.clone());
        }
    }
    found
}

fn cluster(route: &Route) -> String {
    match &route.action {
        Some(Action::Route(action)) => match &action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(cluster)) => cluster.clone(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

/// Reads what was generated.
fn decode<M: Message + Default>(body: &[u8]) -> anyhow::Result<M> {
    M::decode(body).context("what was generated cannot be read")
}
