//! Route tables of gRPC clients: the part of a port's table that is about one host.

use canopus_base::host;
use canopus_engine::Ctx;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;

use crate::audience::{RouteAudience, Shared};
use crate::names::ClusterName;
use crate::route_config::{self, Host, Table};

pub(super) fn table(ctx: &Ctx<'_>, audience: &Shared<RouteAudience>, name: &str) -> Option<Table> {
    let wanted = ClusterName::parse(name)?;
    let all = route_config::sidecar_virtual_hosts(ctx, audience, wanted.port);
    let about = all.iter().filter(|found| is_about(found, wanted.host, wanted.port));
    Some(Table::new(name, about.cloned().collect(), RouteConfiguration::default()))
}

/// Whether a domain of a virtual host is the wanted host, with that port or without one.
fn is_about(found: &Host, wanted: &str, port: u32) -> bool {
    let wanted = wanted.to_ascii_lowercase();
    found.domains.iter().any(|domain| {
        let domain = domain.to_ascii_lowercase();
        let (name, of_port) = match domain.rsplit_once(':') {
            Some((name, number)) if number.parse() == Ok(port) => (name, true),
            Some(_) => (domain.as_str(), false),
            None => (domain.as_str(), true),
        };
        of_port && (name == wanted || (host::is_wildcard(name) && host::matches(name, &wanted)))
    })
}
