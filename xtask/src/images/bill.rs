//! Bills of materials: what programs are compiled from, and what else images contain.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use canopus_images::{Package, Sbom, debian_packages};
use canopus_parts::Part;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

use crate::shell::root;

pub(super) struct Bills {
    pub(super) canopusd: Sbom,
    pub(super) proxy: Sbom,
    pub(super) cni: Sbom,
    pub(super) storefront: Sbom,
}

pub(super) fn all(version: &str) -> Result<Bills> {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).exec()?;
    let mut canopusd = crates_of(&metadata, "canopus-daemon")?;
    canopusd.extend(debian_packages(Part::Runtime)?);
    let mut proxy = crates_of(&metadata, "canopus-agent")?;
    proxy.extend(debian_packages(Part::Runtime)?);
    proxy.extend(debian_packages(Part::Iptables)?);
    proxy.push(Package {
        name: "envoy".to_owned(),
        version: Part::Envoy.version().to_owned(),
        license: "Apache-2.0".to_owned(),
        origin: "generic".to_owned(),
    });
    let mut cni = crates_of(&metadata, "canopus-cni")?;
    cni.extend(debian_packages(Part::Runtime)?);
    cni.extend(debian_packages(Part::Iptables)?);
    let mut storefront = crates_of(&metadata, "canopus-storefront")?;
    storefront.extend(debian_packages(Part::Runtime)?);
    let bill = |name: &str, packages| Sbom { name: name.to_owned(), version: version.to_owned(), packages };
    Ok(Bills {
        canopusd: bill("canopusd", canopusd),
        proxy: bill("proxy", proxy),
        cni: bill("cni", cni),
        storefront: bill("storefront", storefront),
    })
}

/// The crates that a crate is compiled from.
fn crates_of(metadata: &Metadata, name: &str) -> Result<Vec<Package>> {
    let graph = metadata.resolve.as_ref().context("cargo metadata has no dependency graph")?;
    let nodes: BTreeMap<&PackageId, _> = graph.nodes.iter().map(|node| (&node.id, node)).collect();
    let start = metadata.packages.iter().find(|package| package.name.as_str() == name);
    let mut open = vec![&start.with_context(|| format!("there is no crate {name}"))?.id];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let is_linked = |dependency: &&cargo_metadata::NodeDep| {
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        };
        open.extend(dependencies.filter(is_linked).map(|dependency| &dependency.pkg));
    }
    let packages = metadata.packages.iter().filter(|package| seen.contains(&package.id));
    Ok(packages
        .map(|package| Package {
            name: package.name.to_string(),
            version: package.version.to_string(),
            license: package.license.clone().unwrap_or_default(),
            origin: "cargo".to_owned(),
        })
        .collect())
}
