use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A TCP port in front of another one, whose connections a test can break.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    Cut,
    Stall,
}

impl Relay {
    /// Passes connections on to `target`.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mode = watch::Sender::new(Mode::Pass);
        let task = tokio::spawn(accept(listener, target, mode.subscribe()));
        Ok(Self { address, mode, task })
    }

    /// Where the relay listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection, and every new one.
    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// Keeps connections open, and takes new ones, but passes nothing on any more, as a network that loses every packet.
    pub fn stall(&self) {
        self.mode.send_replace(Mode::Stall);
    }

    /// Passes new connections on again. Those that were stalled break.
    pub fn heal(&self) {
        self.mode.send_replace(Mode::Pass);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, mode: watch::Receiver<Mode>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(pass(stream, target, mode.clone()));
    }
}

async fn pass(mut stream: TcpStream, target: SocketAddr, mut mode: watch::Receiver<Mode>) {
    let copied = async {
        if let Ok(mut other) = TcpStream::connect(target).await {
            // An error is the end of the connection, which both sides see.
            let _ = copy_bidirectional(&mut stream, &mut other).await;
        }
    };
    tokio::select! {
        () = copied => return,
        _ = mode.wait_for(|mode| *mode != Mode::Pass) => {}
    }
    let _ = mode.wait_for(|mode| *mode != Mode::Stall).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::{Echo, http};

    #[tokio::test]
    async fn connections_pass_until_they_are_cut_or_stalled() {
        let echo = Echo::start("behind").await.unwrap();
        let relay = Relay::start(echo.address()).await.unwrap();
        http::get(relay.address(), "/").await.unwrap().ok().unwrap();
        relay.cut();
        assert!(http::get(relay.address(), "/").await.is_err());
        relay.stall();
        let stalled = timeout(Duration::from_millis(50), http::get(relay.address(), "/"));
        assert!(stalled.await.is_err(), "no answer");
        relay.heal();
        http::get(relay.address(), "/").await.unwrap().ok().unwrap();
    }
}
