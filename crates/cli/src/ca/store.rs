//! Where a self-signed root is kept.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use canopus_controllers::SecretStore;
use canopus_identity::store::{CA_SECRET, DirectoryStore, RootStore};
use canopus_sources::kubernetes::{Access, Cluster, RateLimit};

use crate::global::Global;

/// Which root.
#[derive(clap::Args, Debug)]
pub(super) struct StoreArguments {
    /// Directory of the authority: for the configuration `mesh` it is `mesh-ca`.
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    directory: Option<PathBuf>,
    /// Kubeconfig of the cluster whose control plane namespace has the root in a Secret.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of that Secret; `cacerts` with `USE_CACERTS_FOR_SELF_SIGNED_CA`.
    #[arg(long, value_name = "NAME", default_value = CA_SECRET)]
    secret: String,
}

impl StoreArguments {
    /// The store, and its name for people.
    pub(super) async fn open(&self, global: &Global) -> anyhow::Result<(Arc<dyn RootStore>, String)> {
        match (&self.directory, &self.kubeconfig) {
            (Some(directory), _) => {
                if !directory.is_dir() {
                    bail!("{} is not a directory", directory.display());
                }
                Ok((Arc::new(DirectoryStore::open(directory)?), directory.display().to_string()))
            }
            (None, Some(path)) => {
                let access = Access::Kubeconfig(path.clone());
                let cluster = Cluster::connect(&access, RateLimit::default())
                    .await
                    .context("cannot reach Kubernetes")?;
                let namespace = &global.istio_namespace;
                let place = format!("Secret {namespace}/{}", self.secret);
                Ok((Arc::new(SecretStore::new(cluster, namespace, &self.secret)), place))
            }
            (None, None) => bail!("say where the root is: --directory DIR, or --kubeconfig FILE"),
        }
    }
}
