//! Which virtual host of a table a request's host means.

use canopus_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

/// The virtual host with the host itself, the longest `*suffix`, the longest `prefix*`, or `*`.
pub(super) fn choose<'a>(table: &'a RouteConfiguration, host: &str) -> Option<&'a VirtualHost> {
    let host = host.to_lowercase();
    let host = if table.ignore_port_in_host_matching { without_port(&host) } else { &host };
    let with_suffix =
        |domain: &str| domain.strip_prefix('*').filter(|rest| host.ends_with(rest)).map(str::len);
    let with_prefix =
        |domain: &str| domain.strip_suffix('*').filter(|rest| host.starts_with(rest)).map(str::len);
    find(table, |domain| (domain == host).then_some(0))
        .or_else(|| longest(table, host, with_suffix))
        .or_else(|| longest(table, host, with_prefix))
        .or_else(|| find(table, |domain| (domain == "*").then_some(0)))
}

/// The longest wildcard that fits; it has to stand for something.
fn longest<'a>(
    table: &'a RouteConfiguration,
    host: &str,
    rest: impl Fn(&str) -> Option<usize>,
) -> Option<&'a VirtualHost> {
    find(table, |domain| rest(domain).filter(|length| *length > 0 && *length < host.len()))
}

/// The virtual host of the domain that ranks highest, the first of equals.
fn find(table: &RouteConfiguration, rank: impl Fn(&str) -> Option<usize>) -> Option<&VirtualHost> {
    let mut best: Option<(usize, &VirtualHost)> = None;
    for found in &table.virtual_hosts {
        for domain in &found.domains {
            if let Some(rank) = rank(&domain.to_lowercase())
                && best.is_none_or(|(most, _)| rank > most)
            {
                best = Some((rank, found));
            }
        }
    }
    best.map(|(_, found)| found)
}

/// `host` of `host:80`; an address in brackets keeps them.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (name.ends_with(']') || !name.contains(':')) =>
        {
            name
        }
        _ => host,
    }
}
