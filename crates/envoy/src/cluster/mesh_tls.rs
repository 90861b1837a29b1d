//! The mesh's own mutual TLS, as a client offers it: all alike but for the names that servers may have.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use canopus_proto::Message;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, common_tls_context::CombinedCertificateValidationContext,
};
use canopus_runtime::flags::{
    COMPLIANCE_POLICY, Flags, PILOT_DISABLE_MX_ALPN, PILOT_ENABLE_METADATA_EXCHANGE,
};

use crate::pieces::{Pieces, field_size};
use crate::tls::{self, alpn};

/// The fields that are written in place, from the outside in.
mod field {
    pub(super) const COMMON_TLS_CONTEXT: u32 = 1;
    pub(super) const COMBINED_VALIDATION_CONTEXT: u32 = 8;
    pub(super) const DEFAULT_VALIDATION_CONTEXT: u32 = 1;
    pub(super) const MATCH_SUBJECT_ALT_NAMES: u32 = 9;
    pub(super) const EXACT: u32 = 1;
}

/// An `UpstreamTlsContext` before it is written, all but the name that the server is asked for by.
pub(super) struct Context {
    /// What the client says of itself: fields of a `CommonTlsContext`.
    own: Cow<'static, [u8]>,
    /// The identities the server may have; any, if there are none.
    names: Arc<Vec<String>>,
    /// How many bytes the checks of these take.
    matchers: usize,
}

impl Context {
    /// For servers with these identities.
    pub(super) fn new(flags: &Flags, names: Arc<Vec<String>>, http2: bool) -> Self {
        let exchanges = flags.get(PILOT_ENABLE_METADATA_EXCHANGE) && !flags.get(PILOT_DISABLE_MX_ALPN);
        let kind = usize::from(http2) * 2 + usize::from(exchanges);
        let own = if flags.get(COMPLIANCE_POLICY).is_empty() {
            Cow::Borrowed(&USUAL[kind][..])
        } else {
            let mut own = own_side(PROTOCOLS[kind]);
            tls::enforce_compliance(flags, &mut own);
            Cow::Owned(own.encode_to_vec())
        };
        let matchers = names.iter().map(|name| field_size(field_size(name.len()))).sum();
        Self { own, names, matchers }
    }

    /// How many bytes it takes.
    pub(super) fn size(&self) -> usize {
        field_size(self.common())
    }

    /// Adds its fields.
    pub(super) fn write(&self, context: &mut Pieces) {
        context.header(field::COMMON_TLS_CONTEXT, self.common());
        context.append(&self.own);
        context.header(field::COMBINED_VALIDATION_CONTEXT, self.checks());
        context.header(field::DEFAULT_VALIDATION_CONTEXT, self.matchers);
        for name in self.names.iter() {
            context.header(field::MATCH_SUBJECT_ALT_NAMES, field_size(name.len()));
            context.body(field::EXACT, name.as_bytes());
        }
        context.append(&ROOTS);
    }

    fn common(&self) -> usize {
        self.own.len() + field_size(self.checks())
    }

    fn checks(&self) -> usize {
        field_size(self.matchers) + ROOTS.len()
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
                ..own_side(alpn::MESH_H2_EXCHANGE)
            };
            let message = UpstreamTlsContext { common_tls_context: Some(common), ..Default::default() };
            let context = Context::new(&Flags::defaults(), Arc::new(names), true);
            let mut written = Pieces::default();
            context.write(&mut written);
            assert_eq!((written.len(), context.size()), (message.encoded_len(), message.encoded_len()));
            assert_eq!(UpstreamTlsContext::decode(written.as_slice()).unwrap(), message);
        }
    }
}
