//! The chain of network filters, in Istio's order.

use canopus_engine::{Ctx, Query};
use canopus_mesh::service::{self, Service, ServiceKey};
use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use canopus_proto::istio::extensions::v1alpha1::traffic_extension::ExecutionPhase as Phase;
use canopus_proto::wire::Encoded;

use super::tcp;
use crate::audience::{ListenerAudience, Shared};
use crate::authorization::{self, Stage};
use crate::env::{Class, Env};
use crate::extension::Placed;
use crate::filter::Filters;
use crate::telemetry::{metrics, peer_metadata};

/// What stands before the filters that handle the protocol, besides policies and metrics.
#[derive(Default)]
pub(crate) struct Before<'a> {
    /// Whether metadata is exchanged with the client.
    pub(crate) exchanges_metadata: bool,
    /// The port that extensions know the connections by.
    pub(crate) port: u32,
    /// Resolves the name the client asks for.
    pub(crate) resolver: Option<Filters>,
    /// The service whose policies apply, where those of the workload do not.
    pub(crate) policy_service: Option<&'a Service>,
    /// Whether connections came through an HBONE tunnel.
    pub(crate) tunnelled: bool,
}

/// What a connection passes that is not HTTP, before what handles its protocol; and what that logs.
pub(super) fn begin(env: &Env<'_>, class: Class, before: Before<'_>) -> (Filters, Encoded<TcpProxy>) {
    let mut place = PrecedingKey {
        audience: env.connections().clone(),
        service: env.service.map(Service::key),
        class,
        exchanges_metadata: before.exchanges_metadata,
        port: 0,
        policy_service: before.policy_service.map(Service::key),
        tunnelled: before.tunnelled,
    };
    let mut preceding = env.ctx.get::<Preceding>(&place);
    if preceding.by_port && before.port != 0 {
        place.port = before.port;
        preceding = env.ctx.get::<Preceding>(&place);
    }
    let mut filters = Filters::with_capacity(preceding.filters.len() + preceding.logs.len() + USUAL);
    filters.append(&preceding.filters);
    before.resolver.iter().for_each(|resolver| filters.append(resolver));
    (filters, preceding.logs.clone())
}

/// Room for a filter that handles a protocol, without what it logs.
const USUAL: usize = 256;

/// What decides the filters before those that handle the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PrecedingKey {
    audience: Shared<ListenerAudience>,
    service: Option<ServiceKey>,
    class: Class,
    exchanges_metadata: bool,
    /// The port that extensions know the connections by; 0 where it makes no difference.
    port: u32,
    policy_service: Option<ServiceKey>,
    tunnelled: bool,
}

/// The filters before those that handle the protocol, and what these log.
///
/// What policies add stands between the exchange of metadata, whose result they may look at, and metrics, in this order:
/// CUSTOM authorization, extensions of the phases AUTHN and AUTHZ, authorization, extensions of STATS and of no phase.
struct Preceding;

impl Query for Preceding {
    const NAME: &'static str = "preceding_network_filters";
    type Key = PrecedingKey;
    type Value = Preceded;

    fn run(ctx: &Ctx<'_>, place: &PrecedingKey) -> Preceded {
        let named = |key: &Option<ServiceKey>| key.as_ref().and_then(|key| service::service(ctx, key));
        let (service, policy_service) = (named(&place.service), named(&place.policy_service));
        let env = &Env::with_service(ctx, &place.audience, service.as_deref());
        let class = place.class;
        let mut filters = Filters::default();
        if place.exchanges_metadata {
            peer_metadata::on_connections(&mut filters, env);
        }
        let guard = |filters: &mut Filters, stage| {
            let service = policy_service.as_deref();
            authorization::on_connections(filters, env, (class, place.tunnelled), stage, service);
        };
        let extensions = Placed::network(env, class, place.port);
        guard(&mut filters, Stage::Custom);
        extensions.on_connections(&mut filters, &[Phase::Authn, Phase::Authz]);
        guard(&mut filters, Stage::Own);
        extensions.on_connections(&mut filters, &[Phase::Stats, Phase::Unspecified]);
        metrics::on_connections(&mut filters, env, class);
        let by_port = !env.extensions().is_empty();
        Preceded { filters, logs: tcp::logs(env, class), by_port }
    }
}

/// What [`Preceding`] gives.
#[derive(PartialEq)]
struct Preceded {
    filters: Filters,
    logs: Encoded<TcpProxy>,
    /// Whether the filters may be others at another port.
    by_port: bool,
}
