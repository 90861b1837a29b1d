//! Clusters.

use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use canopus_proto::envoy::config::core::v3::Metadata;
use canopus_proto::google::protobuf::value::Kind;

use super::dump::ConfigDump;
use super::render::{self, Format};
use crate::table::{aligned, row};

/// Which clusters are printed.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only clusters whose name contains this host.
    #[arg(long, value_name = "HOST")]
    pub(super) fqdn: Option<String>,
    /// Only clusters of this direction: inbound or outbound.
    #[arg(long, value_name = "DIRECTION")]
    pub(super) direction: Option<String>,
    /// Only clusters whose name contains this subset.
    #[arg(long, value_name = "SUBSET")]
    pub(super) subset: Option<String>,
    /// Only clusters of this port.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) port: u32,
}

impl Filter {
    fn takes(&self, name: &str) -> bool {
        let contains = |part: &Option<String>| part.as_ref().is_none_or(|part| name.contains(part.as_str()));
        contains(&self.fqdn)
            && contains(&self.direction)
            && contains(&self.subset)
            && (self.port == 0 || name.contains(&format!("|{}|", self.port)))
    }
}

/// The parts of a cluster's name, such as `outbound|80|v1|reviews.default.svc.cluster.local`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClusterKey {
    pub(crate) host: String,
    pub(crate) subset: String,
    pub(crate) port: u32,
    pub(crate) direction: String,
}

impl ClusterKey {
    /// The parts of a name that has them.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.splitn(5, '|');
        let (direction, port, subset, host) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            host: host.to_owned(),
            subset: subset.to_owned(),
            port: port.parse().unwrap_or_default(),
            direction: direction.trim_end_matches('_').to_owned(),
        })
    }

    /// The key to sort by; a name without parts counts as a host.
    pub(crate) fn sort_key(name: &str) -> Self {
        Self::parse(name).unwrap_or_else(|| Self {
            host: name.to_owned(),
            subset: String::new(),
            port: 0,
            direction: String::new(),
        })
    }
}

pub(super) fn print(dump: &ConfigDump, filter: &Filter, format: Format) -> anyhow::Result<String> {
    match format {
        Format::Short => summary(dump, filter, false),
        Format::Json | Format::Yaml => Ok(render::messages(&sorted(dump, filter)?, format)),
    }
}

fn sorted(dump: &ConfigDump, filter: &Filter) -> anyhow::Result<Vec<Cluster>> {
    let mut clusters = dump.clusters()?;
    clusters.sort_by_cached_key(|cluster| ClusterKey::sort_key(&cluster.name));
    clusters.retain(|cluster| filter.takes(&cluster.name));
    Ok(clusters)
}

pub(super) fn summary(dump: &ConfigDump, filter: &Filter, with_type: bool) -> anyhow::Result<String> {
    let mut header = row(["SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE"]);
    if with_type {
        header.insert(0, "NAME".to_owned());
    }
    let mut rows = vec![header];
    for cluster in sorted(dump, filter)? {
        let name = if with_type { format!("cluster/{}", cluster.name) } else { cluster.name.clone() };
        let own = match ClusterKey::parse(&cluster.name) {
            Some(key) => {
                let subset = if key.subset.is_empty() { "-".to_owned() } else { key.subset };
                [key.host, key.port.to_string(), subset, key.direction]
            }
            None => [name.clone(), "-".to_owned(), "-".to_owned(), "-".to_owned()],
        };
        let mut cells: Vec<String> = if with_type { vec![name] } else { Vec::new() };
        cells.extend(own);
        cells.push(discovery_type(&cluster).to_owned());
        cells.push(management(cluster.metadata.as_ref()));
        rows.push(cells);
    }
    Ok(aligned(&rows, 5))
}

fn discovery_type(cluster: &Cluster) -> &'static str {
    match &cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::Type(kind)) => {
            DiscoveryType::try_from(*kind).unwrap_or_default().as_str_name()
        }
        // Parity: a custom type prints as the default.
        _ => "STATIC",
    }
}

/// The object that a resource was made from, as `name.namespace`.
pub(crate) fn management(metadata: Option<&Metadata>) -> String {
    let config = metadata.and_then(|metadata| metadata.filter_metadata.get("istio")?.fields.get("config"));
    let Some(config) = config else { return String::new() };
    let Some(Kind::StringValue(path)) = &config.kind else { return "<unknown>".to_owned() };
    if !path.starts_with("/apis/networking.istio.io/") {
        return "<unknown>".to_owned();
    }
    match path.split('/').collect::<Vec<_>>().as_slice() {
        [_, _, _, _, _, namespace, _, name] => format!("{name}.{namespace}"),
        _ => String::new(),
    }
}
