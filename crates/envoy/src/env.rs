//! What generators may read: [`Inputs`] pair an audience with the world, and [`Env`] adds facts that all listeners of the
//! audience need, each looked up at most once.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::attachment::PolicyTarget;
use canopus_mesh::authorization::PoliciesOf;
use canopus_mesh::extension::{Extensions, ExtensionsByPhase};
use canopus_mesh::gateway::{MergedGateway, MergedGateways};
use canopus_mesh::request_authentication::TokenRules;
use canopus_mesh::service::{self, Service, ServiceKey};
use canopus_mesh::telemetry::{ApplicableTelemetry, TelemetryFor};
use canopus_mesh::waypoint::{ServicesBehind, WorkloadsBehind};
use canopus_mesh::world::{MeshSettings, settings};
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use canopus_runtime::flags::{Flag, FlagType, ISTIO_DUAL_STACK};

use crate::audience::{ListenerAudience, Shared};
use crate::tunnel;

/// All that a generator may look at: an audience and the world around it.
pub(crate) struct Inputs<'a, A> {
    /// The world.
    pub(crate) ctx: &'a Ctx<'a>,
    /// The audience that resources are generated for.
    pub(crate) audience: &'a A,
    /// The settings of mesh and process.
    pub(crate) settings: Arc<MeshSettings>,
}

impl<'a, A> Inputs<'a, A> {
    /// An audience in the world.
    pub(crate) fn new(ctx: &'a Ctx<'a>, audience: &'a A) -> Self {
        Self { ctx, audience, settings: settings(ctx) }
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

/// What generators of listeners look at.
pub(crate) struct Env<'a> {
    inputs: Inputs<'a, Shared<ListenerAudience>>,
    /// The service whose traffic is handled, where policies and telemetry may name it: only waypoints stand in front of
    /// others.
    pub(crate) service: Option<&'a Service>,
    /// What was asked for already.
    connections: OnceCell<Shared<ListenerAudience>>,
    extensions: OnceCell<Arc<ExtensionsByPhase>>,
    telemetry: OnceCell<Arc<ApplicableTelemetry>>,
}

impl<'a> Env<'a> {
    /// Gathers what applies to an audience.
    pub(crate) fn new(ctx: &'a Ctx<'a>, audience: &'a Shared<ListenerAudience>) -> Self {
        Self::with_service(ctx, audience, None)
    }

    /// Gathers what applies to an audience and to the traffic of a service, if it is for one.
    pub(crate) fn with_service(
        ctx: &'a Ctx<'a>,
        audience: &'a Shared<ListenerAudience>,
        service: Option<&'a Service>,
    ) -> Self {
        Self {
            inputs: Inputs::new(ctx, audience),
            service,
            connections: OnceCell::new(),
            extensions: OnceCell::new(),
            telemetry: OnceCell::new(),
        }
    }

    /// The same, for the traffic of a service. If nobody says anything about that service, it is traffic like all other.
    pub(crate) fn for_service(&self, service: &'a Service) -> Self {
        let singled_out = self.ctx.get::<SingledOut>(&(self.audience.clone(), service.key()));
        let inputs = Inputs { ctx: self.ctx, audience: self.audience, settings: self.settings.clone() };
        Self {
            inputs,
            service: singled_out.then_some(service),
            connections: self.connections.clone(),
            extensions: OnceCell::new(),
            telemetry: OnceCell::new(),
        }
    }

    /// The audience of what handles connections rather than requests: their spans make no difference to it.
    pub(crate) fn connections(&self) -> &Shared<ListenerAudience> {
        self.connections.get_or_init(|| self.audience.for_connections(self.ctx))
    }

    /// The extensions that users bring along, by phase.
    pub(crate) fn extensions(&self) -> &ExtensionsByPhase {
        let key = || (self.audience.plugins.clone(), self.service.map(Service::key));
        self.extensions.get_or_init(|| self.ctx.get::<Extensions>(&key()))
    }

    /// What Telemetry objects say about the proxy, and about the service it handles traffic for.
    pub(crate) fn telemetry(&self) -> &ApplicableTelemetry {
        let key = || (self.audience.telemetry.clone(), self.service.map(Service::key));
        self.telemetry.get_or_init(|| self.ctx.get::<TelemetryFor>(&key()))
    }

    /// Whether the proxy reaches what is in other networks through tunnels within tunnels.
    pub(crate) fn crosses_networks(&self) -> bool {
        tunnel::crosses_networks(&self.settings.flags, self.audience.role, self.audience.tunnels)
    }

    /// What the Gateways of the proxy add up to; nothing if it runs none.
    pub(crate) fn merged(&self) -> Arc<MergedGateway> {
        self.audience
            .gateway
            .as_ref()
            .map(|runner| self.ctx.get::<MergedGateways>(runner))
            .unwrap_or_default()
    }

    /// The services that the proxy stands in front of, if it is a waypoint.
    pub(crate) fn services_behind(&self) -> Arc<Vec<Arc<Service>>> {
        let waypoint = self.audience.waypoint.as_ref();
        waypoint.map(|waypoint| self.ctx.get::<ServicesBehind>(waypoint)).unwrap_or_default()
    }

    /// The addresses of the workloads that the proxy stands in front of, if it is a waypoint.
    pub(crate) fn workloads_behind(&self) -> Arc<Option<Vec<IpAddr>>> {
        let waypoint = self.audience.waypoint.as_ref();
        waypoint.map(|waypoint| self.ctx.get::<WorkloadsBehind>(waypoint)).unwrap_or_default()
    }

    /// Whom policies of access are looked up for; `None` where nothing arrives that could be refused.
    pub(crate) fn protected(&self) -> Option<PolicyTarget> {
        let proxy = self.audience.access.clone()?;
        Some(match self.service {
            Some(service) => proxy.with_service(service),
            None => proxy,
        })
    }
}

impl<'a> std::ops::Deref for Env<'a> {
    type Target = Inputs<'a, Shared<ListenerAudience>>;

    fn deref(&self) -> &Self::Target {
        &self.inputs
    }
}

/// Whether policies, telemetry or extensions for the traffic of a service are others than for the proxy's traffic at large.
struct SingledOut;

impl Query for SingledOut {
    const NAME: &'static str = "service_singled_out";
    type Key = (Shared<ListenerAudience>, ServiceKey);
    type Value = bool;

    fn run(ctx: &Ctx<'_>, (audience, key): &Self::Key) -> bool {
        let Some(service) = service::service(ctx, key) else { return true };
        let (plugins, telemetry) = (&audience.plugins, &audience.telemetry);
        let differs = |proxy: &PolicyTarget| {
            let guarded = proxy.clone().with_service(&service);
            ctx.get::<PoliciesOf>(proxy) != ctx.get::<PoliciesOf>(&guarded)
                || ctx.get::<TokenRules>(proxy) != ctx.get::<TokenRules>(&guarded)
        };
        let of_service = || Some(key.clone());
        ctx.get::<TelemetryFor>(&(telemetry.clone(), None))
            != ctx.get::<TelemetryFor>(&(telemetry.clone(), of_service()))
            || ctx.get::<Extensions>(&(plugins.clone(), None))
                != ctx.get::<Extensions>(&(plugins.clone(), of_service()))
            || audience.access.as_ref().is_some_and(differs)
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
