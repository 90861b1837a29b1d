//! The sockets of a cluster: TLS as the user or the mesh wants it, and the PROXY protocol around it.

use canopus_api::node::NodeKind;
use canopus_mesh::peer_authentication::MutualTls;
use canopus_mesh::world::MeshSettings;
use canopus_proto::Any;
use canopus_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, TransportSocketMatch};
use canopus_proto::envoy::config::core::v3::{ProxyProtocolConfig, TransportSocket};
use canopus_proto::envoy::extensions::clusters::dynamic_forward_proxy::v3::ClusterConfig;
use canopus_proto::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, UpstreamTlsContext,
};
use canopus_proto::google::protobuf::Struct;
use canopus_proto::istio::networking::v1alpha3::ClientTlsSettings;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::traffic_policy::ProxyProtocol;
use canopus_runtime::flags::{
    Flags, PILOT_DISABLE_MX_ALPN, PILOT_ENABLE_METADATA_EXCHANGE,
    PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES,
};

use super::audience::{Audience, ClientFiles};
use super::draft::Draft;
use super::hbone;
use crate::tls::{self, Credentials, alpn};

const PROXY_PROTOCOL: &str = "envoy.transport_sockets.upstream_proxy_protocol";

/// What is known of the other end of a cluster's connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Server<'a> {
    /// The identities it may have.
    pub(super) accounts: &'a [String],
    /// The name the mesh's own TLS asks it for.
    pub(super) sni: String,
    /// Whether it lives outside the mesh.
    pub(super) is_external: bool,
    /// Whether a ServiceEntry defines it.
    pub(super) is_entry: bool,
    /// Whether it takes the mesh's mutual TLS; `None` if that cannot be known.
    pub(super) mtls: Option<MutualTls>,
    /// Whether the settings come from a rule for some workloads.
    pub(super) is_for_workloads: bool,
}

/// Who connects, and how the mesh is set up.
#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) audience: &'a Audience,
    pub(super) settings: &'a MeshSettings,
}

/// TLS settings, and whether the mesh chose them because the server seems to take them.
struct Wanted {
    tls: Option<ClientTlsSettings>,
    detected: bool,
}

/// Sets the sockets of a cluster: `tls` is what the user says about TLS to this server.
pub(super) fn apply(
    draft: &mut Draft,
    client: Client<'_>,
    server: &Server<'_>,
    tls: Option<&ClientTlsSettings>,
) {
    let wanted = wanted(client, server, tls);
    let Ok(context) = wanted.tls.as_ref().map_or(Ok(None), |tls| context(draft, client, server, tls)) else {
        return;
    };
    draft.cluster.transport_socket = context.map(|context| tls::socket(tls::SOCKET, &context));
    let detected = wanted.detected && wanted.tls.as_ref().is_some_and(|tls| tls.mode() == Mode::IstioMutual);
    if client.audience.sends_hbone(&client.settings.flags) {
        hbone::match_sockets(draft, &client.settings.flags, wanted.tls.as_ref(), detected);
    } else if detected && !draft.is_original_destination() {
        let mutual = draft.cluster.transport_socket.take();
        draft.cluster.transport_socket_matches = vec![if_mutual(mutual), otherwise_plain()];
    }
}

/// Endpoints that say they take the mesh's mutual TLS.
pub(super) fn if_mutual(socket: Option<TransportSocket>) -> TransportSocketMatch {
    let fields = [("tlsMode".to_owned(), "istio".into())].into();
    TransportSocketMatch {
        name: "tlsMode-istio".to_owned(),
        r#match: Some(Struct { fields }),
        transport_socket: socket,
    }
}

/// All endpoints that nothing before it matches.
pub(super) fn otherwise_plain() -> TransportSocketMatch {
    TransportSocketMatch {
        name: "tlsMode-disabled".to_owned(),
        r#match: Some(Struct::default()),
        transport_socket: Some(tls::raw_buffer()),
    }
}

fn wanted(client: Client<'_>, server: &Server<'_>, tls: Option<&ClientTlsSettings>) -> Wanted {
    let files = client.audience.files.as_ref();
    let Some(tls) = tls else { return detected(client, server, files) };
    let user = |tls| Wanted { tls: Some(tls), detected: false };
    if matches!(tls.mode(), Mode::Disable | Mode::Simple) {
        return user(tls.clone());
    }
    if let Some(files) = files {
        // The roots in the files are the mesh's; a server outside has others.
        let flags = &client.settings.flags;
        if server.is_external && flags.get(PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES) {
            return user(tls.clone());
        }
        return user(ClientTlsSettings {
            insecure_skip_verify: tls.insecure_skip_verify,
            ..with_files(files, &tls.subject_alt_names, &tls.sni)
        });
    }
    if tls.mode() != Mode::IstioMutual {
        return user(tls.clone());
    }
    let names = if tls.subject_alt_names.is_empty() { server.accounts } else { &tls.subject_alt_names };
    let sni = if tls.sni.is_empty() { &server.sni } else { &tls.sni };
    user(ClientTlsSettings { insecure_skip_verify: tls.insecure_skip_verify, ..of_mesh(names, sni) })
}

