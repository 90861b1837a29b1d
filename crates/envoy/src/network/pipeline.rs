//! The chain of network filters, in Istio's order.

use canopus_mesh::service::Service;
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
///
/// What policies add stands between the exchange of metadata, whose result they may look at, and metrics, in this order:
/// CUSTOM authorization, extensions of the phases AUTHN and AUTHZ, authorization, extensions of STATS and of no phase.
pub(crate) fn complete(env: &Env<'_>, class: Class, before: Before<'_>, last: Vec<Filter>) -> Vec<Filter> {
    let mut filters = Vec::new();
    if before.exchanges_metadata {
        filters.extend(peer_metadata::network(env));
    }
    let guard =
        |stage| authorization::on_connections(env, stage, class, before.policy_service, before.tunnelled);
    let extensions = Placed::network(env, class, before.port);
    filters.extend(guard(Stage::Custom));
    filters.extend(extensions.network_filters(&[Phase::Authn, Phase::Authz]));
    filters.extend(guard(Stage::Own));
    filters.extend(extensions.network_filters(&[Phase::Stats, Phase::Unspecified]));
    filters.extend(metrics::network(env, class));
    filters.extend(before.resolver);
    filters.extend(last);
    filters
}
