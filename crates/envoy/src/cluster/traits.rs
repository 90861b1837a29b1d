//! What the clusters of a service depend on, of the proxy that calls it.
//!
//! An audience of clusters has more facts: which services there are and which rules are for them. Proxies of different
//! namespaces mostly have equal traits, and so share the clusters of every service.

use std::sync::Arc;

use canopus_api::node::NodeKind;
use canopus_mesh::audience::{Addressing, Role};
use canopus_proto::envoy::config::cluster::v3::cluster::DnsLookupFamily;
use canopus_runtime::flags::{Flags, PILOT_ENABLE_SENDING_HBONE};

use crate::audience::{
    Build, CertificateFiles, Certificates, ClusterAudience, Config, InboundClusterAudience,
};
use crate::dns_cache;
use crate::telemetry::peer_metadata;

/// The traits, shared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientTraits(Arc<Traits>);

/// The content of [`ClientTraits`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Traits {
    /// What the proxy is there for.
    pub(crate) kind: NodeKind,
    /// Whether it has an IPv4 address.
    pub(crate) ipv4: bool,
    /// Whether it has an IPv6 address.
    pub(crate) ipv6: bool,
    /// The files it was told to connect with instead of its workload's certificate.
    pub(crate) files: Option<CertificateFiles>,
    /// Whether a server of the user's gives out credentials through a socket.
    pub(crate) credential_socket: bool,
    /// Whether secrets made of files have a server of their own.
    pub(crate) file_socket: bool,
    /// The secret with the certificate that its Gateway presents to backends.
    pub(crate) for_backends: Option<Arc<str>>,
    /// Whether HTTP/1 headers keep the case they came in.
    pub(crate) keeps_header_case: bool,
    /// Whether it can exchange workload metadata on connections.
    pub(crate) exchanges_metadata: bool,
}

impl From<&ClusterAudience> for ClientTraits {
    fn from(audience: &ClusterAudience) -> Self {
        let ClusterAudience { role, addressing, certificates, config, build, .. } = audience;
        Self::new(*role, addressing, certificates, config, build)
    }
}

impl From<&InboundClusterAudience> for ClientTraits {
    fn from(audience: &InboundClusterAudience) -> Self {
        let InboundClusterAudience { role, addressing, certificates, config, build, .. } = audience;
        Self::new(*role, addressing, certificates, config, build)
    }
}

impl ClientTraits {
    fn new(
        role: Role,
        addressing: &Addressing,
        certificates: &Certificates,
        config: &Config,
        build: &Build,
    ) -> Self {
        let headers = config.proxy_headers.as_ref();
        let keeps_case = headers.and_then(|headers| headers.preserve_http1_header_case);
        let has_files = !certificates.client.certificate.is_empty();
        Self(Arc::new(Traits {
            kind: role.kind,
            ipv4: addressing.ipv4,
            ipv6: addressing.ipv6,
            files: has_files.then(|| certificates.client.clone()),
            credential_socket: certificates.credential_socket,
            file_socket: certificates.file_socket,
            for_backends: certificates.for_backends.clone(),
            keeps_header_case: keeps_case.is_some_and(|keeps| keeps.value),
            exchanges_metadata: peer_metadata::is_exchanged_by(build),
        }))
    }
}

impl ClientTraits {
    /// The traits of a sidecar that is like this gateway; the same for other proxies.
    pub(super) fn gateway_as_sidecar(&self) -> Self {
        match self.kind {
            NodeKind::Router => Self(Arc::new(Traits { kind: NodeKind::Sidecar, ..Traits::clone(self) })),
            _ => self.clone(),
        }
    }
}

impl std::ops::Deref for ClientTraits {
    type Target = Traits;

    fn deref(&self) -> &Traits {
        &self.0
    }
}

impl Traits {
    /// Whether it opens HBONE tunnels.
    pub(crate) fn sends_hbone(&self, flags: &Flags) -> bool {
        self.kind == NodeKind::Waypoint || flags.get(PILOT_ENABLE_SENDING_HBONE)
    }

    /// Which addresses it resolves names to.
    pub(crate) fn lookup_family(&self, flags: &Flags) -> DnsLookupFamily {
        dns_cache::lookup_family(flags, self.ipv4, self.ipv6)
    }
}
