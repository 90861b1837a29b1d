//! Endpoints as an Envoy sees them, with their health.

use anyhow::anyhow;
use canopus_proto::envoy::admin::v3::{ClusterStatus, Clusters, HostStatus};
use canopus_proto::envoy::config::core::v3::address;
use canopus_proto::envoy::config::core::v3::envoy_internal_address::AddressNameSpecifier;
use canopus_proto::json::Unknown;

use super::View;
use super::endpoint::{Filter, port_of};
use super::render::{self, Format};
use super::target::Access;
use crate::table::{aligned, row};

pub(super) fn print(access: &Access<'_>, view: &View, filter: &Filter) -> anyhow::Result<String> {
    let text = access.get(&view.source(access, "endpoints")?, "/clusters?format=json")?;
    print_answer(&text, filter, view.format()?)
}

fn print_answer(text: &[u8], filter: &Filter, format: Format) -> anyhow::Result<String> {
    let node = render::parse(text)
        .map_err(|error| anyhow!("error unmarshalling config dump response from Envoy: {error:#}"))?;
    let clusters = canopus_proto::json::read::<Clusters>(&node, Unknown::Report)?.value.cluster_statuses;
    if format != Format::Short {
        let has_taken =
            |cluster: &&ClusterStatus| cluster.host_statuses.iter().any(|host| takes(filter, cluster, host));
        let taken: Vec<ClusterStatus> = clusters.iter().filter(has_taken).cloned().collect();
        return Ok(render::messages(&taken, format));
    }
    let mut endpoints = Vec::new();
    for cluster in &clusters {
        for host in cluster.host_statuses.iter().filter(|host| takes(filter, cluster, host)) {
            endpoints.push((address(host), port(host), cluster.name.clone(), health(host), check(host)));
        }
    }
    endpoints.sort();
    let mut rows = vec![row(["ENDPOINT", "STATUS", "OUTLIER CHECK", "CLUSTER"])];
    for (address, port, cluster, health, check) in endpoints {
        let endpoint = if port == 0 { address } else { format!("{address}:{port}") };
        rows.push(vec![endpoint, health.to_owned(), check.to_owned(), cluster]);
    }
    Ok(aligned(&rows, 5))
}

fn takes(filter: &Filter, cluster: &ClusterStatus, host: &HostStatus) -> bool {
    filter.takes(&[address(host)], port(host), &cluster.name, health(host))
}

fn port(host: &HostStatus) -> u32 {
    host.address.as_ref().map(port_of).unwrap_or_default()
}

fn health(host: &HostStatus) -> &'static str {
    host.health_status.as_ref().map_or("UNKNOWN", |status| status.eds_health_status().as_str_name())
}

fn check(host: &HostStatus) -> &'static str {
    if host.health_status.as_ref().is_some_and(|status| status.failed_outlier_check) {
        "FAILED"
    } else {
        "OK"
    }
}

fn address(host: &HostStatus) -> String {
    match host.address.as_ref().and_then(|address| address.address.as_ref()) {
        Some(address::Address::SocketAddress(socket)) => socket.address.clone(),
        Some(address::Address::Pipe(pipe)) => format!("unix://{}", pipe.path),
        Some(address::Address::EnvoyInternalAddress(internal)) => match &internal.address_name_specifier {
            Some(AddressNameSpecifier::ServerListenerName(listener)) => {
                format!("envoy://{listener}/{}", internal.endpoint_id)
            }
            None => "unknown".to_owned(),
        },
        None => "unknown".to_owned(),
    }
}
