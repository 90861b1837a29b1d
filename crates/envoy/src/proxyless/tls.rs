//! Mutual TLS of gRPC libraries: certificates come from providers that the agent's bootstrap names.

use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::TransportSocket;
use canopus_proto::envoy::config::core::v3::transport_socket::ConfigType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CertificateProviderInstance, CombinedCertificateValidationContext, ValidationContextType,
};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext, DownstreamTlsContext,
    UpstreamTlsContext,
};
use canopus_proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

/// The name clients insist on.
const SOCKET: &str = "envoy.transport_sockets.tls";
const PROVIDER: &str = "default";
const ROOTS: &str = "ROOTCA";

/// Connects to servers with one of these identities; with any, if there are none.
pub(super) fn client(identities: &[String]) -> TransportSocket {
    socket(Any::pack(&UpstreamTlsContext {
        common_tls_context: Some(common(identities)),
        ..Default::default()
    }))
}

/// Takes connections of clients that have a certificate.
pub(super) fn server() -> TransportSocket {
    socket(Any::pack(&DownstreamTlsContext {
        common_tls_context: Some(common(&[])),
        require_client_certificate: Some(true.into()),
        ..Default::default()
    }))
}

fn socket(context: Any) -> TransportSocket {
    TransportSocket { name: SOCKET.into(), config_type: Some(ConfigType::TypedConfig(context)) }
}

/// Sets both the present and the former fields: libraries in use know one or the other.
#[allow(deprecated)]
fn common(identities: &[String]) -> CommonTlsContext {
    let former = |name: &str| CertificateProviderInstance {
        instance_name: PROVIDER.into(),
        certificate_name: name.into(),
    };
    let present = |name: &str| CertificateProviderPluginInstance {
        instance_name: PROVIDER.into(),
        certificate_name: name.into(),
    };
    let exact = |identity: &String| StringMatcher {
        match_pattern: Some(MatchPattern::Exact(identity.clone())),
        ..Default::default()
    };
    let validation = CombinedCertificateValidationContext {
        default_validation_context: Some(CertificateValidationContext {
            match_subject_alt_names: identities.iter().map(exact).collect(),
            ca_certificate_provider_instance: Some(present(ROOTS)),
            ..Default::default()
        }),
        validation_context_certificate_provider_instance: Some(former(ROOTS)),
        ..Default::default()
    };
    CommonTlsContext {
        tls_certificate_provider_instance: Some(present(PROVIDER)),
        tls_certificate_certificate_provider_instance: Some(former(PROVIDER)),
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(validation)),
        ..Default::default()
    }
}
