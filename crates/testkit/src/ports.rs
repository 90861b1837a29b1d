use std::io;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::Result;

/// A TCP port of loopback that nothing listened on a moment ago.
///
/// Another process may take it first, so prefer port 0 where the component can say which port it got.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Starts a component that has to be told its ports, again with others when one was taken in between.
pub(crate) async fn retry_on_taken_port<T>(mut start: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    const TRIES: usize = 3;
    let mut tries = 0;
    loop {
        tries += 1;
        match start().await {
            Err(error) if tries < TRIES && format!("{error:#}").contains("address already in use") => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[tokio::test]
    async fn taken_port_is_tried_again_but_not_for_ever() {
        let mut tries = 0;
        let result = retry_on_taken_port(async || -> Result<()> {
            tries += 1;
            bail!("listen tcp 127.0.0.1:1: bind: address already in use")
        });
        assert!(result.await.is_err());
        assert_eq!(tries, 3);
    }

    #[tokio::test]
    async fn other_failures_are_final() {
        let mut tries = 0;
        let result = retry_on_taken_port(async || -> Result<()> {
            tries += 1;
            bail!("no such flag")
        });
        assert!(result.await.is_err());
        assert_eq!(tries, 1);
    }
}
