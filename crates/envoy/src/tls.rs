//! TLS in Envoy's configuration: where secrets come from, what the two ends of a connection check of each other, and the
//! sockets around it all.
//!
//! Nothing secret is in here: certificates and keys are named, never inlined.

mod compliance;
mod secret;
mod server;
mod terminate;

use canopus_mesh::world::MeshSettings;
use canopus_proto::envoy::config::core::v3::{TransportSocket, transport_socket::ConfigType};
use canopus_proto::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, SdsSecretConfig, TlsParameters, tls_parameters::TlsProtocol,
};
use canopus_proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use canopus_proto::fields::transport_socket;
use canopus_proto::wire::{ProtoWriter, TypeUrl};
use canopus_proto::{Any, Message, Name};
use canopus_runtime::flags::PILOT_SKIP_VALIDATE_TRUST_DOMAIN;

pub(crate) use compliance::enforce_compliance;
pub(crate) use secret::{
    CA_SUFFIX, CREDENTIAL_CLUSTER, Credentials, agent_secret, file_secret, key_pair_name, roots_name,
};
pub(crate) use server::{ClientChecks, OwnCertificate, revoked_in, with_credentials, with_own_certificate};
pub(crate) use terminate::context as terminating;

/// The name of the socket that does TLS.
pub(crate) const SOCKET: &str = "envoy.transport_sockets.tls";

/// The secret that is the workload's own certificate and key.
pub(crate) const WORKLOAD_SECRET: &str = "default";

/// The secret that is the roots of the mesh.
pub(crate) const ROOTS_SECRET: &str = "ROOTCA";

/// Protocols that the two ends of a connection negotiate, by what a proxy offers.
pub(crate) mod alpn {
    /// A client of a server outside the mesh, over HTTP/2.
    pub(crate) const H2: &[&str] = &["h2"];
    /// A client within the mesh.
    pub(crate) const MESH: &[&str] = &["istio"];
    /// A client within the mesh that exchanges workload metadata.
    pub(crate) const MESH_EXCHANGE: &[&str] = &["istio-peer-exchange", "istio"];
    /// A client within the mesh, over HTTP/2.
    pub(crate) const MESH_H2: &[&str] = &["istio", "h2"];
    /// A client within the mesh that exchanges workload metadata, over HTTP/2.
    pub(crate) const MESH_H2_EXCHANGE: &[&str] = &["istio-peer-exchange", "istio", "h2"];

    /// The protocols as `alpn_protocols` of Envoy's messages.
    pub(crate) fn list(protocols: &[&str]) -> Vec<String> {
        protocols.iter().map(|&protocol| protocol.to_owned()).collect()
    }
}

/// A transport socket of any type.
pub(crate) fn socket<M: Message + Name>(name: &str, config: &M) -> TransportSocket {
    TransportSocket { name: name.to_owned(), config_type: Some(ConfigType::TypedConfig(Any::pack(config))) }
}

/// Writes a transport socket whose configuration is written in place.
pub(crate) fn write_socket<M: TypeUrl>(
    socket: &mut ProtoWriter<TransportSocket>,
    name: &str,
    config: impl FnOnce(&mut ProtoWriter<M>),
) {
    socket.string(transport_socket::NAME, name);
    socket.nested(transport_socket::TYPED_CONFIG, |any| any.pack_of_about(0, config));
}

/// A transport socket whose configuration is encoded already.
pub(crate) fn encoded_socket<M: TypeUrl>(name: &str, config: ProtoWriter<M>) -> TransportSocket {
    let config = Any { type_url: M::TYPE_URL.to_owned(), value: config.into_vec().into() };
    TransportSocket { name: name.to_owned(), config_type: Some(ConfigType::TypedConfig(config)) }
}

/// Plain text.
pub(crate) fn raw_buffer() -> TransportSocket {
    socket("envoy.transport_sockets.raw_buffer", &RawBuffer::default())
}

/// The versions of TLS a proxy offers by itself.
pub(crate) fn versions(minimum: TlsProtocol, maximum: TlsProtocol) -> TlsParameters {
    TlsParameters {
        tls_minimum_protocol_version: minimum as i32,
        tls_maximum_protocol_version: maximum as i32,
        ..Default::default()
    }
}

/// Checks of the peer's certificate: against roots that are a secret, and against `defaults`.
pub(crate) fn validation(
    defaults: CertificateValidationContext,
    roots: Option<SdsSecretConfig>,
) -> ValidationContextType {
    ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
        default_validation_context: Some(defaults),
        validation_context_sds_secret_config: roots,
        ..Default::default()
    })
}

/// The peer's certificate must have one of these names, if there are any.
#[expect(deprecated, reason = "Parity: names of any type count, and the field that replaces it wants a type")]
pub(crate) fn checking_names(names: Vec<StringMatcher>) -> CertificateValidationContext {
    CertificateValidationContext { match_subject_alt_names: names, ..Default::default() }
}

/// Builds an exact matcher for each text.
pub(crate) fn exact<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Vec<StringMatcher> {
    texts.into_iter().map(|text| matcher(MatchPattern::Exact(text.as_ref().to_owned()))).collect()
}

/// Builds a prefix matcher for each text.
pub(crate) fn prefix<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Vec<StringMatcher> {
    texts.into_iter().map(|text| matcher(MatchPattern::Prefix(text.as_ref().to_owned()))).collect()
}

fn matcher(pattern: MatchPattern) -> StringMatcher {
    StringMatcher { match_pattern: Some(pattern), ..Default::default() }
}

/// The trust domains whose identities may connect, each once; none if they are not checked.
pub(crate) fn trust_domains(settings: &MeshSettings) -> Vec<String> {
    if settings.flags.get(PILOT_SKIP_VALIDATE_TRUST_DOMAIN) {
        return Vec::new();
    }
    let mesh = &settings.mesh;
    let of_roots = mesh.ca_certificates.iter().flat_map(|roots| &roots.trust_domains);
    let mut domains: Vec<String> = Vec::new();
    for domain in [&mesh.trust_domain].into_iter().chain(&mesh.trust_domain_aliases).chain(of_roots) {
        if !domain.is_empty() && !domains.contains(domain) {
            domains.push(domain.clone());
        }
    }
    domains
}

/// The beginning of every identity of a trust domain.
pub(crate) fn identity_prefix(trust_domain: &str) -> String {
    format!("spiffe://{trust_domain}/")
}
