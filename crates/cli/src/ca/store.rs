//! Where a self-signed root is kept.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use canopus_controllers::SecretStore;
use canopus_identity::store::{CA_SECRET, DirectoryStore, RootStore};

use crate::cluster::KubeArguments;
use crate::global::Global;

/// Which root: one in a directory, else the one of the cluster that the kubeconfig names.
#[derive(clap::Args, Debug)]
pub(super) struct StoreArguments {
    /// Directory of the authority: for the configuration `mesh` it is `mesh-ca`. Without it, the root is the one of the cluster.
    #[arg(long, value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,
    /// Name of the Secret that has the root, in the control plane's namespace; `cacerts` with `USE_CACERTS_FOR_SELF_SIGNED_CA`.
    #[arg(long, value_name = "NAME", default_value = CA_SECRET, conflicts_with = "directory")]
    secret: String,
}

impl StoreArguments {
    /// The store, and its name for people.
    pub(super) async fn open(
        &self,
        global: &Global,
        kube: &KubeArguments,
    ) -> anyhow::Result<(Arc<dyn RootStore>, String)> {
        if let Some(directory) = &self.directory {
            if !directory.is_dir() {
                bail!("{} is not a directory", directory.display());
            }
            return Ok((Arc::new(DirectoryStore::open(directory)?), directory.display().to_string()));
        }
        if !kube.is_configured() {
            bail!(
                "say where the root is: --directory DIR, or --kubeconfig FILE of the cluster whose control plane has it"
            );
        }
        let (namespace, server) = (&global.istio_namespace, kube.server().await?);
        let place = format!("Secret {namespace}/{}", self.secret);
        Ok((Arc::new(SecretStore::new(server, namespace, &self.secret)), place))
    }
}
