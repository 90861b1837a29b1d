//! The mesh's own mutual TLS, as a client offers it: all alike but for the names that servers may have.

use std::sync::{Arc, LazyLock};

use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, UpstreamTlsContext,
    common_tls_context::CombinedCertificateValidationContext,
};
use canopus_proto::envoy::r#type::matcher::v3::StringMatcher;
use canopus_proto::fields::{
    certificate_validation_context, combined_validation_context, common_tls_context, string_matcher,
    upstream_tls_context,
};
use canopus_proto::wire::{Encoded, Explicit, Field, Nested, ProtoWriter};
use canopus_runtime::flags::{
    COMPLIANCE_POLICY, Flags, PILOT_DISABLE_MX_ALPN, PILOT_ENABLE_METADATA_EXCHANGE,
};

use crate::tls::{self, alpn};

/// What is checked of the server's certificate, and the part of it that is about names.
const CHECKS: Field<CommonTlsContext, Nested<CombinedCertificateValidationContext>, Explicit> =
    common_tls_context::COMBINED_VALIDATION_CONTEXT;
const NAME_CHECKS: Field<
    CombinedCertificateValidationContext,
    Nested<CertificateValidationContext>,
    Explicit,
> = combined_validation_context::DEFAULT_VALIDATION_CONTEXT;
/// Parity: names of any type count, and the field that replaces it wants a type.
const NAMES: Field<CertificateValidationContext, Nested<StringMatcher>, Explicit> =
    certificate_validation_context::MATCH_SUBJECT_ALT_NAMES;

/// An `UpstreamTlsContext` before it is written, all but the name that the server is asked for by.
pub(super) struct Context {
    /// What the client says of itself: fields of a `CommonTlsContext`.
    own: Encoded<CommonTlsContext>,
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
            USUAL[kind].clone()
        } else {
            let mut own = own_side(PROTOCOLS[kind]);
            tls::enforce_compliance(flags, &mut own);
            Encoded::new(&own)
        };
        let matchers = names.iter().map(|name| NAMES.size(matcher_size(name))).sum();
        Self { own, names, matchers }
    }

    /// How many bytes it takes.
    pub(super) fn size(&self) -> usize {
        upstream_tls_context::COMMON_TLS_CONTEXT.size(self.common())
    }

    /// Adds its fields.
    pub(super) fn write(&self, context: &mut ProtoWriter<UpstreamTlsContext>) {
        context.nested_of_exactly(upstream_tls_context::COMMON_TLS_CONTEXT, self.common(), |common| {
            common.append(&self.own);
            common.nested_of_exactly(CHECKS, self.checks(), |checks| {
                checks.nested_of_exactly(NAME_CHECKS, self.matchers, |context| self.write_names(context));
                checks.append(&*ROOTS);
            });
        });
    }

    fn write_names(&self, context: &mut ProtoWriter<CertificateValidationContext>) {
        for name in self.names.iter() {
            context.nested_of_exactly(NAMES, matcher_size(name), |matcher| {
                matcher.string(string_matcher::EXACT, name);
            });
        }
    }

    fn common(&self) -> usize {
        self.own.len() + CHECKS.size(self.checks())
    }

    fn checks(&self) -> usize {
        NAME_CHECKS.size(self.matchers) + ROOTS.len()
    }
}

fn matcher_size(name: &str) -> usize {
    string_matcher::EXACT.text_size(name.len())
}

/// What is offered, without HTTP/2 and with it, each without the exchange of metadata and with it.
const PROTOCOLS: [&[&str]; 4] = [alpn::MESH, alpn::MESH_EXCHANGE, alpn::MESH_H2, alpn::MESH_H2_EXCHANGE];

/// What the client says of itself where no policy of compliance applies, encoded, for each of these offers.
static USUAL: LazyLock<[Encoded<CommonTlsContext>; 4]> =
    LazyLock::new(|| PROTOCOLS.map(|protocols| Encoded::new(&own_side(protocols))));

/// Where the roots are that a server's certificate is checked against, as a field of the checks.
static ROOTS: LazyLock<Encoded<CombinedCertificateValidationContext>> = LazyLock::new(|| {
    let validation_context_sds_secret_config = Some(tls::agent_secret(tls::ROOTS_SECRET));
    Encoded::new(&CombinedCertificateValidationContext {
        validation_context_sds_secret_config,
        ..Default::default()
    })
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
    use canopus_proto::Message;

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
            let mut written = ProtoWriter::default();
            context.write(&mut written);
            assert_eq!((written.len(), context.size()), (message.encoded_len(), message.encoded_len()));
            assert_eq!(UpstreamTlsContext::decode(written.as_slice()).unwrap(), message);
        }
    }
}
