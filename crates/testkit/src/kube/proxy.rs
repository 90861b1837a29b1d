use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use tokio::net::TcpStream;

use super::Kubectl;
use crate::Process;
use crate::http::{self, Method, Request};
use crate::ports::free_port;

const PATIENCE: Duration = Duration::from_secs(30);

/// The API of a cluster over plain HTTP, for tests that ask it much or look at its very answers.
#[derive(Debug)]
pub struct KubeProxy {
    _process: Process,
    address: SocketAddr,
}

impl KubeProxy {
    pub(super) async fn start(kubectl: &Kubectl, directory: &std::path::Path) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut command = kubectl.command(&["proxy", &format!("--port={}", address.port())]);
        let mut process = Process::spawn("kubectl-proxy", &mut command, directory)?;
        let open = async || Ok(TcpStream::connect(address).await?);
        process.eventually("the proxy's port", PATIENCE, open).await?;
        Ok(Self { _process: process, address })
    }

    /// Begins a request of the administrator.
    pub fn request(&self, method: Method, path: &str) -> Request {
        http::request(method, self.address, path)
    }
}
