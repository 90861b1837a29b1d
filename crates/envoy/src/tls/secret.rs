//! Where a proxy gets a secret from: its agent, files beside it, a server of the user's, or the control plane.

use canopus_engine::Ctx;
use canopus_mesh::world::settings;
use canopus_proto::envoy::config::core::v3::api_config_source::ApiType;
use canopus_proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use canopus_proto::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use canopus_proto::envoy::config::core::v3::{
    AggregatedConfigSource, ApiConfigSource, ApiVersion, ConfigSource, GrpcService,
};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::SdsSecretConfig;
use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::Provider;

use super::{ROOTS_SECRET, WORKLOAD_SECRET};
use crate::provider::{self, Upstream};

/// What the secret of a credential's certificate authority is called, after the credential's name.
pub(crate) const CA_SUFFIX: &str = "-cacert";

/// The cluster of the socket through which a server of the user's gives out credentials.
pub(crate) const CREDENTIAL_CLUSTER: &str = "sds-external";

const AGENT_CLUSTER: &str = "sds-grpc";
const FILES_CLUSTER: &str = "sds-files-grpc";
const BUILTIN: &str = "builtin://";
const EXTERNAL: &str = "sds://";
const INVALID: &str = "invalid://";
const KUBERNETES: &str = "kubernetes://";
const KUBERNETES_GATEWAY: &str = "kubernetes-gateway://";
const CONFIG_MAP: &str = "configmap://";

/// A secret the agent beside the proxy serves.
pub(crate) fn agent_secret(name: &str) -> SdsSecretConfig {
    cluster_secret(name, AGENT_CLUSTER)
}

/// A secret made of files, served by the agent, or by a server of its own where there is one.
pub(crate) fn file_secret(name: &str, own_server: bool) -> SdsSecretConfig {
    cluster_secret(name, if own_server { FILES_CLUSTER } else { AGENT_CLUSTER })
}

fn cluster_secret(name: &str, cluster: &str) -> SdsSecretConfig {
    // The agent always has the workload's own secrets, so it is safe to wait for them.
    let always_there = [WORKLOAD_SECRET, ROOTS_SECRET].contains(&name);
    let cluster = if always_there { AGENT_CLUSTER } else { cluster };
    let mut source = grpc_source(cluster, "");
    source.initial_fetch_timeout = always_there.then(|| Duration::from_secs(0));
    SdsSecretConfig { name: name.to_owned(), sds_config: Some(source) }
}

fn grpc_source(cluster: &str, authority: &str) -> ConfigSource {
    let grpc =
        EnvoyGrpc { cluster_name: cluster.to_owned(), authority: authority.to_owned(), ..Default::default() };
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource {
            api_type: ApiType::Grpc as i32,
            transport_api_version: ApiVersion::V3 as i32,
            set_node_on_first_message_only: true,
            grpc_services: vec![GrpcService {
                target_specifier: Some(TargetSpecifier::EnvoyGrpc(grpc)),
                ..Default::default()
            }],
            ..Default::default()
        })),
        resource_api_version: ApiVersion::V3 as i32,
        ..Default::default()
    }
}

/// The name of the secret that a certificate and a key in files make; none if one of them is missing.
pub(crate) fn key_pair_name(certificate: &str, key: &str) -> Option<String> {
    (!certificate.is_empty() && !key.is_empty()).then(|| format!("file-cert:{certificate}~{key}"))
}

/// The name of the secret that roots in a file make; none without a file.
pub(crate) fn roots_name(roots: &str) -> Option<String> {
    (!roots.is_empty()).then(|| format!("file-root:{roots}"))
}

/// Where the credentials come from that Gateways and DestinationRules name.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    socket: bool,
    server: Server,
}

/// The server of the user's that gives out credentials over the network.
#[derive(Clone, Debug)]
enum Server {
    None,
    Unknown,
    At(Upstream),
}

impl Credentials {
    /// Certificates that a proxy connects with.
    pub(crate) fn for_client(socket: bool) -> Self {
        Self { socket, server: Server::None }
    }

    /// Certificates that a proxy serves with.
    pub(crate) fn for_server(ctx: &Ctx<'_>, socket: bool) -> Self {
        let providers = &settings(ctx).mesh.extension_providers;
        let server = providers.iter().find_map(|provider| match &provider.provider {
            Some(Provider::Sds(server)) => Some(server.clone()),
            _ => None,
        });
        let server = match server {
            None => Server::None,
            Some(server) => {
                provider::upstream(ctx, &server.service, server.port).map_or(Server::Unknown, Server::At)
            }
        };
        Self { socket, server }
    }

