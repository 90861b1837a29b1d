//! Names of generated resources, such as `outbound|80||cart.shop.svc.cluster.local`: written and parsed.
//!
//! Every generated resource has one or more, so they are put together without the machinery of `format!`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use canopus_proto::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, Metadata, config_source::ConfigSourceSpecifier,
};
use canopus_proto::google::protobuf::{Duration, Struct};

/// The cluster that goes to the port of the workload the client wanted.
pub(crate) const INBOUND_PASSTHROUGH: &str = "InboundPassthroughCluster";
/// The cluster that goes wherever the client wanted to go.
pub(crate) const PASSTHROUGH: &str = "PassthroughCluster";
/// The cluster that goes to whatever host the request names.
pub(crate) const ALLOW_ANY_DYNAMIC_DNS: &str = "AllowAnyDynamicDNSCluster";
/// The cluster that answers nothing.
pub(crate) const BLACK_HOLE: &str = "BlackHoleCluster";

/// The parts as one text.
pub(crate) fn joined<const N: usize>(parts: [&str; N]) -> String {
    let mut text = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| text.push_str(part));
    text
}

/// A host as it is written in a URL: IPv6 addresses in brackets.
pub(crate) fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { Cow::Owned(format!("[{host}]")) } else { Cow::Borrowed(host) }
}

/// `host:port`.
pub(crate) fn domain(host: &str, port: u32) -> String {
    joined([&*bracketed(host), ":", itoa::Buffer::new().format(port)])
}

/// `outbound|<port>|<subset>|<host>`.
pub fn outbound_cluster(host: &str, port: u32, subset: &str) -> String {
    joined(["outbound|", itoa::Buffer::new().format(port), "|", subset, "|", host])
}

/// `<host>:<port>/*`: the name of the spans of requests to a service.
pub fn operation(host: &str, port: u32) -> String {
    joined([&*bracketed(host), ":", itoa::Buffer::new().format(port), "/*"])
}

/// `outbound_.<port>_.<subset>_.<host>`: what an outbound cluster is called in the SNI of the mesh's TLS.
pub(crate) fn outbound_sni(host: &str, port: u32, subset: &str) -> String {
    joined(["outbound_.", itoa::Buffer::new().format(port), "_.", subset, "_.", host])
}

/// `inbound-vip|<port>|<subset>|<host>`; the subset begins with `http` or `tcp`.
pub(crate) fn vip_cluster(host: &str, port: u32, subset: &str) -> String {
    joined(["inbound-vip|", itoa::Buffer::new().format(port), "|", subset, "|", host])
}

/// A cluster's name, taken apart: `outbound|80|v1|host`, or `outbound_.80_.v1_.host` as an SNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterName<'a> {
    /// `outbound`, `inbound`, `inbound-vip`.
    pub(crate) direction: &'a str,
    /// The service's port.
    pub(crate) port: u32,
    /// The subset; empty for the whole service.
    pub(crate) subset: &'a str,
    /// The service's host.
    pub(crate) host: &'a str,
    /// Whether the name is made to be an SNI.
    pub(crate) is_sni: bool,
}

impl<'a> ClusterName<'a> {
    /// Takes a name apart; `None` if it is not one of a service.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let is_sni = name.starts_with("outbound_.");
        let mut parts = name.splitn(4, if is_sni { "_." } else { "|" });
        Some(Self {
            direction: parts.next()?,
            port: parts.next()?.parse().ok()?,
            subset: parts.next()?,
            host: parts.next()?,
            is_sni,
        })
    }

    /// The subset as destination rules name it: in the names of a waypoint's clusters the protocol is before it.
    pub(crate) fn subset_of_service(&self) -> &'a str {
        let after_protocol =
            || self.subset.strip_prefix("http/").or_else(|| self.subset.strip_prefix("tcp/"));
        (self.direction == "inbound-vip").then(after_protocol).flatten().unwrap_or(self.subset)
    }
}

/// `inbound|<port>||`, the port being that of the workload.
pub(crate) fn inbound_cluster(port: u32) -> String {
    joined(["inbound|", itoa::Buffer::new().format(port), "||"])
}

/// `<bind>_<port>`.
pub(crate) fn listener(bind: &str, port: u32) -> String {
    joined([bind, "_", itoa::Buffer::new().format(port)])
}

/// Where tools find a networking object; `kind` is written `virtual-service`.
pub(crate) fn config_path(kind: &str, namespace: &str, name: &str) -> String {
    joined(config_path_parts(kind, namespace, name))
}

/// The parts of [`config_path`].
pub(crate) fn config_path_parts<'a>(kind: &'a str, namespace: &'a str, name: &'a str) -> [&'a str; 6] {
    ["/apis/networking.istio.io/v1/namespaces/", namespace, "/", kind, "/", name]
}

/// Metadata that names the networking object something comes from; `kind` is written `virtual-service`.
pub(crate) fn config_metadata(kind: &str, namespace: &str, name: &str) -> Metadata {
    let config = config_path(kind, namespace, name);
    let istio = Struct::from(BTreeMap::from([("config".to_owned(), config.into())]));
    Metadata { filter_metadata: BTreeMap::from([("istio".to_owned(), istio)]), ..Default::default() }
}

/// Statistics names end with a semicolon: the bootstrap's tag extraction relies on it.
pub(crate) fn stat_name(name: &str) -> String {
    joined([name, ";"])
}

/// "Ask me, on this stream, and wait for the answer."
pub(crate) fn ads() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        initial_fetch_timeout: Some(Duration::from_secs(0)),
        resource_api_version: ApiVersion::V3 as i32,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_ipv6_are_in_brackets() {
        assert_eq!(domain("::1", 80), "[::1]:80");
        assert_eq!(operation("a.b", 8080), "a.b:8080/*");
    }

    #[test]
    fn outbound_names_round_trip_and_foreign_ones_are_refused() {
        let name = outbound_cluster("a.b.svc.cluster.local", 80, "v1");
        let parsed = ClusterName::parse(&name).map(|name| (name.port, name.subset, name.host));
        assert_eq!(parsed, Some((80, "v1", "a.b.svc.cluster.local")));
        for foreign in ["BlackHoleCluster", "outbound|x||h", "outbound|80|h"] {
            assert_eq!(ClusterName::parse(foreign), None);
        }
    }

    #[test]
    fn subset_is_named_without_the_protocol_when_the_cluster_is_a_waypoints() {
        let subset = |name: &str| ClusterName::parse(name).unwrap().subset_of_service().to_owned();
        for of_v1 in ["inbound-vip|80|http/v1|h", "inbound-vip|80|tcp/v1|h", "outbound|80|v1|h"] {
            assert_eq!(subset(of_v1), "v1");
        }
        assert_eq!(subset("inbound-vip|80|http|h"), "http");
    }
}
