//! Which ports a proxy may open a listener on, and how it gets its traffic.

use canopus_base::protocol::Protocol;
use canopus_mesh::proxy::View;
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;

/// How traffic reaches a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interception {
    /// The kernel redirects it.
    Redirect,
    /// The kernel redirects it and keeps the source address.
    Tproxy,
    /// Applications connect to the proxy.
    None,
}

impl Interception {
    /// What a proxy says about itself.
    pub(crate) fn of(view: &View) -> Self {
        match view.metadata.interception_mode.as_str() {
            "TPROXY" => Self::Tproxy,
            "NONE" => Self::None,
            _ => Self::Redirect,
        }
    }
}

/// How the traffic of a port is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Request by request.
    Http,
    /// As a stream of bytes.
    Tcp,
    /// As its first bytes tell.
    Auto,
    /// Not at all.
    Nothing,
}

impl Handling {
    /// The handling of a protocol.
    pub(crate) fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Udp => Self::Nothing,
            protocol if protocol.is_http() => Self::Http,
            protocol if protocol.is_tcp() => Self::Tcp,
            _ => Self::Auto,
        }
    }
}

/// A listener that is wanted.
pub(crate) struct Wanted<'a> {
    /// The address; empty for all interfaces.
    pub(crate) bind: &'a str,
    /// The port; 0 for the path of a socket.
    pub(crate) port: u32,
    /// What is spoken on it.
    pub(crate) protocol: Protocol,
    /// Whether it is a socket of the operating system rather than a target of redirection.
    pub(crate) to_port: bool,
}

impl Wanted<'_> {
    /// Whether the proxy can have it: the port is not one of its own, nor one it lacks the right to open.
    ///
    /// `mesh` is given if the ports that traffic is redirected to count.
    pub(crate) fn is_allowed(&self, view: &View, wildcard: &str, mesh: Option<&MeshConfig>) -> bool {
        !self.lacks_privilege(view) && !self.is_reserved(view, wildcard, mesh)
    }

    fn lacks_privilege(&self, view: &View) -> bool {
        let unprivileged =
            matches!(view.metadata.unprivileged_pod.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True");
        self.to_port && (1..1024).contains(&self.port) && unprivileged
    }

    fn is_reserved(&self, view: &View, wildcard: &str, mesh: Option<&MeshConfig>) -> bool {
        let on_all_interfaces = match self.bind {
            "" => self.protocol.is_http(),
            bind => bind == wildcard,
        };
        if !on_all_interfaces {
            return false;
        }
        let metadata = &view.metadata;
        let port = i64::from(self.port);
        let always = [metadata.envoy_status_port, metadata.envoy_prometheus_port];
        let if_set = [metadata.envoy_secure_metrics_port, metadata.envoy_secure_merged_metrics_port];
        let redirected = mesh.map(|mesh| [mesh.proxy_listen_port, mesh.proxy_inbound_listen_port]);
        always.contains(&port)
            || if_set.iter().any(|own| *own != 0 && *own == port)
            || redirected.iter().flatten().any(|own| i64::from(*own) == port)
    }
}
