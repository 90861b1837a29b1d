//! The sockets of a cluster: TLS as the user or the mesh wants it, and the PROXY protocol around it.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use canopus_api::node::NodeKind;
use canopus_mesh::peer_authentication::MutualTls;
use canopus_mesh::world::MeshSettings;
use canopus_proto::Any;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, TransportSocketMatch};
use canopus_proto::envoy::config::core::v3::{ProxyProtocolConfig, TransportSocket};
use canopus_proto::envoy::extensions::clusters::dynamic_forward_proxy::v3::ClusterConfig;
use canopus_proto::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, UpstreamTlsContext,
};
use canopus_proto::fields::{cluster, transport_socket, transport_socket_match, upstream_tls_context};
use canopus_proto::google::protobuf::Struct;
use canopus_proto::istio::networking::v1alpha3::ClientTlsSettings;
use canopus_proto::istio::networking::v1alpha3::client_tls_settings::TlSmode as Mode;
use canopus_proto::istio::networking::v1alpha3::traffic_policy::ProxyProtocol;
use canopus_proto::wire::{Encoded, ProtoWriter, packed_size};
use canopus_runtime::flags::PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES;

use super::draft::Draft;
use super::hbone;
use super::mesh_tls::Context;
use super::traits::ClientTraits;
use crate::audience::CertificateFiles;
use crate::tls::{self, Credentials, alpn};

const PROXY_PROTOCOL: &str = "envoy.transport_sockets.upstream_proxy_protocol";

/// What is known of the other end of a cluster's connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    /// The identities it may have.
    pub(super) accounts: Arc<Vec<String>>,
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

/// The client of a connection and the mesh's TLS settings.
#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) traits: &'a ClientTraits,
    pub(super) settings: &'a MeshSettings,
}

impl Client<'_> {
    /// Whether it opens HBONE tunnels.
    fn sends_hbone(self) -> bool {
        self.traits.sends_hbone(&self.settings.flags)
    }
}

/// The TLS that connections are to have.
enum Wanted<'a> {
    Nothing,
    /// The mesh's own mutual TLS, and whether the mesh chose it because the server seems to take it.
    Mesh(Mesh<'a>, bool),
    /// What these settings say.
    Settings(Cow<'a, ClientTlsSettings>),
}

/// The mesh's own mutual TLS with a server.
struct Mesh<'a> {
    /// The identities the server may have; any, if there are none.
    names: Arc<Vec<String>>,
    /// The name it is asked for.
    sni: &'a str,
    /// Whether its certificate is not checked.
    skips_verification: bool,
}

