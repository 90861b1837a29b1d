//! The headers a proxy adds, as `proxyHeaders` of its configuration says.

use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    ForwardClientCertDetails, ServerHeaderTransformation, SetCurrentClientCertDetails,
};
use canopus_proto::google::protobuf::BoolValue;
use canopus_proto::istio::mesh::v1alpha1::ForwardClientCertDetails as Wanted;
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ProxyHeaders as Written;
use canopus_proto::istio::mesh::v1alpha1::proxy_config::proxy_headers::MetadataExchangeMode;

use super::Manager;
use crate::env::{Class, Env};

/// The settings of `proxyHeaders`, defaults applied.
pub(crate) struct ProxyHeaders {
    /// The value of the `server` header; Envoy's own if empty.
    pub(crate) server_name: String,
    /// What is done with the `server` header of the upstream.
    pub(crate) server_transformation: ServerHeaderTransformation,
    /// What is done with the client certificate's header.
    pub(crate) forwarded_client_cert: ForwardClientCertDetails,
    /// Which parts of the client's certificate `x-forwarded-client-cert` carries.
    pub(crate) client_cert_details: CertDetails,
    /// Whether requests get an id; Envoy's default if not said.
    pub(crate) generate_request_id: Option<bool>,
    /// Whether requests say how often they were tried.
    pub(crate) attempt_count: bool,
    /// Whether Envoy's own headers are left out of responses.
    pub(crate) suppress_debug: bool,
    /// Whether the headers that tell about the workload go to mesh services only.
    pub(crate) peer_metadata_in_mesh_only: bool,
    /// Whether the host a client asked for is passed on when it is changed.
    pub(crate) forwarded_host: bool,
}

impl ProxyHeaders {
    /// The headers of listeners of a class.
    pub(crate) fn new(env: &Env<'_>, class: Class) -> Self {
        let defaults = Written::default();
        let written = env.audience.config.proxy_headers.as_ref().unwrap_or(&defaults);
        let is_true = |value: Option<BoolValue>| value.is_some_and(|value| value.value);
        let server = written.server.clone().unwrap_or_default();
        let server_disabled = is_true(server.disabled);
        // Parity: sidecars' outbound listeners call themselves "envoy", all others "istio-envoy".
        let default_server = if class == Class::Outbound { "" } else { "istio-envoy" };
        let server_name = match (server_disabled, server.value) {
            (true, _) => String::new(),
            (false, value) if value.is_empty() => default_server.into(),
            (false, value) => value,
        };
        Self {
            server_name,
            server_transformation: match server_disabled {
                true => ServerHeaderTransformation::PassThrough,
                false => ServerHeaderTransformation::Overwrite,
            },
            forwarded_client_cert: forwarded_client_cert(written.forwarded_client_cert()),
            client_cert_details: client_cert_details(written),
            generate_request_id: is_true(written.request_id.and_then(|id| id.disabled)).then_some(false),
            attempt_count: !is_true(written.attempt_count.and_then(|count| count.disabled)),
            suppress_debug: is_true(written.envoy_debug_headers.and_then(|debug| debug.disabled)),
            peer_metadata_in_mesh_only: written
                .metadata_exchange_headers
                .is_some_and(|headers| headers.mode() == MetadataExchangeMode::InMesh),
            forwarded_host: is_true(written.x_forwarded_host.and_then(|host| host.enabled)),
        }
    }

    /// A manager whose server name, request ids and own headers are as said.
    pub(crate) fn on<'a>(self, mut manager: Manager<'a>) -> Manager<'a> {
        manager.particulars.server_name = self.server_name;
        manager.particulars.server_transformation = self.server_transformation as i32;
        manager.particulars.generate_request_id = self.generate_request_id;
        manager.suppress_debug_headers = self.suppress_debug;
        manager.peer_headers_in_mesh_only = self.peer_metadata_in_mesh_only;
        manager
    }
}

/// Which parts of a client's certificate `x-forwarded-client-cert` carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CertDetails {
    pub(crate) subject: bool,
    pub(crate) uri: bool,
    pub(crate) dns: bool,
    pub(crate) cert: bool,
    pub(crate) chain: bool,
}

impl From<CertDetails> for SetCurrentClientCertDetails {
    fn from(CertDetails { subject, uri, dns, cert, chain }: CertDetails) -> Self {
        Self { subject: Some(subject.into()), uri, dns, cert, chain, ..Default::default() }
    }
}

/// What holds for the managers of every class.
pub(super) fn apply(env: &Env<'_>, manager: &mut HttpConnectionManager) {
    let headers = env.audience.config.proxy_headers.as_ref();
    let port = headers.and_then(|headers| headers.x_forwarded_port).and_then(|port| port.enabled);
    manager.append_x_forwarded_port = port.is_some_and(|enabled| enabled.value);
}

/// What is done with `x-forwarded-client-cert`; appended to by default.
pub(crate) fn forwarded_client_cert(wanted: Wanted) -> ForwardClientCertDetails {
    match wanted {
        Wanted::Undefined | Wanted::AppendForward => ForwardClientCertDetails::AppendForward,
        Wanted::Sanitize => ForwardClientCertDetails::Sanitize,
        Wanted::ForwardOnly => ForwardClientCertDetails::ForwardOnly,
        Wanted::SanitizeSet => ForwardClientCertDetails::SanitizeSet,
        Wanted::AlwaysForwardOnly => ForwardClientCertDetails::AlwaysForwardOnly,
    }
}

/// Subject, URI and DNS names unless they are switched off; certificate and chain only if they are switched on.
fn client_cert_details(written: &Written) -> CertDetails {
    let details = written.set_current_client_cert_details.unwrap_or_default();
    let or = |value: Option<BoolValue>, default: bool| value.map_or(default, |value| value.value);
    CertDetails {
        subject: or(details.subject, true),
        uri: or(details.uri, true),
        dns: or(details.dns, true),
        cert: or(details.cert, false),
        chain: or(details.chain, false),
    }
}
