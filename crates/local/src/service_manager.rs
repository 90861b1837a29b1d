//! Telling the service manager (systemd, `Type=notify`) that the mesh runs.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager that waits for the mesh, by the socket that it listens on.
#[derive(Clone, Debug)]
pub(crate) struct ServiceManager(pub(crate) String);

impl ServiceManager {
    /// Says that the mesh is ready, or what it lacks: services that need the mesh are started then.
    pub(crate) fn tell_ready(&self, status: &str) {
        // A manager that hears nothing goes on waiting, and says so.
        let _ = send(&self.0, &message(status));
    }
}

fn message(status: &str) -> String {
    format!("READY=1\nSTATUS={}\n", status.replace('\n', " "))
}

fn send(socket: &str, message: &str) -> io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_manager_hears_on_a_path_and_on_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let abstract_name = format!("canopus-test-{}", std::process::id());
        let sockets = [
            (path.display().to_string(), UnixDatagram::bind(&path).unwrap()),
            (
                format!("@{abstract_name}"),
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap(),
            ),
        ];
        for (name, socket) in sockets {
            send(&name, &message("shop: ready\nas a whole")).unwrap();
            let mut buffer = [0; 100];
            let count = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], b"READY=1\nSTATUS=shop: ready as a whole\n");
        }
        assert!(send("/no/such/socket", "").is_err());
    }
}
