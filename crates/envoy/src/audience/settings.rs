//! Facts that a proxy's own metadata says about it, mostly the same in a whole fleet.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use canopus_api::node::{NodeMetadata, Version};
use canopus_mesh::audience::SelectorLabels;
use canopus_proto::Message;
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;

/// What a proxy was built with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Build(Option<Arc<BTreeSet<String>>>);

impl Build {
    /// The message types that configure the extensions it has; `None` if it did not say, which means Istio's own proxy.
    pub(super) fn new(extensions: Option<Arc<BTreeSet<String>>>) -> Self {
        Self(extensions)
    }

    /// Whether the proxy can run the extension configured by messages of this type.
    pub(crate) fn has(&self, type_name: &str) -> bool {
        self.0.as_ref().is_none_or(|known| known.contains(type_name))
    }

    /// Whether the proxy said what it was built with. What such a proxy would reject is repaired or left out.
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_some()
    }
}

/// What depends on the version of Istio's agent and proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gates {
    /// Filter state can be hashed into connection pools.
    pub(crate) hashable_filter_state: bool,
    /// Tracing can leave the context of requests as it is.
    pub(crate) keeps_trace_context: bool,
    /// Zipkin's collector may be an HTTP service.
    pub(crate) zipkin_service: bool,
    /// Zipkin's trace context can be chosen.
    pub(crate) zipkin_context_option: bool,
    /// Tags of spans may be formats.
    pub(crate) formatted_tags: bool,
}

impl Gates {
    pub(super) fn new(version: Version) -> Self {
        let since = |major, minor| (version.major, version.minor) >= (major, minor);
        Self {
            hashable_filter_state: version >= Version { major: 1, minor: 29, patch: 2 },
            keeps_trace_context: since(1, 30),
            zipkin_service: since(1, 29),
            zipkin_context_option: since(1, 28),
            formatted_tags: since(1, 29),
        }
    }
}

/// The caller as routes of VirtualServices match it: `sourceNamespace` and `sourceLabels`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    /// The namespace that the proxy itself says it is in.
    pub(crate) namespace: Arc<str>,
    /// The labels that routes match.
    pub(crate) labels: SelectorLabels,
}

/// Whether HBONE tunnels lead from and to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tunnels {
    /// Whether it may open them.
    pub(crate) may_open: bool,
    /// Whether it takes them.
    pub(crate) takes: bool,
}

/// How traffic reaches a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interception {
    /// The kernel redirects it.
    Redirect,
    /// The kernel redirects it and keeps the source address.
    Tproxy,
    /// Applications connect to the proxy.
    None,
}

/// The sockets of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sockets {
    /// How traffic reaches it.
    pub(crate) interception: Interception,
    /// Whether it cannot bind ports below 1024, in the words of its metadata.
    pub(crate) unprivileged: Arc<str>,
    /// The ports of its own, for health and metrics.
    pub(crate) own_ports: [i64; 2],
    /// Further ports that the proxy listens on; 0 stands for none.
    pub(crate) secure_ports: [i64; 2],
    /// The port of an HTTP forward proxy to open.
    pub(crate) http_proxy_port: Option<u32>,
    /// Whether inbound connections are balanced exactly over worker threads.
    pub(crate) balances_inbound: bool,
    /// Whether outbound connections are balanced exactly over worker threads.
    pub(crate) balances_outbound: bool,
}

impl Sockets {
    pub(super) fn new(metadata: &NodeMetadata) -> Self {
        Self {
            interception: match metadata.interception_mode.as_str() {
                "TPROXY" => Interception::Tproxy,
                "NONE" => Interception::None,
                _ => Interception::Redirect,
            },
            unprivileged: metadata.unprivileged_pod.as_str().into(),
            own_ports: [metadata.envoy_status_port, metadata.envoy_prometheus_port],
            secure_ports: [metadata.envoy_secure_metrics_port, metadata.envoy_secure_merged_metrics_port],
            http_proxy_port: metadata.http_proxy_port.parse().ok(),
            balances_inbound: metadata.inbound_listener_exact_balance.0,
            balances_outbound: metadata.outbound_listener_exact_balance.0,
        }
    }
}

/// How a proxy handles requests and connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HttpTraits {
    /// After how long connections end that nothing happens on, as a Go duration.
    pub(crate) idle_timeout: Box<str>,
    /// Whether the workload makes HTTP/1.0 requests.
    pub(crate) http10: bool,
    /// Whether a waypoint tells servers who the client is.
    pub(crate) tells_client_identity: bool,
    /// Whether a gateway has routes to InferencePools.
    pub(crate) asks_endpoint_pickers: bool,
}

/// Where a proxy has certificates from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Certificates {
    /// The files it was told to serve with, each empty where it was not.
    pub(crate) server: CertificateFiles,
    /// The files it was told to connect with instead of its workload's certificate.
    pub(crate) client: CertificateFiles,
    /// Whether a server of the user's gives out credentials through a socket.
    pub(crate) credential_socket: bool,
    /// Whether secrets made of files have a server of their own.
    pub(crate) file_socket: bool,
    /// The secret with the certificate that a Gateway presents to backends.
    pub(crate) for_backends: Option<Arc<str>>,
}

/// A certificate in files; paths may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CertificateFiles {
    /// The certificate chain.
    pub(crate) certificate: String,
    /// The key.
    pub(crate) key: String,
    /// The roots peers are checked against.
    pub(crate) roots: String,
}

impl Certificates {
    pub(super) fn new(metadata: &NodeMetadata) -> Self {
        let says = |key: &str| metadata.raw.text(key).as_deref() == Some("true");
        Self {
            server: CertificateFiles {
                certificate: metadata.tls_server_cert_chain.clone(),
                key: metadata.tls_server_key.clone(),
                roots: metadata.tls_server_root_cert.clone(),
            },
            client: CertificateFiles {
                certificate: metadata.tls_client_cert_chain.clone(),
                key: metadata.tls_client_key.clone(),
                roots: metadata.tls_client_root_cert.clone(),
            },
            credential_socket: says("credential"),
            file_socket: says("file-credential"),
            for_backends: None,
        }
    }
}

/// Address of the agent that answers the proxy's DNS queries, if it captures them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resolver(pub(crate) Option<Box<str>>);

/// What generators read of a proxy's configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    read: Arc<ProxyConfig>,
    /// Equal configurations have equal bytes, and messages with numbers in them are not [`Eq`].
    bytes: Arc<[u8]>,
}

impl Config {
    /// Keeps what generators read, and nothing else: the rest differs from pod to pod for nothing.
    pub(super) fn new(said: &ProxyConfig) -> Self {
        let read = ProxyConfig {
            proxy_headers: said.proxy_headers.clone(),
            tracing: said.tracing.clone(),
            gateway_topology: said.gateway_topology,
            connection_settings: said.connection_settings,
            private_key_provider: said.private_key_provider,
            ..Default::default()
        };
        Self { bytes: read.encode_to_vec().into(), read: Arc::new(read) }
    }
}

impl std::ops::Deref for Config {
    type Target = ProxyConfig;

    fn deref(&self) -> &ProxyConfig {
        &self.read
    }
}

impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Config {}

impl Hash for Config {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}
