//! Mesh-wide settings.

use std::sync::{Arc, LazyLock};

use canopus_api::mesh_config;
use canopus_engine::{EagerCtx, Input};
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, MeshNetworks};
use canopus_runtime::flags::Flags;

/// The engine input with the mesh-wide settings: one value under the key `()`.
pub struct Settings;

/// The value of [`Settings`].
#[derive(Clone, PartialEq)]
pub struct MeshSettings {
    /// Mesh configuration with defaults applied.
    pub mesh: MeshConfig,
    /// The networks of the mesh and their gateways.
    pub networks: MeshNetworks,
    /// DNS suffix of services that live in a namespace.
    pub domain: Arc<str>,
    /// The cluster this control plane belongs to. Istio objects are read from this cluster only.
    pub cluster: Arc<str>,
    /// The namespace the control plane runs in.
    pub system_namespace: Arc<str>,
    /// The revision of this control plane.
    pub revision: Arc<str>,
    /// Whether statuses are stored with the objects they belong to. Without a cluster they are not, and what would be
    /// read from them is computed.
    pub stores_statuses: bool,
    /// The feature flags of the process.
    pub flags: Arc<Flags>,
}

impl MeshSettings {
    /// The namespace whose policies apply to the whole mesh.
    pub fn root_namespace(&self) -> &str {
        &self.mesh.root_namespace
    }

    /// The trust domain of the mesh's identities.
    pub fn trust_domain(&self) -> &str {
        &self.mesh.trust_domain
    }
}

impl Default for MeshSettings {
    fn default() -> Self {
        Self {
            mesh: mesh_config::default_mesh_config(),
            networks: mesh_config::default_networks(),
            domain: "cluster.local".into(),
            cluster: "Kubernetes".into(),
            system_namespace: "istio-system".into(),
            revision: "default".into(),
            stores_statuses: true,
            flags: Arc::new(Flags::defaults()),
        }
    }
}

impl Input for Settings {
    const NAME: &'static str = "settings";
    type Key = ();
    type Value = MeshSettings;
    type Index = ();
}

/// Returns the settings in force: Istio's defaults until the input is set.
pub fn settings(ctx: &EagerCtx<'_>) -> Arc<MeshSettings> {
    static DEFAULTS: LazyLock<Arc<MeshSettings>> = LazyLock::new(Arc::default);
    ctx.read::<Settings>(&()).unwrap_or_else(|| DEFAULTS.clone())
}
