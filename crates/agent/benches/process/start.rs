//! From the start of the agent to Envoy's, and from Envoy's configuration to readiness.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{free_port, http};
use serde_json::json;

use super::books::quantile;
use crate::Figure;
use crate::pod::program;
use crate::world::World;

const STARTS: usize = 15;
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the agent takes until Envoy's program runs: Envoy is a script that says so.
pub(crate) fn times() -> Result<Vec<Figure>> {
    let mut waits = Vec::new();
    for _ in 0..STARTS {
        waits.push(one_start()?);
    }
    waits.sort();
    Ok(vec![Figure {
        what: "from the agent's start to Envoy's",
        measured: format!(
            "median {:.0} ms, slowest of {STARTS} {:.0} ms",
            quantile(&waits, 0.5).as_secs_f64() * 1e3,
            quantile(&waits, 1.0).as_secs_f64() * 1e3
        ),
        budget: "≤ 100 ms",
    }])
}

fn one_start() -> Result<Duration> {
    let directory = tempfile::tempdir()?;
    let mark = directory.path().join("started");
    let binary = script(directory.path(), &format!(": > {}\nexec sleep 60", mark.display()))?;
    let started = Instant::now();
    let mut agent =
        agent(directory.path(), &json!({"discoveryAddress": "127.0.0.1:1", "binaryPath": binary}), &[])?;
    while !mark.exists() && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(200));
    }
    let took = started.elapsed();
    agent.kill()?;
    agent.wait()?;
    ensure!(took < PATIENCE, "Envoy was not started");
    Ok(took)
}

/// A program in the place of Envoy.
pub(crate) fn script(directory: &Path, lines: &str) -> Result<PathBuf> {
    let path = directory.join("envoy");
    fs::write(&path, format!("#!/bin/sh\n{lines}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// An agent with this proxy configuration, without a mesh.
pub(crate) fn agent(
    directory: &Path,
    config: &serde_json::Value,
    variables: &[(&str, &str)],
) -> Result<Child> {
    let mut config = config.clone();
    config["statusPort"] = free_port()?.into();
    config["proxyAdminPort"] = free_port()?.into();
    let mut command = Command::new(program());
    command.args(["proxy", "sidecar"]).current_dir(directory).env_clear();
    command.envs([
        ("PROXY_CONFIG", config.to_string().as_str()),
        ("POD_NAME", "cart-1"),
        ("POD_NAMESPACE", "shop"),
        ("INSTANCE_IP", "127.0.0.1"),
        ("CLOUD_PLATFORM", "none"),
        ("PATH", "/usr/bin:/bin"),
    ]);
    command.envs(variables.iter().copied());
    Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

/// How long after Envoy has its configuration and runs its workers the agent says that it is ready.
pub(crate) fn readiness(world: &mut World) -> Result<Vec<Figure>> {
    world.client.signal("KILL")?;
    world.client.wait_end()?;
    let started = Instant::now();
    world.client.start_agent()?;
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let filter = "/stats?filter=^(listener_manager.lds.update_success|listener_manager.workers_started)$";
    let configured = async || -> Result<Instant> {
        while started.elapsed() < PATIENCE {
            if let Ok(answer) = http::get(address(15000), filter).await
                && answer.body.contains("workers_started: 1")
                && !answer.body.contains("update_success: 0")
            {
                return Ok(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        anyhow::bail!("Envoy was not configured")
    };
    let ready = async || -> Result<Instant> {
        while started.elapsed() < PATIENCE {
            if http::get(address(15020), "/healthz/ready").await.is_ok_and(|answer| answer.status == 200) {
                return Ok(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        anyhow::bail!("the agent was not ready")
    };
    let (configured, ready) =
        world.client.namespace.run(async || tokio::try_join!(configured(), ready())).context("readiness")?;
    let after = ready.saturating_duration_since(configured);
    Ok(vec![Figure {
        what: "ready after Envoy has its configuration",
        measured: format!(
            "{:.0} ms ({:.0} ms after the agent's start)",
            after.as_secs_f64() * 1e3,
            (ready - started).as_secs_f64() * 1e3
        ),
        budget: "≤ 200 ms",
    }])
}
