//! What the generators of one view's resources look at, gathered once.

use std::sync::Arc;

use canopus_engine::Ctx;
use canopus_mesh::proxy::{self, View};
use canopus_mesh::world::{MeshSettings, settings};
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use canopus_runtime::flags::{Flag, FlagType, ISTIO_DUAL_STACK};

/// A view, the world around it, and the settings that apply to it.
pub(crate) struct Env<'a> {
    /// The world.
    pub(crate) ctx: &'a Ctx<'a>,
    /// Who the resources are for.
    pub(crate) view: &'a View,
    /// The settings of mesh and process.
    pub(crate) settings: Arc<MeshSettings>,
    /// The configuration the proxy runs with.
    pub(crate) proxy_config: ProxyConfig,
}

impl<'a> Env<'a> {
    /// Gathers what applies to a view.
    pub(crate) fn new(ctx: &'a Ctx<'a>, view: &'a View) -> Self {
        Self { ctx, view, settings: settings(ctx), proxy_config: proxy::proxy_config(ctx, view) }
    }

    /// Mesh configuration.
    pub(crate) fn mesh(&self) -> &MeshConfig {
        &self.settings.mesh
    }

    /// The value of a process-wide flag.
    pub(crate) fn flag<T: FlagType>(&self, flag: Flag<T>) -> T::Output<'_> {
        self.settings.flags.get(flag)
    }

    /// Whether one listener may have addresses of both IP families.
    pub(crate) fn dual_stack(&self) -> bool {
        self.flag(ISTIO_DUAL_STACK)
    }
}

/// Which side of a connection a listener is on, which decides much of what its filters do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// Traffic to the workload of a sidecar.
    Inbound,
    /// Traffic from the workload of a sidecar.
    Outbound,
    /// Traffic through a gateway.
    Gateway,
}
