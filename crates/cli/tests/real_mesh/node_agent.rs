//! The node agent from its chart: pods have their traffic captured by the plugin, without an init container that may do it.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::cluster::MeshCluster;
use crate::shop;

/// Settings of an installation with the node agent, for the directories of the cluster's node.
pub(crate) fn settings(cluster: &MeshCluster) -> Vec<String> {
    let directories = cluster.cni_directories();
    vec![
        "--set=components.cni.enabled=true".to_owned(),
        format!("--set=values.cni.cniBinDir={}", directories.programs.display()),
        format!("--set=values.cni.cniConfDir={}", directories.configurations.display()),
    ]
}

pub(crate) async fn check(cluster: &MeshCluster) -> Result<()> {
    cluster.rollout("istio-system", "daemonset/istio-cni-node").await?;
    ensure!(is_in_the_chain(cluster)?, "the plugin is not in the node's network configuration");
    shop::deploy(cluster).await?;
    for app in ["cart", "caller"] {
        let containers = shop::containers(cluster, app, "initContainers").await?;
        ensure!(
            containers.contains("istio-validation") && !containers.contains("istio-init"),
            "{app} has the init containers {containers}"
        );
    }
    shop::mutual_tls(cluster).await.context("mutual TLS with rules of the plugin")
}

/// Whether pods that start now are handed to the plugin.
fn is_in_the_chain(cluster: &MeshCluster) -> Result<bool> {
    let mut texts = String::new();
    for file in fs::read_dir(cluster.cni_directories().configurations)? {
        texts.push_str(&fs::read_to_string(file?.path())?);
    }
    ensure!(texts.contains("bridge"), "the node's own configuration is gone:\n{texts}");
    Ok(texts.contains("istio-cni"))
}
