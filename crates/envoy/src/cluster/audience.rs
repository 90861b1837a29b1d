//! Who clusters are built for: the few facts about a proxy that decide what the clusters of a service look like.
//!
//! A view has many more. Proxies of different namespaces, nodes and workloads mostly share an audience, and so share the
//! clusters of every service.

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_engine::Ctx;
use canopus_mesh::proxy::{View, proxy_config};
use canopus_proto::envoy::config::cluster::v3::cluster::DnsLookupFamily;
use canopus_runtime::flags::{Flags, PILOT_ENABLE_SENDING_HBONE};

use crate::dns_cache;
use crate::telemetry::peer_metadata;
use crate::tls;

/// The facts, shared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Audience(Arc<Facts>);

/// The content of an [`Audience`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Facts {
    /// What the proxy is there for.
    pub(crate) kind: NodeKind,
    /// Whether it has an IPv4 address.
    pub(crate) ipv4: bool,
    /// Whether it has an IPv6 address.
    pub(crate) ipv6: bool,
    /// The files it was told to connect with instead of its workload's certificate.
    pub(crate) files: Option<ClientFiles>,
    /// Whether a server of the user's gives out credentials through a socket.
    pub(crate) credential_socket: bool,
    /// Whether secrets made of files have a server of their own.
    pub(crate) file_socket: bool,
    /// Whether HTTP/1 headers keep the case they came in.
    pub(crate) keeps_header_case: bool,
    /// Whether it can exchange workload metadata on connections.
    pub(crate) exchanges_metadata: bool,
}

/// A certificate in files.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientFiles {
    /// The certificate chain.
    pub(crate) certificate: String,
    /// The key.
    pub(crate) key: String,
    /// The roots servers are checked against.
    pub(crate) roots: String,
}

impl Audience {
    /// The audience a view belongs to.
    pub(crate) fn of(ctx: &Ctx<'_>, view: &View) -> Self {
        let metadata = &view.metadata;
        let files = || ClientFiles {
            certificate: metadata.tls_client_cert_chain.clone(),
            key: metadata.tls_client_key.clone(),
            roots: metadata.tls_client_root_cert.clone(),
        };
        let headers = proxy_config(ctx, view).proxy_headers.clone();
        let keeps_case = headers.and_then(|headers| headers.preserve_http1_header_case);
        Self(Arc::new(Facts {
            kind: view.kind,
            ipv4: view.ipv4,
            ipv6: view.ipv6,
            files: (!metadata.tls_client_cert_chain.is_empty()).then(files),
            credential_socket: tls::serves_credentials(metadata),
            file_socket: tls::uses_file_socket(metadata),
            keeps_header_case: keeps_case.is_some_and(|keeps| keeps.value),
            exchanges_metadata: peer_metadata::is_exchanged_by(view),
        }))
    }
}

impl std::ops::Deref for Audience {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

impl Facts {
    /// Whether it opens HBONE tunnels.
    pub(crate) fn sends_hbone(&self, flags: &Flags) -> bool {
        self.kind == NodeKind::Waypoint || flags.get(PILOT_ENABLE_SENDING_HBONE)
    }

    /// Which addresses it resolves names to.
    pub(crate) fn lookup_family(&self, flags: &Flags) -> DnsLookupFamily {
        dns_cache::family_of(flags, self.ipv4, self.ipv6)
    }
}
