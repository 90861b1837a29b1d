//! Fields of clusters that most clusters have in common, encoded once.

use std::sync::Arc;

use bytes::Bytes;
use canopus_engine::{Ctx, Query};
use canopus_mesh::world::settings;
use canopus_proto::Message;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{CommonTlsContext, UpstreamTlsContext};
use canopus_runtime::flags::{PILOT_DISABLE_MX_ALPN, PILOT_ENABLE_METADATA_EXCHANGE};

use super::audience::Audience;
use super::fixed;
use crate::tls::{self, alpn};

/// The filters of every cluster for an audience, as a field of the cluster.
pub(super) struct Filters;

impl Query for Filters {
    const NAME: &'static str = "cluster_filters";
    type Key = Audience;
    type Value = Bytes;

    fn run(ctx: &Ctx<'_>, audience: &Audience) -> Bytes {
        let filters = fixed::exchange(&settings(ctx), audience);
        Cluster { filters, ..Default::default() }.encode_to_vec().into()
    }
}

/// The mesh's own mutual TLS, all but the name of the server: an `UpstreamTlsContext` to which that is added.
pub(super) struct MeshTls;

/// Whom the mesh's own mutual TLS is spoken with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Peer {
    /// The identities the server may have; any, if there are none.
    pub(super) names: Arc<Vec<String>>,
    /// Whether HTTP/2 is offered.
    pub(super) http2: bool,
}

impl Query for MeshTls {
    const NAME: &'static str = "mesh_tls";
    type Key = Peer;
    type Value = Bytes;

    fn run(ctx: &Ctx<'_>, peer: &Peer) -> Bytes {
        let settings = settings(ctx);
        let flags = &settings.flags;
        let exchanges = flags.get(PILOT_ENABLE_METADATA_EXCHANGE) && !flags.get(PILOT_DISABLE_MX_ALPN);
        let protocols = match (peer.http2, exchanges) {
            (true, true) => alpn::MESH_H2_EXCHANGE,
            (true, false) => alpn::MESH_H2,
            (false, true) => alpn::MESH_EXCHANGE,
            (false, false) => alpn::MESH,
        };
        let names = tls::checking_names(tls::exact(peer.names.iter()));
        let mut common = CommonTlsContext {
            tls_params: Some(tls::versions(TlsProtocol::TlSv12, TlsProtocol::TlSv13)),
            tls_certificate_sds_secret_configs: vec![tls::agent_secret(tls::WORKLOAD_SECRET)],
            validation_context_type: Some(tls::validation(names, Some(tls::agent_secret(tls::ROOTS_SECRET)))),
            alpn_protocols: alpn::list(protocols),
            ..Default::default()
        };
        tls::enforce_compliance(flags, &mut common);
        UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() }.encode_to_vec().into()
    }
}
