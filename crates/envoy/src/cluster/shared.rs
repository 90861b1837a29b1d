//! What most clusters have in common, encoded once.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use canopus_engine::{Ctx, Query};
use canopus_mesh::world::settings;
use canopus_proto::Message;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, common_tls_context::CombinedCertificateValidationContext,
};
use canopus_runtime::flags::{COMPLIANCE_POLICY, PILOT_DISABLE_MX_ALPN, PILOT_ENABLE_METADATA_EXCHANGE};

use crate::pieces::{Pieces, field_size};
use crate::tls::{self, alpn};

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
        let kind = usize::from(peer.http2) * 2 + usize::from(exchanges);
        if flags.get(COMPLIANCE_POLICY).is_empty() {
            return context(&USUAL[kind], &peer.names);
        }
        let mut own = own_side(PROTOCOLS[kind]);
        tls::enforce_compliance(flags, &mut own);
        context(&own.encode_to_vec(), &peer.names)
    }
}

/// What is offered, without HTTP/2 and with it, each without the exchange of metadata and with it.
const PROTOCOLS: [&[&str]; 4] = [alpn::MESH, alpn::MESH_EXCHANGE, alpn::MESH_H2, alpn::MESH_H2_EXCHANGE];

/// What the client says of itself where no policy of compliance applies, encoded, for each of these offers.
static USUAL: LazyLock<[Vec<u8>; 4]> =
    LazyLock::new(|| PROTOCOLS.map(|protocols| own_side(protocols).encode_to_vec()));

/// Where the roots are that a server's certificate is checked against, as a field of the checks.
static ROOTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let roots = Some(tls::agent_secret(tls::ROOTS_SECRET));
    CombinedCertificateValidationContext { validation_context_sds_secret_config: roots, ..Default::default() }
        .encode_to_vec()
});

/// What the client says of itself.
fn own_side(protocols: &[&str]) -> CommonTlsContext {
    CommonTlsContext {
        tls_params: Some(tls::versions(TlsProtocol::TlSv12, TlsProtocol::TlSv13)),
        tls_certificate_sds_secret_configs: vec![tls::agent_secret(tls::WORKLOAD_SECRET)],
        alpn_protocols: alpn::list(protocols),
        ..Default::default()
    }
}

/// Room for the number and the length of a field.
const ROOM: usize = 16;

/// The fields that are written in place, from the outside in.
mod field {
    pub(super) const COMMON_TLS_CONTEXT: u32 = 1;
    pub(super) const COMBINED_VALIDATION_CONTEXT: u32 = 8;
    pub(super) const DEFAULT_VALIDATION_CONTEXT: u32 = 1;
    pub(super) const MATCH_SUBJECT_ALT_NAMES: u32 = 9;
    pub(super) const EXACT: u32 = 1;
}

/// The encoded context of a client that says so much of itself, with servers that have one of these names, if there are any.
fn context(own: &[u8], names: &[String]) -> Bytes {
    let matchers = names.iter().map(|name| field_size(field_size(name.len()))).sum();
    let checks = field_size(matchers) + ROOTS.len();
    let common = own.len() + field_size(checks);
    let mut context = Pieces::with_capacity(field_size(common) + ROOM);
    context.header(field::COMMON_TLS_CONTEXT, common);
    context.append(own);
    context.header(field::COMBINED_VALIDATION_CONTEXT, checks);
    context.header(field::DEFAULT_VALIDATION_CONTEXT, matchers);
    for name in names {
        context.header(field::MATCH_SUBJECT_ALT_NAMES, field_size(name.len()));
        context.body(field::EXACT, name.as_bytes());
    }
    context.append(&ROOTS);
    context.into_vec().into()
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;

    use super::*;

    #[test]
    fn what_is_written_is_what_a_message_would_say() {
        for names in [vec![], vec!["spiffe://a".to_owned(), "x".repeat(300)]] {
            let checks = tls::checking_names(tls::exact(&names));
            let roots = Some(tls::agent_secret(tls::ROOTS_SECRET));
            let common = CommonTlsContext {
                validation_context_type: Some(tls::validation(checks, roots)),
                ..own_side(alpn::MESH_H2)
            };
            let message = UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
            let written = context(&own_side(alpn::MESH_H2).encode_to_vec(), &names);
            assert_eq!(written.len(), message.encoded_len());
            assert_eq!(UpstreamTlsContext::decode(written).unwrap(), message);
        }
    }
}
