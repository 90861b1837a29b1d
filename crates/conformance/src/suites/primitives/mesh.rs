//! Mesh configuration laid over its defaults.

use anyhow::Context;
use canopus_api::mesh_config;
use canopus_base::tree::Limits;
use canopus_base::yaml;
use canopus_proto::descriptors::to_dynamic;
use canopus_proto::google::protobuf::BoolValue;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use canopus_proto::json::{self, Unknown};
use canopus_proto::{Message, Name};

use super::Check;
use super::row::{Row, equal};
use crate::compare::tree::Rules;
use crate::compare::{Difference, proto};

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestProxyConfigMerge" => proxy_config,
        "TestApplyMeshConfigLocalityZoneAware" => locality,
        "TestDeepMerge" => providers,
        _ => return None,
    })
}

fn proxy_config(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let empty = MeshConfig { default_config: Some(ProxyConfig::default()), ..Default::default() };
    let base = mesh_config::apply_proxy_config(row.text("base")?, &empty)?;
    let mesh = mesh_config::apply_proxy_config(row.text("overlay")?, &base)?;
    against(row.text("result")?, &mesh.default_config.context("the default for proxies is gone")?)
}

/// The balancing settings of the mesh: whether they are set, and whether they are on.
fn locality(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mesh = mesh_config::apply(row.text("yaml")?, &mesh_config::default_mesh_config())?.value;
    let locality = mesh.locality_lb_setting;
    let zone_aware = mesh.zone_aware_lb_setting;
    let mut found = equal("wantLocality", &row.truth("wantLocality")?, &locality.is_some());
    found.extend(equal("wantZoneAware", &row.truth("wantZoneAware")?, &zone_aware.is_some()));
    let is_on = |enabled: Option<BoolValue>| enabled.is_some_and(|b| b.value);
    if row.truth("wantLocEnabled")? {
        let on = is_on(locality.and_then(|setting| setting.enabled));
        found.extend(equal("wantLocEnabled", &true, &on));
    }
    if row.truth("wantZAEnabled")? {
        let on = is_on(zone_aware.and_then(|setting| setting.enabled));
        found.extend(equal("wantZAEnabled", &true, &on));
    }
    Ok(found)
}

/// Lists that are joined by name rather than replaced; only these are compared.
fn providers(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mesh = mesh_config::apply(row.text("in")?, &mesh_with_lists()?)?.value;
    let joined = MeshConfig {
        default_providers: mesh.default_providers,
        extension_providers: mesh.extension_providers,
        trust_domain_aliases: mesh.trust_domain_aliases,
        ..Default::default()
    };
    against(row.text("out")?, &joined)
}

/// What takes the place of the defaults' own lists before the table's configurations are laid over them.
const LISTS: &str = "
defaultProviders: {metrics: [stackdriver]}
extensionProviders: [{name: stackdriver, stackdriver: {maxNumberOfAttributes: 3}}]
trustDomainAliases: [default, both]
";

fn mesh_with_lists() -> anyhow::Result<MeshConfig> {
    let lists: MeshConfig = json::read(&yaml::parse_one(LISTS, &Limits::default())?, Unknown::Reject)?.value;
    Ok(MeshConfig {
        default_providers: lists.default_providers,
        extension_providers: lists.extension_providers,
        trust_domain_aliases: lists.trust_domain_aliases,
        ..mesh_config::default_mesh_config()
    })
}

/// Compares with an expectation written in YAML.
fn against<M: Message + Name>(expected: &str, got: &M) -> anyhow::Result<Vec<Difference>> {
    let expected = proto::read(&M::full_name(), &yaml::parse_one(expected, &Limits::default())?)?;
    Ok(proto::difference(&expected, &to_dynamic(got), &Rules::default()))
}
