//! The chain of network filters, in Istio's order.

use canopus_engine::{Ctx, Query};
use canopus_mesh::extension::Extensions;
use canopus_mesh::proxy::View;
use canopus_mesh::service::{self, Service, ServiceKey};
use canopus_proto::envoy::config::listener::v3::Filter;
use canopus_proto::istio::extensions::v1alpha1::traffic_extension::ExecutionPhase as Phase;

use crate::authorization::{self, Stage};
use crate::env::{Class, Env};
use crate::extension::Placed;
use crate::telemetry::{metrics, peer_metadata};

/// What stands before the filters that handle the protocol, besides policies and metrics.
#[derive(Default)]
pub(crate) struct Before<'a> {
    /// Whether metadata is exchanged with the client.
    pub(crate) exchanges_metadata: bool,
    /// The port that extensions know the connections by.
    pub(crate) port: u32,
    /// Resolves the name the client asks for.
    pub(crate) resolver: Option<Filter>,
    /// The service whose policies apply, where those of the workload do not.
    pub(crate) policy_service: Option<&'a Service>,
    /// Whether connections came through an HBONE tunnel.
    pub(crate) tunnelled: bool,
}

/// Everything a connection passes that is not HTTP; `last` handles its protocol.
pub(crate) fn complete(env: &Env<'_>, class: Class, before: Before<'_>, last: Vec<Filter>) -> Vec<Filter> {
    let service = env.service.map(Service::key);
    let extensible = !env.ctx.get::<Extensions>(&(env.view.clone(), service.clone())).is_empty();
    let place = Place {
        view: env.view.clone(),
        service,
        class,
        exchanges_metadata: before.exchanges_metadata,
        port: if extensible { before.port } else { 0 },
        policy_service: before.policy_service.map(Service::key),
        tunnelled: before.tunnelled,
    };
    let mut filters = Vec::clone(&env.ctx.get::<Preceding>(&place));
    filters.extend(before.resolver);
    filters.extend(last);
    filters
}

/// What decides the filters before those that handle the protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    view: View,
    service: Option<ServiceKey>,
    class: Class,
    exchanges_metadata: bool,
    /// The port that extensions know the connections by; 0 where there are none.
    port: u32,
    policy_service: Option<ServiceKey>,
    tunnelled: bool,
}

/// The filters before those that handle the protocol.
///
/// What policies add stands between the exchange of metadata, whose result they may look at, and metrics, in this order:
/// CUSTOM authorization, extensions of the phases AUTHN and AUTHZ, authorization, extensions of STATS and of no phase.
struct Preceding;

impl Query for Preceding {
    const NAME: &'static str = "preceding_network_filters";
    type Key = Place;
    type Value = Vec<Filter>;

    fn run(ctx: &Ctx<'_>, place: &Place) -> Vec<Filter> {
        let named = |key: &Option<ServiceKey>| key.as_ref().and_then(|key| service::service(ctx, key));
        let (service, policy_service) = (named(&place.service), named(&place.policy_service));
        let env = &Env { service: service.as_deref(), ..Env::new(ctx, &place.view) };
        let class = place.class;
        let mut filters = Vec::new();
        if place.exchanges_metadata {
            filters.extend(peer_metadata::network(env));
        }
        let guard = |stage| {
            authorization::on_connections(env, stage, class, policy_service.as_deref(), place.tunnelled)
        };
        let extensions = Placed::network(env, class, place.port);
        filters.extend(guard(Stage::Custom));
        filters.extend(extensions.network_filters(&[Phase::Authn, Phase::Authz]));
        filters.extend(guard(Stage::Own));
        filters.extend(extensions.network_filters(&[Phase::Stats, Phase::Unspecified]));
        filters.extend(metrics::network(env, class));
        filters
    }
}
