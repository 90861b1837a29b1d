//! What the generators of one view's resources look at, gathered once.

use std::cell::OnceCell;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::attachment::Protected;
use canopus_mesh::authorization::PoliciesOf;
use canopus_mesh::extension::{Extensions, OfPhases};
use canopus_mesh::proxy::{self, View};
use canopus_mesh::request_authentication::TokenRules;
use canopus_mesh::service::{self, Service, ServiceKey};
use canopus_mesh::telemetry::{Applicable, Telemetries};
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
    /// The service whose traffic is handled, where policies and telemetry may name it: only waypoints stand in front of
    /// others.
    pub(crate) service: Option<&'a Service>,
    /// What was asked for already.
    proxy_config: OnceCell<Arc<ProxyConfig>>,
    extensions: OnceCell<Arc<OfPhases>>,
    telemetry: OnceCell<Arc<Applicable>>,
}

impl<'a> Env<'a> {
    /// Gathers what applies to a view.
    pub(crate) fn new(ctx: &'a Ctx<'a>, view: &'a View) -> Self {
        Self::with_service(ctx, view, None)
    }

    /// Gathers what applies to a view and to the traffic of a service, if it is for one.
    pub(crate) fn with_service(ctx: &'a Ctx<'a>, view: &'a View, service: Option<&'a Service>) -> Self {
        Self {
            ctx,
            view,
            settings: settings(ctx),
            service,
            proxy_config: OnceCell::new(),
            extensions: OnceCell::new(),
            telemetry: OnceCell::new(),
        }
    }

    /// The same, for the traffic of a service. If nobody says anything about that service, it is traffic like all other.
    pub(crate) fn for_service(&self, service: &'a Service) -> Self {
        let singled_out = self.ctx.get::<SingledOut>(&(self.view.clone(), service.key()));
        Self {
            ctx: self.ctx,
            view: self.view,
            settings: self.settings.clone(),
            service: singled_out.then_some(service),
            proxy_config: self.proxy_config.clone(),
            extensions: OnceCell::new(),
            telemetry: OnceCell::new(),
        }
    }

    /// The configuration the proxy runs with.
    pub(crate) fn proxy_config(&self) -> &ProxyConfig {
        self.proxy_config.get_or_init(|| proxy::proxy_config(self.ctx, self.view))
    }

    /// The extensions that users bring along, by phase.
    pub(crate) fn extensions(&self) -> &OfPhases {
        let service = || self.service.map(Service::key);
        self.extensions.get_or_init(|| self.ctx.get::<Extensions>(&(self.view.clone(), service())))
    }

    /// What Telemetry objects say about the proxies of the view, and about the service they handle traffic for.
    pub(crate) fn telemetry(&self) -> &Applicable {
        let service = || self.service.map(Service::key);
        self.telemetry.get_or_init(|| self.ctx.get::<Telemetries>(&(self.view.clone(), service())))
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

/// Whether policies, telemetry or extensions for the traffic of a service are others than for the proxy's traffic at large.
struct SingledOut;

impl Query for SingledOut {
    const NAME: &'static str = "service_singled_out";
    type Key = (View, ServiceKey);
    type Value = bool;

    fn run(ctx: &Ctx<'_>, (view, key): &Self::Key) -> bool {
        let Some(service) = service::service(ctx, key) else { return true };
        let (of_view, of_service) = ((view.clone(), None), (view.clone(), Some(key.clone())));
        let proxy = Protected::of(view);
        let guarded = proxy.clone().with_service(&service);
        ctx.get::<Telemetries>(&of_view) != ctx.get::<Telemetries>(&of_service)
            || ctx.get::<Extensions>(&of_view) != ctx.get::<Extensions>(&of_service)
            || ctx.get::<PoliciesOf>(&proxy) != ctx.get::<PoliciesOf>(&guarded)
            || ctx.get::<TokenRules>(&proxy) != ctx.get::<TokenRules>(&guarded)
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