/// Nobody said anything: the mesh's mutual TLS, if the server may take it.
fn detected(client: Client<'_>, server: &Server<'_>, files: Option<&ClientFiles>) -> Wanted {
    let automatic = client.settings.mesh.enable_auto_mtls.as_ref().is_some_and(|on| on.value);
    if server.is_external || !automatic || matches!(server.mtls, None | Some(MutualTls::Disable)) {
        return Wanted { tls: None, detected: false };
    }
    let tls = match files {
        Some(files) => with_files(files, server.accounts, &server.sni),
        None => of_mesh(server.accounts, &server.sni),
    };
    Wanted { tls: Some(tls), detected: true }
}

fn of_mesh(names: &[String], sni: &str) -> ClientTlsSettings {
    ClientTlsSettings {
        mode: Mode::IstioMutual as i32,
        subject_alt_names: names.to_vec(),
        sni: sni.to_owned(),
        ..Default::default()
    }
}

fn with_files(files: &ClientFiles, names: &[String], sni: &str) -> ClientTlsSettings {
    ClientTlsSettings {
        mode: Mode::Mutual as i32,
        client_certificate: files.certificate.clone(),
        private_key: files.key.clone(),
        ca_certificates: files.roots.clone(),
        ..of_mesh(names, sni)
    }
}

/// Mutual TLS was asked for without saying with which certificate.
pub(super) struct NoCertificate;

/// The TLS that settings ask for; none if they ask for plain text.
pub(super) fn context(
    draft: &mut Draft,
    client: Client<'_>,
    server: &Server<'_>,
    tls: &ClientTlsSettings,
) -> Result<Option<UpstreamTlsContext>, NoCertificate> {
    let mut context = match tls.mode() {
        // A sidecar must not wait for secrets its service account may not read.
        Mode::Simple | Mode::Mutual if names_secret(tls) && !may_read_secrets(client, server) => {
            return Ok(None);
        }
        Mode::Disable => return Ok(None),
        Mode::IstioMutual => mesh_context(draft, &client.settings.flags, tls),
        Mode::Simple | Mode::Mutual => user_context(draft, client, server, tls)?,
    };
    if let Some(common) = &mut context.common_tls_context {
        tls::enforce_compliance(&client.settings.flags, common);
    }
    Ok(Some(context))
}

fn names_secret(tls: &ClientTlsSettings) -> bool {
    !tls.credential_name.is_empty() && !tls.credential_name.starts_with("configmap://")
}

fn may_read_secrets(client: Client<'_>, server: &Server<'_>) -> bool {
    client.audience.kind != NodeKind::Sidecar || server.is_for_workloads
}

fn common() -> CommonTlsContext {
    CommonTlsContext {
        tls_params: Some(tls::versions(TlsProtocol::TlSv12, TlsProtocol::TlSv13)),
        ..Default::default()
    }
}

/// The mesh's own mutual TLS.
fn mesh_context(draft: &mut Draft, flags: &Flags, tls: &ClientTlsSettings) -> UpstreamTlsContext {
    let exchanges = flags.get(PILOT_ENABLE_METADATA_EXCHANGE) && !flags.get(PILOT_DISABLE_MX_ALPN);
    let protocols = match (draft.http2().is_some(), exchanges) {
        (true, true) => alpn::MESH_H2_EXCHANGE,
        (true, false) => alpn::MESH_H2,
        (false, true) => alpn::MESH_EXCHANGE,
        (false, false) => alpn::MESH,
    };
    let names = tls::checking_names(tls::exact(&tls.subject_alt_names));
    let common = CommonTlsContext {
        tls_certificate_sds_secret_configs: vec![tls::agent_secret(tls::WORKLOAD_SECRET)],
        validation_context_type: Some(tls::validation(names, Some(tls::agent_secret(tls::ROOTS_SECRET)))),
        alpn_protocols: alpn::list(protocols),
        ..common()
    };
    let mut sni = tls.sni.clone();
    if draft.is_forward_proxy {
        derive_names(draft, tls);
    } else if sni.is_empty() {
        sni.clone_from(&draft.cluster.name);
    }
    UpstreamTlsContext { common_tls_context: Some(common), sni, ..Default::default() }
}

