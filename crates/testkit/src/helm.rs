use std::path::Path;
use std::process::Command;

use anyhow::Result;
use canopus_parts::Part;

use crate::tool;

/// Runs Helm without a cluster and returns what it printed; its files are not the user's.
pub async fn helm(arguments: &[&str]) -> Result<String> {
    let home = tempfile::tempdir()?;
    tool::run(command(home.path(), arguments)?, "").await
}

/// A call of Helm that keeps its caches, repositories and plug-ins in `home`.
pub(crate) fn command(home: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(canopus_parts::find(Part::Helm)?.join("helm"));
    command
        .args(arguments)
        .env("HELM_CACHE_HOME", home.join("helm/cache"))
        .env("HELM_CONFIG_HOME", home.join("helm/config"))
        .env("HELM_DATA_HOME", home.join("helm/data"))
        .env_remove("KUBECONFIG");
    Ok(command)
}