/// Sets the sockets of a cluster: `tls` is what the user says about TLS to this server.
pub(super) fn apply(draft: &mut Draft, client: Client<'_>, server: &Server, tls: Option<&ClientTlsSettings>) {
    let (socket, mode, detected) = match wanted(client, server, tls) {
        Wanted::Nothing => (None, None, false),
        Wanted::Mesh(mesh, detected) => {
            let socket = mesh_socket(draft, client, &mesh);
            if detected && !draft.is_original_destination() && !client.sends_hbone() {
                draft.if_mutual = Some(socket);
                return;
            }
            (Some(socket.message()), Some(Mode::IstioMutual), detected)
        }
        Wanted::Settings(tls) => {
            let Ok(socket) = socket(draft, client, server, &tls) else { return };
            (socket, Some(tls.mode()), false)
        }
    };
    if socket.is_some() {
        draft.rest().transport_socket = socket;
    }
    if client.sends_hbone() {
        hbone::match_sockets(draft, &client.settings.flags, mode, detected);
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

/// A match of endpoints that take the mesh's mutual TLS, all but the socket.
static TAKES_MUTUAL: LazyLock<Encoded<TransportSocketMatch>> =
    LazyLock::new(|| Encoded::new(&if_mutual(None)));
/// A match of all others, as a field of a cluster.
static PLAIN: LazyLock<Encoded<Cluster>> = LazyLock::new(|| {
    let transport_socket_matches = vec![otherwise_plain()];
    Encoded::new(&Cluster { transport_socket_matches, ..Default::default() })
});

/// Writes what [`if_mutual`] and [`otherwise_plain`] say, as fields of a cluster.
pub(super) fn write_matches(fields: &mut ProtoWriter<Cluster>, socket: &MeshSocket) {
    let field = transport_socket_match::TRANSPORT_SOCKET;
    let size = TAKES_MUTUAL.len() + field.size(socket.size());
    fields.nested_of_exactly(cluster::TRANSPORT_SOCKET_MATCHES, size, |matched| {
        matched.append(&*TAKES_MUTUAL);
        matched.nested_of_exactly(field, socket.size(), |fields| socket.write(fields));
    });
    fields.append(&*PLAIN);
}

/// The mesh's own mutual TLS as a socket that is not written yet.
pub(super) struct MeshSocket {
    /// TLS context without the SNI.
    context: Context,
    /// The name of the server.
    sni: String,
}

impl MeshSocket {
    /// The socket as a message.
    fn message(&self) -> TransportSocket {
        let mut context = ProtoWriter::with_capacity(self.context_size());
        self.write_context(&mut context);
        tls::encoded_socket(tls::SOCKET, context)
    }

    fn write(&self, socket: &mut ProtoWriter<TransportSocket>) {
        socket.string(transport_socket::NAME, tls::SOCKET);
        socket.nested_of_exactly(transport_socket::TYPED_CONFIG, self.config_size(), |any| {
            any.pack_of_exactly(self.context_size(), |context| self.write_context(context));
        });
    }

    fn write_context(&self, context: &mut ProtoWriter<UpstreamTlsContext>) {
        self.context.write(context);
        context.string(upstream_tls_context::SNI, &self.sni);
    }

    fn size(&self) -> usize {
        transport_socket::NAME.text_size(tls::SOCKET.len())
            + transport_socket::TYPED_CONFIG.size(self.config_size())
    }

    fn config_size(&self) -> usize {
        packed_size::<UpstreamTlsContext>(self.context_size())
    }

    fn context_size(&self) -> usize {
        self.context.size() + upstream_tls_context::SNI.text_size(self.sni.len())
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

fn wanted<'a>(client: Client<'_>, server: &'a Server, tls: Option<&'a ClientTlsSettings>) -> Wanted<'a> {
    let files = client.traits.files.as_ref();
    let Some(tls) = tls else { return detected(client, server, files) };
    if matches!(tls.mode(), Mode::Disable | Mode::Simple) {
        return Wanted::Settings(Cow::Borrowed(tls));
    }
    if let Some(files) = files {
        // The roots in the files are the mesh's; a server outside has others.
        let flags = &client.settings.flags;
        if server.is_external && flags.get(PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES) {
            return Wanted::Settings(Cow::Borrowed(tls));
        }
        return Wanted::Settings(Cow::Owned(ClientTlsSettings {
            insecure_skip_verify: tls.insecure_skip_verify,
            ..with_files(files, &tls.subject_alt_names, &tls.sni)
        }));
    }
    if tls.mode() != Mode::IstioMutual {
        return Wanted::Settings(Cow::Borrowed(tls));
    }
    let mut mesh = Mesh::from_settings(tls);
    if mesh.names.is_empty() {
        mesh.names = server.accounts.clone();
    }
    if mesh.sni.is_empty() {
        mesh.sni = &server.sni;
    }
    Wanted::Mesh(mesh, false)
}

/// TLS where no rule sets it: the mesh's mutual TLS, if the server may take it.
fn detected<'a>(client: Client<'_>, server: &'a Server, files: Option<&CertificateFiles>) -> Wanted<'a> {
    let automatic = client.settings.mesh.enable_auto_mtls.as_ref().is_some_and(|on| on.value);
    if server.is_external || !automatic || matches!(server.mtls, None | Some(MutualTls::Disable)) {
        return Wanted::Nothing;
    }
    match files {
        Some(files) => Wanted::Settings(Cow::Owned(with_files(files, &server.accounts, &server.sni))),
        None => {
            let names = server.accounts.clone();
            Wanted::Mesh(Mesh { names, sni: &server.sni, skips_verification: false }, true)
        }
    }
}

impl<'a> Mesh<'a> {
    fn from_settings(tls: &'a ClientTlsSettings) -> Self {
        Self {
            names: Arc::new(tls.subject_alt_names.clone()),
            sni: &tls.sni,
            skips_verification: skips_verification(tls),
        }
    }
}

fn with_files(files: &CertificateFiles, names: &[String], sni: &str) -> ClientTlsSettings {
    ClientTlsSettings {
        mode: Mode::Mutual as i32,
        client_certificate: files.certificate.clone(),
        private_key: files.key.clone(),
        ca_certificates: files.roots.clone(),
        subject_alt_names: names.to_vec(),
        sni: sni.to_owned(),
        ..Default::default()
    }
}

/// Mutual TLS was asked for without saying with which certificate.
pub(super) struct NoCertificate;

/// The TLS that settings ask for; none if they ask for plain text.
pub(super) fn socket(
    draft: &mut Draft,
    client: Client<'_>,
    server: &Server,
    tls: &ClientTlsSettings,
) -> Result<Option<TransportSocket>, NoCertificate> {
    match tls.mode() {
        // A sidecar must not wait for secrets its service account may not read.
        Mode::Simple | Mode::Mutual if names_secret(tls) && !may_read_secrets(client, server) => Ok(None),
        Mode::Disable => Ok(None),
        Mode::IstioMutual => Ok(Some(mesh_socket(draft, client, &Mesh::from_settings(tls)).message())),
        Mode::Simple | Mode::Mutual => {
            let mut context = user_context(draft, client, server, tls)?;
            if let Some(common) = &mut context.common_tls_context {
                tls::enforce_compliance(&client.settings.flags, common);
            }
            Ok(Some(tls::socket(tls::SOCKET, &context)))
        }
    }
}

fn names_secret(tls: &ClientTlsSettings) -> bool {
    !tls.credential_name.is_empty() && !tls.credential_name.starts_with("configmap://")
}

fn may_read_secrets(client: Client<'_>, server: &Server) -> bool {
    client.traits.kind != NodeKind::Sidecar || server.is_for_workloads
}

fn common() -> CommonTlsContext {
    CommonTlsContext {
        tls_params: Some(tls::versions(TlsProtocol::TlSv12, TlsProtocol::TlSv13)),
        ..Default::default()
    }
}

/// The mesh's own mutual TLS.
fn mesh_socket(draft: &mut Draft, client: Client<'_>, mesh: &Mesh<'_>) -> MeshSocket {
    let context = Context::new(&client.settings.flags, mesh.names.clone(), draft.speaks_http2());
    let mut sni = mesh.sni;
    if draft.is_forward_proxy {
        derive_names(draft, mesh.sni, &mesh.names, mesh.skips_verification);
    } else if sni.is_empty() {
        sni = &draft.name;
    }
    MeshSocket { context, sni: sni.to_owned() }
}

/// TLS to a server that has nothing to do with the mesh's identities.
fn user_context(
    draft: &mut Draft,
    client: Client<'_>,
    server: &Server,
    tls: &ClientTlsSettings,
) -> Result<UpstreamTlsContext, NoCertificate> {
    derive_names(draft, &tls.sni, &tls.subject_alt_names, skips_verification(tls));
    let mut tls = tls.clone();
    if server.is_entry && tls.subject_alt_names.is_empty() {
        tls.subject_alt_names = server.accounts.to_vec();
    }
    let mut common = common();
    if tls.credential_name.is_empty() {
        use_files(&mut common, client.traits.file_socket, &tls)?;
    } else {
        use_credential(&mut common, client.traits.credential_socket, &tls);
    }
    if let (Mode::Simple, Some(secret)) = (tls.mode(), &client.traits.for_backends) {
        // Presented to servers that ask for one.
        let credentials = Credentials::for_client(client.traits.credential_socket);
        common.tls_certificate_sds_secret_configs.extend(credentials.secret(secret));
    }
    if let (Some(defaults), Some(parameters)) = (&client.settings.mesh.tls_defaults, &mut common.tls_params) {
        parameters.ecdh_curves.clone_from(&defaults.ecdh_curves);
        parameters.cipher_suites.clone_from(&defaults.cipher_suites);
    }
    if draft.speaks_http2() {
        common.alpn_protocols = alpn::list(alpn::H2);
    }
    Ok(UpstreamTlsContext { common_tls_context: Some(common), sni: tls.sni, ..Default::default() })
}

fn skips_verification(tls: &ClientTlsSettings) -> bool {
    tls.insecure_skip_verify.as_ref().is_some_and(|skip| skip.value)
}

fn use_credential(common: &mut CommonTlsContext, socket: bool, tls: &ClientTlsSettings) {
    let credentials = Credentials::for_client(socket);
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
    // The operating system's roots, unless the user brings their own.
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
fn derive_names(draft: &mut Draft, sni: &str, names: &[String], skips: bool) {
    let sni = sni.is_empty();
    let san = !skips && (draft.is_forward_proxy || (sni && names.is_empty()));
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
    let ClusterDiscoveryType::ClusterType(custom) = &mut draft.discovery else { return };
    let config = custom.typed_config.as_ref().and_then(|config| config.unpack::<ClusterConfig>().ok());
    if let Some(mut config) = config {
        config.allow_insecure_cluster_options = true;
        custom.typed_config = Some(Any::pack(&config));
    }
}

/// Tells the server who the client is, in front of everything else on a connection.
pub(super) fn announce_client(draft: &mut Draft, client: Client<'_>, version: &ProxyProtocol) {
    let flags = &client.settings.flags;
    if client.sends_hbone() {
        hbone::disable_baggage_discovery(draft, flags);
    }
    let detected = draft.if_mutual.take();
    let cluster = draft.rest();
    if let Some(socket) = detected {
        cluster.transport_socket_matches = vec![if_mutual(Some(socket.message())), otherwise_plain()];
    }
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
