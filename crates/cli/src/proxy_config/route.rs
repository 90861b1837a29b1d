//! Routes by virtual host.

use std::collections::BTreeSet;

use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::{Route, RouteConfiguration};

use super::cluster::management;
use super::dump::ConfigDump;
use super::listener::route_match;
use super::render::{self, Format};
use crate::table::{aligned, row};

/// How many domains of a virtual host are printed.
const SHOWN_DOMAINS: usize = 2;

pub(super) fn print(
    dump: &ConfigDump,
    name: Option<&str>,
    verbose: bool,
    format: Format,
) -> anyhow::Result<String> {
    match format {
        Format::Short => summary(dump, name, verbose, false),
        Format::Json | Format::Yaml => Ok(render::messages(&sorted(dump, name)?, format)),
    }
}

fn sorted(dump: &ConfigDump, name: Option<&str>) -> anyhow::Result<Vec<RouteConfiguration>> {
    let mut routes = dump.routes()?;
    // Parity: Istio compares numbers only, so others stop a number on its way up.
    let number = |routes: &RouteConfiguration| routes.name.parse::<u32>().ok();
    for from in 1..routes.len() {
        let mut at = from;
        while at > 0
            && let (Some(own), Some(before)) = (number(&routes[at]), number(&routes[at - 1]))
            && own < before
        {
            routes.swap(at, at - 1);
            at -= 1;
        }
    }
    routes.retain(|routes| name.is_none_or(|name| routes.name == name));
    Ok(routes)
}

pub(super) fn summary(
    dump: &ConfigDump,
    name: Option<&str>,
    verbose: bool,
    with_type: bool,
) -> anyhow::Result<String> {
    let mut rows = vec![if verbose {
        row(["NAME", "VHOST NAME", "DOMAINS", "MATCH", "VIRTUAL SERVICE"])
    } else {
        row(["NAME", "VIRTUAL HOSTS"])
    }];
    for routes in sorted(dump, name)? {
        let name = if with_type { format!("route/{}", routes.name) } else { routes.name.clone() };
        if !verbose {
            rows.push(vec![name, routes.virtual_hosts.len().to_string()]);
            continue;
        }
        for host in &routes.virtual_hosts {
            let line = |matching: String, service: String| {
                vec![name.clone(), host.name.clone(), domains(&host.domains), matching, service]
            };
            let shown = host.routes.iter().filter(|route| !is_passthrough(route));
            rows.extend(
                shown.map(|route| {
                    line(route_match(route.r#match.as_ref()), management(route.metadata.as_ref()))
                }),
            );
            if host.routes.is_empty() {
                rows.push(line("/*".to_owned(), "404".to_owned()));
            }
        }
    }
    Ok(aligned(&rows, 5))
}

fn is_passthrough(route: &Route) -> bool {
    let Some(Action::Route(action)) = &route.action else { return false };
    matches!(&action.cluster_specifier, Some(ClusterSpecifier::Cluster(name)) if name == "PassthroughCluster")
}

/// The first domains, without ports and without longer forms of the same name.
fn domains(domains: &[String]) -> String {
    if let [only] = domains {
        return only.clone();
    }
    let without_port = domains.iter().filter(|domain| match domain.matches(':').count() {
        0 => true,
        // An IPv6 address in brackets.
        colons => colons > 2 && domain.ends_with(']'),
    });
    let all: Vec<&str> = without_port.map(String::as_str).collect();
    let known: BTreeSet<&str> = all.iter().copied().collect();
    let is_longer_form = |domain: &str| {
        [".svc.cluster.local", ".svc"]
            .iter()
            .any(|suffix| domain.strip_suffix(suffix).is_some_and(|shorter| known.contains(shorter)))
    };
    let shown: Vec<&str> = all.iter().copied().filter(|domain| !is_longer_form(domain)).collect();
    if shown.len() > SHOWN_DOMAINS {
        let more = shown.len() - SHOWN_DOMAINS;
        return format!("{} + {more} more...", shown[..SHOWN_DOMAINS].join(", "));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_shortened() {
        let all = ["a", "a:80", "a.ns", "a.ns.svc", "a.ns.svc.cluster.local", "10.0.0.1", "[fd00::1:2]"];
        let all = all.map(str::to_owned);
        assert_eq!(domains(&all), "a, a.ns + 2 more...");
        assert_eq!(domains(&["a:80".to_owned()]), "a:80");
        assert_eq!(domains(&[]), "");
    }
}