/// TLS to a server that has nothing to do with the mesh's identities.
fn user_context(
    draft: &mut Draft,
    client: Client<'_>,
    server: &Server<'_>,
    tls: &ClientTlsSettings,
) -> Result<UpstreamTlsContext, NoCertificate> {
    derive_names(draft, tls);
    let mut tls = tls.clone();
    if server.is_entry && tls.subject_alt_names.is_empty() {
        tls.subject_alt_names = server.accounts.to_vec();
    }
    let mut common = common();
    if tls.credential_name.is_empty() {
        use_files(&mut common, client.audience.file_socket, &tls)?;
    } else {
        use_credential(&mut common, client.audience.credential_socket, &tls);
    }
    if let (Some(defaults), Some(parameters)) = (&client.settings.mesh.tls_defaults, &mut common.tls_params) {
        parameters.ecdh_curves.clone_from(&defaults.ecdh_curves);
        parameters.cipher_suites.clone_from(&defaults.cipher_suites);
    }
    if draft.http2().is_some() {
        common.alpn_protocols = alpn::list(alpn::H2);
    }
    Ok(UpstreamTlsContext { common_tls_context: Some(common), sni: tls.sni, ..Default::default() })
}

fn skips_verification(tls: &ClientTlsSettings) -> bool {
    tls.insecure_skip_verify.as_ref().is_some_and(|skip| skip.value)
}

fn use_credential(common: &mut CommonTlsContext, socket: bool, tls: &ClientTlsSettings) {
    let credentials = Credentials::of_client(socket);
    if tls.mode() == Mode::Mutual {
        common.tls_certificate_sds_secret_configs =
            credentials.secret(&tls.credential_name).into_iter().collect();
    }
    if skips_verification(tls) {
        return;
    }
    let names = tls::checking_names(tls::exact(&tls.subject_alt_names));
    let roots = credentials.secret(&format!("{}{}", tls.credential_name, tls::CA_SUFFIX));
    common.validation_context_type = Some(tls::validation(names, roots));
}

/// Files in the pod, which the agent serves as secrets so that they can be replaced.
fn use_files(
    common: &mut CommonTlsContext,
    socket: bool,
    tls: &ClientTlsSettings,
) -> Result<(), NoCertificate> {
    if tls.mode() == Mode::Mutual {
        let name = tls::key_pair_name(&tls.client_certificate, &tls.private_key).ok_or(NoCertificate)?;
        common.tls_certificate_sds_secret_configs.push(tls::file_secret(&name, socket));
    }
    // Those of the operating system, unless the user brings their own.
    let roots = if tls.ca_certificates.is_empty() { "system" } else { &tls.ca_certificates };
    common.validation_context_type = Some(match tls::roots_name(roots) {
        Some(name) if !skips_verification(tls) => {
            let checks = CertificateValidationContext {
                crl: tls::revoked_in(&tls.ca_crl),
                ..tls::checking_names(tls::exact(&tls.subject_alt_names))
            };
            tls::validation(checks, Some(tls::file_secret(&name, socket)))
        }
        _ => ValidationContextType::ValidationContext(CertificateValidationContext::default()),
    });
    Ok(())
}

/// Takes the name to ask for, and to check, from each request where the user gave none.
fn derive_names(draft: &mut Draft, tls: &ClientTlsSettings) {
    let skips = skips_verification(tls);
    let sni = tls.sni.is_empty();
    let san = !skips && (draft.is_forward_proxy || (sni && tls.subject_alt_names.is_empty()));
    if draft.is_forward_proxy && (skips || !sni || !san) {
        allow_fixed_names(draft);
    }
    if sni || san {
        let options = draft.http().upstream_http_protocol_options.get_or_insert_default();
        options.auto_sni |= sni;
        options.auto_san_validation |= san;
    }
}

/// A forward proxy refuses to check less than the name of the request, unless it is told that this is meant.
fn allow_fixed_names(draft: &mut Draft) {
    let Some(ClusterDiscoveryType::ClusterType(custom)) = &mut draft.cluster.cluster_discovery_type else {
        return;
    };
    let config = custom.typed_config.as_ref().and_then(|config| config.unpack::<ClusterConfig>().ok());
    if let Some(mut config) = config {
        config.allow_insecure_cluster_options = true;
        custom.typed_config = Some(Any::pack(&config));
    }
}

/// Tells the server who the client is, in front of everything else on a connection.
pub(super) fn announce_client(draft: &mut Draft, client: Client<'_>, version: &ProxyProtocol) {
    let flags = &client.settings.flags;
    if client.audience.sends_hbone(flags) {
        hbone::disable_baggage_discovery(draft, flags);
    }
    let cluster = &mut draft.cluster;
    if cluster.transport_socket.is_none() && cluster.transport_socket_matches.is_empty() {
        cluster.transport_socket = Some(hbone::plain());
    }
    let matched = cluster.transport_socket_matches.iter_mut().map(|matched| &mut matched.transport_socket);
    for socket in matched.chain([&mut cluster.transport_socket]) {
        *socket = socket.take().map(|inner| announcing(inner, version));
    }
}

/// A socket that tells the server who the client is before anything else.
pub(super) fn announcing(inner: TransportSocket, version: &ProxyProtocol) -> TransportSocket {
    let config = ProxyProtocolConfig { version: version.version, ..Default::default() };
    let transport = ProxyProtocolUpstreamTransport {
        config: Some(config),
        transport_socket: Some(inner),
        ..Default::default()
    };
    tls::socket(PROXY_PROTOCOL, &transport)
}
