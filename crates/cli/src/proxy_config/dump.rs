//! Envoy's configuration dump, taken apart.

use anyhow::{anyhow, bail};
use canopus_base::tree::Node;
use canopus_proto::envoy::admin::v3::{
    BootstrapConfigDump, ClustersConfigDump, EcdsConfigDump, EndpointsConfigDump, ListenersConfigDump,
    RoutesConfigDump, SecretsConfigDump,
};
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::json::Unknown;
use canopus_proto::{Any, Message, Name};

use super::render;

/// Parity: what is no JSON is told as Go's reader of protobuf messages tells it, where the error has a position.
fn syntax_error(text: &[u8], error: &anyhow::Error) -> String {
    let told = format!("{error:#}");
    let position = told.split_once("line ").and_then(|(_, rest)| {
        let (line, rest) = rest.split_once(", column ")?;
        let (column, _) = rest.split_once(':')?;
        Some((line.parse::<usize>().ok()?, column.parse::<usize>().ok()?))
    });
    let token = position.and_then(|(line, column)| {
        let line = text.split(|byte| *byte == b'\n').nth(line.checked_sub(1)?)?;
        String::from_utf8_lossy(line).chars().nth(column.checked_sub(1)?)
    });
    match (position, token) {
        (Some((line, column)), Some(token)) => {
            format!("proto: syntax error (line {line}:{column}): unexpected token {token}")
        }
        _ => told,
    }
}

/// A configuration dump. Sections are read when they are asked for.
pub(crate) struct ConfigDump {
    sections: Vec<Node>,
}

impl ConfigDump {
    /// Reads the JSON that Envoy's administration interface answers.
    pub(crate) fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let mut node = render::parse(text).map_err(|error| {
            anyhow!("error unmarshalling config dump response from Envoy: {}", syntax_error(text, &error))
        })?;
        let configs = node.get_mut("configs").and_then(Node::as_list_mut).map(std::mem::take);
        Ok(Self { sections: configs.unwrap_or_default() })
    }

    /// The sections of a type.
    fn sections<M: Message + Name + Default>(&self) -> anyhow::Result<Vec<M>> {
        let wanted = canopus_proto::type_url::<M>();
        let named = |section: &&Node| section.get("@type").and_then(Node::as_str) == Some(&wanted);
        let mut found = Vec::new();
        for section in self.sections.iter().filter(named) {
            let mut section = section.clone();
            if let Some(map) = section.as_map_mut() {
                map.remove("@type");
            }
            let read = canopus_proto::json::read::<M>(&section, Unknown::Report);
            found.push(read.map_err(|problems| anyhow!("{wanted}: {problems}"))?.value);
        }
        if found.is_empty() {
            bail!("config dump has no configuration type {wanted}");
        }
        Ok(found)
    }

    fn section<M: Message + Name + Default>(&self) -> anyhow::Result<M> {
        Ok(self.sections()?.pop().unwrap_or_default())
    }

    pub(crate) fn bootstrap(&self) -> anyhow::Result<BootstrapConfigDump> {
        self.section()
    }

    pub(crate) fn secrets(&self) -> anyhow::Result<SecretsConfigDump> {
        self.section()
    }

    pub(crate) fn extensions(&self) -> anyhow::Result<EcdsConfigDump> {
        let sections: Vec<EcdsConfigDump> = self.sections()?;
        let ecds_filters = sections.into_iter().flat_map(|section| section.ecds_filters).collect();
        Ok(EcdsConfigDump { ecds_filters })
    }

    /// Endpoints; a dump has none unless it was asked for with `include_eds`.
    pub(crate) fn endpoints(&self) -> anyhow::Result<Option<EndpointsConfigDump>> {
        let wanted = canopus_proto::type_url::<EndpointsConfigDump>();
        let is_there =
            self.sections.iter().any(|one| one.get("@type").and_then(Node::as_str) == Some(&wanted));
        is_there.then(|| self.section()).transpose()
    }

    /// The clusters that the control plane sent.
    pub(crate) fn dynamic_clusters(&self) -> anyhow::Result<Vec<Cluster>> {
        let dump: ClustersConfigDump = self.section()?;
        unpack_all(dump.dynamic_active_clusters.into_iter().filter_map(|one| one.cluster))
    }

    /// The listeners that the control plane sent.
    pub(crate) fn dynamic_listeners(&self) -> anyhow::Result<Vec<Listener>> {
        let dump: ListenersConfigDump = self.section()?;
        unpack_all(dump.dynamic_listeners.into_iter().filter_map(|one| one.active_state?.listener))
    }

    /// The route configurations that the control plane sent.
    pub(crate) fn dynamic_routes(&self) -> anyhow::Result<Vec<RouteConfiguration>> {
        let dump: RoutesConfigDump = self.section()?;
        unpack_all(dump.dynamic_route_configs.into_iter().filter_map(|one| one.route_config))
    }

    /// Clusters, those of the control plane first.
    pub(crate) fn clusters(&self) -> anyhow::Result<Vec<Cluster>> {
        let dump: ClustersConfigDump = self.section()?;
        let dynamic = dump.dynamic_active_clusters.into_iter().filter_map(|one| one.cluster);
        let fixed = dump.static_clusters.into_iter().filter_map(|one| one.cluster);
        unpacked(dynamic.chain(fixed), "no clusters found")
    }

    /// Listeners, those of the control plane first.
    pub(crate) fn listeners(&self) -> anyhow::Result<Vec<Listener>> {
        let dump: ListenersConfigDump =
            self.section().map_err(|error| anyhow!("listener dump: {error:#}"))?;
        let dynamic = dump.dynamic_listeners.into_iter().filter_map(|one| one.active_state?.listener);
        let fixed = dump.static_listeners.into_iter().filter_map(|one| one.listener);
        unpacked(dynamic.chain(fixed), "no listeners found")
    }

    /// Route configurations, those of the control plane first.
    pub(crate) fn routes(&self) -> anyhow::Result<Vec<RouteConfiguration>> {
        let dump: RoutesConfigDump = self.section()?;
        let dynamic = dump.dynamic_route_configs.into_iter().filter_map(|one| one.route_config);
        let fixed = dump.static_route_configs.into_iter().filter_map(|one| one.route_config);
        unpacked(dynamic.chain(fixed), "no routes found")
    }
}

/// Opens messages whatever version of their type they name.
fn unpacked<M: Message + Name + Default>(
    packed: impl Iterator<Item = Any>,
    none: &'static str,
) -> anyhow::Result<Vec<M>> {
    let opened = unpack_all(packed)?;
    if opened.is_empty() { bail!(none) } else { Ok(opened) }
}

fn unpack_all<M: Message + Name + Default>(packed: impl Iterator<Item = Any>) -> anyhow::Result<Vec<M>> {
    Ok(packed.map(|any| M::decode(any.value)).collect::<Result<_, _>>()?)
}
