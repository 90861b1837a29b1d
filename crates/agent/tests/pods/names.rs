//! Names, asked for with dig as an application's resolver does: the query goes to resolv.conf's server and is captured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::net::UdpSocket;

use crate::network::NODE;
use crate::world::World;

const OBJECTS: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: [api.outside.example, '*.wild.example']
  addresses: [10.97.0.1]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.78.0.3}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: many, namespace: shop}
spec:
  hosts: [many.outside.example]
  addresses: [10.97.1.1, 10.97.1.2, 10.97.1.3]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.78.0.3}]
";

pub(crate) fn service_entries() -> Result<()> {
    let world = World::start(OBJECTS, &[], &[])?;
    let client = &world.client;
    let short = |arguments: &[&str]| -> Result<Vec<String>> {
        let arguments = [&["+short"], arguments].concat();
        let mut lines: Vec<String> = client.dig(&arguments)?.lines().map(str::to_owned).collect();
        lines.sort();
        Ok(lines)
    };
    ensure!(short(&["reviews.shop.mesh"])? == ["10.96.0.10"], "{}", client.dig(&["reviews.shop.mesh"])?);
    assert_eq!(short(&["+tcp", "api.outside.example"])?, ["10.97.0.1"]);
    assert_eq!(short(&["any.thing.wild.example"])?, ["10.97.0.1"]);
    assert_eq!(short(&["many.outside.example"])?, ["10.97.1.1", "10.97.1.2", "10.97.1.3"]);
    // The search domain is taken off, with an alias.
    assert_eq!(
        short(&["+search", "+ndots=9", "api.outside.example"])?,
        ["10.97.0.1", "api.outside.example."]
    );
    // There is no IPv6 address, which is no reason to think that there is no such name.
    let other_family = client.dig(&["api.outside.example", "AAAA"])?;
    assert!(other_family.contains("status: NOERROR") && other_family.contains("ANSWER: 0"), "{other_family}");
    let authoritative = client.dig(&["api.outside.example"])?;
    assert!(authoritative.contains(" aa ") && authoritative.contains("30\tIN\tA"), "{authoritative}");
    // Nobody serves the node's port 53 yet.
    let unknown = client.dig(&["+time=8", "who.knows.example"])?;
    assert!(unknown.contains("SERVFAIL"), "{unknown}");
    let table = client.status("/debug/ndsz")?.ok()?;
    assert!(table.contains("\"api.outside.example\""), "{table}");
    let metrics = client.status("/metrics")?.ok()?;
    assert!(metrics.contains("istio_agent_dns_upstream_failures_total 1"), "{metrics}");
    forwards_unknown_names(&world)
}

/// A resolver on the node answers what the mesh does not know, with the bytes of the query as its answer.
fn forwards_unknown_names(world: &World) -> Result<()> {
    let node = world.network.node().clone();
    let (ready, started) = std::sync::mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let resolver = std::thread::spawn(move || {
        node.run(async move || {
            let socket = Arc::new(UdpSocket::bind(format!("{NODE}:53").parse::<SocketAddr>()?).await?);
            let _ = ready.send(());
            let serving = async {
                let mut buffer = [0; 512];
                while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                    // NXDOMAIN, with the question.
                    buffer[2] |= 0x80;
                    buffer[3] = 0x83;
                    let _ = socket.send_to(&buffer[..length], peer).await;
                }
            };
            tokio::select! { () = serving => {}, _ = stopped => {} }
            Ok(())
        })
    });
    started.recv_timeout(Duration::from_secs(10))?;
    let answer = world.client.dig(&["who.knows.example"])?;
    drop(stop);
    resolver.join().map_err(|_| anyhow::anyhow!("the resolver panicked"))??;
    ensure!(answer.contains("status: NXDOMAIN") && answer.contains("who.knows.example."), "{answer}");
    Ok(())
}