    /// The secret of a credential; none if it cannot be had.
    pub(crate) fn secret(&self, credential: &str) -> Option<SdsSecretConfig> {
        if credential.is_empty() {
            return None;
        }
        if let Some(rest) = credential.strip_prefix(BUILTIN) {
            match rest {
                "" => return Some(agent_secret(WORKLOAD_SECRET)),
                CA_SUFFIX => return Some(agent_secret(ROOTS_SECRET)),
                _ => {}
            }
        }
        let Some(external) = credential.strip_prefix(EXTERNAL) else {
            return Some(from_control_plane(credential));
        };
        if self.socket {
            // Servers behind the socket know credentials by the whole name.
            let source = grpc_source(CREDENTIAL_CLUSTER, "");
            return Some(SdsSecretConfig { name: credential.to_owned(), sds_config: Some(source) });
        }
        match &self.server {
            Server::None => Some(from_control_plane(external)),
            Server::Unknown => None,
            Server::At(upstream) => Some(SdsSecretConfig {
                name: external.to_owned(),
                sds_config: Some(grpc_source(&upstream.cluster, &upstream.host)),
            }),
        }
    }
}

/// A secret of Kubernetes. It may not exist, and the proxy must not wait for it.
fn from_control_plane(credential: &str) -> SdsSecretConfig {
    SdsSecretConfig {
        name: resource_name(credential),
        sds_config: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
            resource_api_version: ApiVersion::V3 as i32,
            ..Default::default()
        }),
    }
}

fn resource_name(credential: &str) -> String {
    if credential.starts_with(BUILTIN) {
        return WORKLOAD_SECRET.to_owned();
    }
    if credential.starts_with(INVALID) {
        return INVALID.to_owned();
    }
    let has_type =
        [CONFIG_MAP, KUBERNETES, KUBERNETES_GATEWAY].iter().any(|kind| credential.starts_with(kind));
    if has_type { credential.to_owned() } else { format!("{KUBERNETES}{credential}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(credentials: &Credentials, credential: &str) -> String {
        credentials.secret(credential).map(|secret| secret.name).unwrap_or_default()
    }

    #[test]
    fn credentials_are_secrets_of_kubernetes_unless_they_say_otherwise() {
        let credentials = Credentials::for_client(false);
        for (credential, expected) in [
            ("", ""),
            ("mine", "kubernetes://mine"),
            ("configmap://ns/roots", "configmap://ns/roots"),
            ("kubernetes-gateway://ns/mine", "kubernetes-gateway://ns/mine"),
            ("builtin://", "default"),
            ("builtin://-cacert", "ROOTCA"),
            ("invalid://whatever", "invalid://"),
            ("sds://mine", "kubernetes://mine"),
        ] {
            assert_eq!(name(&credentials, credential), expected);
        }
    }

    #[test]
    fn external_credentials_keep_their_name_when_a_socket_serves_them() {
        let secret = Credentials::for_client(true).secret("sds://mine").unwrap();
        assert_eq!(secret.name, "sds://mine");
        assert_eq!(secret.sds_config, Some(grpc_source(CREDENTIAL_CLUSTER, "")));
        assert_eq!(name(&Credentials::for_client(true), "mine"), "kubernetes://mine");
    }

    #[test]
    fn external_credentials_come_from_the_network_when_a_server_is_known() {
        let at = |server| Credentials { socket: false, server };
        let upstream = Upstream { host: "sds.ns".into(), cluster: "outbound|80||sds.ns".into() };
        assert_eq!(name(&at(Server::At(upstream)), "sds://mine"), "mine");
        assert_eq!(at(Server::Unknown).secret("sds://mine"), None);
    }

    #[test]
    fn only_the_workloads_own_secrets_are_waited_for() {
        let timeout = |secret: SdsSecretConfig| secret.sds_config.unwrap().initial_fetch_timeout;
        assert_eq!(timeout(agent_secret(WORKLOAD_SECRET)), Some(Duration::from_secs(0)));
        assert_eq!(timeout(file_secret("file-root:/ca.pem", true)), None);
        assert_eq!(file_secret(ROOTS_SECRET, true), agent_secret(ROOTS_SECRET));
    }
}
