//! Connections between the machine's network and the mesh's.
//!
//! Ports of gateways are opened in the machine's namespace and lead into the mesh; services outside are opened on the bridge
//! and lead out. Bytes are only copied, so nothing of the machine's network configuration is touched.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use canopus_runtime::tasks;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

/// How often a port that is in use is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Whether a port could be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The port was not tried yet.
    Pending,
    /// The port takes connections.
    Yes,
    /// The port could not be opened and is tried again.
    No(String),
}

/// Where connections come from and go to.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    /// The address that is opened.
    pub(crate) listen: SocketAddr,
    /// Where its connections go: an address, or a name to look up.
    pub(crate) target: String,
}

impl Forward {
    /// A port of this machine.
    pub(crate) fn published(port: u16, target: SocketAddr) -> Self {
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), target: target.to_string() }
    }

    /// Accepts connections for ever on this runtime, and connects on another. Says whether the port could be opened.
    pub(crate) async fn run(self, outward: Handle, opened: watch::Sender<Opened>) {
        let listener = self.open(&opened).await;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (target, outward) = (self.target.clone(), outward.clone());
                    // A connection that breaks is seen by both of its ends.
                    tasks::detach("forward", async move { _ = relay(stream, target, &outward).await });
                }
                // The process may have too many open files.
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn open(&self, opened: &watch::Sender<Opened>) -> TcpListener {
        loop {
            match TcpListener::bind(self.listen).await {
                Ok(listener) => {
                    opened.send_replace(Opened::Yes);
                    return listener;
                }
                Err(error) => {
                    let port = self.listen.port();
                    opened.send_replace(Opened::No(match error.kind() {
                        io::ErrorKind::AddrInUse => format!(
                            "port {port} of this machine is in use{}; end that program, or change the gateway's `ports` in \
                             mesh.yaml (the port is tried again)",
                            holder(port).map(|holder| format!(" by {holder}")).unwrap_or_default()
                        ),
                        io::ErrorKind::PermissionDenied => {
                            format!("port {port} of this machine needs root; use one above 1023 in mesh.yaml")
                        }
                        _ => format!("{}: {error}", self.listen),
                    }));
                    sleep(RETRY).await;
                }
            }
        }
    }
}

async fn relay(mut incoming: TcpStream, target: String, outward: &Handle) -> io::Result<()> {
    let connected = outward.spawn(async move { TcpStream::connect(target).await }).await;
    let mut outgoing = connected.map_err(io::Error::other)??;
    incoming.set_nodelay(true)?;
    outgoing.set_nodelay(true)?;
    copy_bidirectional(&mut incoming, &mut outgoing).await.map(drop)
}

/// The process that listens on a port of this machine, as far as the current user may know.
fn holder(port: u16) -> Option<String> {
    let inode = crate::sockets::listening("/proc/net/tcp", port)
        .or_else(|| crate::sockets::listening("/proc/net/tcp6", port))?;
    let (pid, name) = crate::sockets::owner(inode)?;
    Some(format!("{name} (process {pid})"))
}
