//! Which ports a proxy may open a listener on, and how their traffic is handled.

use canopus_base::protocol::Protocol;
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;

use crate::audience::Sockets;

/// How the traffic of a port is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Request by request.
    Http,
    /// Handled as a stream of bytes.
    Tcp,
    /// The first bytes of a connection decide.
    Auto,
    /// The port gets no listener.
    Nothing,
}

impl Handling {
    /// The handling of a protocol.
    pub(crate) fn for_protocol(protocol: Protocol) -> Self {
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
    pub(crate) fn is_allowed(&self, sockets: &Sockets, wildcard: &str, mesh: Option<&MeshConfig>) -> bool {
        !self.lacks_privilege(sockets) && !self.is_reserved(sockets, wildcard, mesh)
    }

    fn lacks_privilege(&self, sockets: &Sockets) -> bool {
        let unprivileged = matches!(&*sockets.unprivileged, "1" | "t" | "T" | "true" | "TRUE" | "True");
        self.to_port && (1..1024).contains(&self.port) && unprivileged
    }

    fn is_reserved(&self, sockets: &Sockets, wildcard: &str, mesh: Option<&MeshConfig>) -> bool {
        let on_all_interfaces = match self.bind {
            "" => self.protocol.is_http(),
            bind => bind == wildcard,
        };
        if !on_all_interfaces {
            return false;
        }
        let port = i64::from(self.port);
        let redirected = mesh.map(|mesh| [mesh.proxy_listen_port, mesh.proxy_inbound_listen_port]);
        sockets.own_ports.contains(&port)
            || sockets.secure_ports.iter().any(|own| *own != 0 && *own == port)
            || redirected.iter().flatten().any(|own| i64::from(*own) == port)
    }
}
