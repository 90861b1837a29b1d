//! The control plane or the agent is gone.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::network::sh;
use crate::pod::is_alive;
use crate::world::World;

/// The control plane is killed, and then Envoy and the agent of the server, which start again without it.
pub(crate) fn restart() -> Result<()> {
    let mut world = World::start("", &[], &[])?;
    world.plane.kill();
    let killed = Instant::now();
    world.server.signal("KILL")?;
    world.server.wait_end()?;
    world.server.start_agent()?;
    world.server.wait_ready()?;
    let echoed = world.wait_answer()?;
    assert!(echoed.headers["x-forwarded-client-cert"].contains("sa/frontend"), "{echoed:?}");
    let detail = world.server.status("/healthz/ready")?;
    ensure!(detail.status == 200 && detail.body.contains("last good configuration"), "{detail:?}");
    let metrics = world.server.status("/metrics")?.ok()?;
    ensure!(metrics.contains("istio_agent_control_plane_connected 0"), "{metrics}");
    // Names are known as well.
    let dig = world.server.dig(&["+short", "reviews.shop.mesh"])?;
    ensure!(dig.trim() == "10.96.0.10", "{dig}");
    std::thread::sleep(Duration::from_secs(10).saturating_sub(killed.elapsed()));
    world.wait_answer()?;
    world.plane.restart()?;
    let address = world.server.namespace.clone();
    address.run(async || {
        canopus_testkit::eventually(
            "a connection to the control plane",
            Duration::from_secs(40),
            async || {
                let address = std::net::SocketAddr::from(([127, 0, 0, 1], 15020));
                let metrics = canopus_testkit::http::get(address, "/metrics").await?.ok()?;
                ensure!(metrics.contains("istio_agent_control_plane_connected 1"), "not yet connected");
                Ok(())
            },
        )
        .await
    })?;
    world.wait_answer()?;
    Ok(())
}

/// Nothing of a pod is left when its agent is killed.
pub(crate) fn orphan() -> Result<()> {
    let mut world = World::start("", &[], &[])?;
    let envoy = world.server.envoy_id()?;
    ensure!(is_alive(envoy), "Envoy does not run");
    world.server.signal("KILL")?;
    world.server.wait_end()?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_alive(envoy) {
        ensure!(
            Instant::now() < deadline,
            "process {envoy} is still there: {}",
            sh("ps", &["-p", &envoy.to_string()])?
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
