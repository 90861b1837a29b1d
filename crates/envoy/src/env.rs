//! What the generators of one view's resources look at, gathered once.

use std::sync::Arc;

use canopus_engine::Ctx;
use canopus_mesh::attachment::Protected;
use canopus_mesh::proxy::{self, View};
use canopus_mesh::service::Service;
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
    pub(crate) proxy_config: Arc<ProxyConfig>,
    /// The service whose traffic is handled, where policies and telemetry may name it: only waypoints stand in front of
    /// others.
    pub(crate) service: Option<&'a Service>,
}

impl<'a> Env<'a> {
    /// Gathers what applies to a view.
    pub(crate) fn new(ctx: &'a Ctx<'a>, view: &'a View) -> Self {
        let proxy_config = proxy::proxy_config(ctx, view);
        Self { ctx, view, settings: settings(ctx), proxy_config, service: None }
    }

    /// The same, for the traffic of a service.
    pub(crate) fn for_service(&self, service: &'a Service) -> Self {
        Self {
            ctx: self.ctx,
            view: self.view,
            settings: self.settings.clone(),
            proxy_config: self.proxy_config.clone(),
            service: Some(service),
        }
    }

    /// Whom policies of access are looked up for.
    pub(crate) fn protected(&self) -> Protected {
        let workload = Protected::of(self.view);
        self.service.map_or(workload.clone(), |service| workload.with_service(service))
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
