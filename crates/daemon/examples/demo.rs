//! First light: Istio YAML in a directory, `canopusd`, one stock Envoy, and requests through it. Run by `cargo xtask demo`.
#![allow(clippy::print_stdout, reason = "a demo talks")]

#[path = "../support/local_mesh.rs"]
#[allow(dead_code, reason = "shared with tests")]
mod local_mesh;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Echo, Echoed, eventually, free_port, http};
use local_mesh::LocalMesh;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let stable = Echo::start("stable").await?;
    let canary = Echo::start("canary").await?;
    let gateway = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let documents = include_str!("../support/shop.yaml")
        .replace("GATEWAY_PORT", &gateway.port().to_string())
        .replace("STABLE_PORT", &stable.address().port().to_string())
        .replace("CANARY_PORT", &canary.address().port().to_string());

    step("The mesh is a directory of Istio YAML: a Gateway, two ServiceEntries, a VirtualService");
    let started = Instant::now();
    let mesh = LocalMesh::start(&canopusd()?, "shop.yaml", &documents).await?;
    tell(&format!("canopusd read {} and is ready after {} ms", mesh.objects().display(), millis(started)));
    tell(&format!("xDS on {}, readiness and metrics on http://{}", mesh.xds, mesh.http));

    step("A stock Envoy connects by ADS");
    let started = Instant::now();
    let envoy = mesh.gateway().await?;
    tell(&format!("Envoy has its configuration after {} ms", millis(started)));
    for (kind, names) in resources(&envoy.config_dump().await?) {
        tell(&format!("{kind}: {}", names.join(", ")));
    }

    step("A request through the gateway");
    send(gateway, &[]).await?;

    step("The same with the header the VirtualService matches on");
    send(gateway, &[("x-tester", "yes")]).await?;

    step("The VirtualService is edited on disk: everyone goes to the canary");
    let started = Instant::now();
    mesh.write("shop.yaml", &documents.replace("host: shop.internal", "host: canary.shop.internal"))?;
    eventually("the new route", PATIENCE, async || {
        let echoed = fetch(gateway, &[]).await?;
        ensure!(echoed.upstream == "canary", "still {}", echoed.upstream);
        Ok(())
    })
    .await?;
    tell(&format!("in effect after {} ms, nothing was restarted", millis(started)));
    send(gateway, &[]).await?;

    step("A typo: the file now has a broken document");
    mesh.write("shop.yaml", &documents.replace("name: everyone", "name: [everyone"))?;
    let report = eventually("the report", PATIENCE, async || {
        let log = mesh.log();
        log.lines().find(|line| line.contains("shop.yaml: ")).map(str::to_owned).context("not reported yet")
    })
    .await?;
    tell(report.split('\t').find(|part| part.contains("shop.yaml: ")).unwrap_or(&report));
    tell("what was good stays in force:");
    send(gateway, &[]).await?;

    let rejected: u64 = envoy
        .stats()
        .await?
        .iter()
        .filter(|(name, _)| name.ends_with("update_rejected"))
        .map(|(_, n)| n)
        .sum();
    ensure!(rejected == 0, "Envoy rejected {rejected} updates");
    step("Done. Envoy accepted every update.");
    Ok(())
}

fn step(text: &str) {
    println!("\n== {text}");
}

fn tell(text: &str) {
    println!("   {text}");
}

fn millis(since: Instant) -> u128 {
    since.elapsed().as_millis()
}

/// Built beside this example by the same cargo.
fn canopusd() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own
        .parent()
        .and_then(|examples| examples.parent())
        .context("an example lives in target/…/examples")?;
    let path = target.join("canopusd");
    ensure!(path.exists(), "{} is missing: `cargo xtask demo` builds it", path.display());
    Ok(path)
}

async fn fetch(gateway: SocketAddr, headers: &[(&str, &str)]) -> Result<Echoed> {
    let mut request = http::request(::http::Method::GET, gateway, "/items").host("shop.example.com");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    Echoed::from_body(&request.send().await?.ok()?)
}

async fn send(gateway: SocketAddr, headers: &[(&str, &str)]) -> Result<()> {
    let shown: String = headers.iter().map(|(name, value)| format!(" -H '{name}: {value}'")).collect();
    tell(&format!("$ curl -H 'host: shop.example.com'{shown} http://{gateway}/items"));
    let echoed = fetch(gateway, headers).await?;
    tell(&format!("200 from {:?}", echoed.upstream));
    Ok(())
}

/// The names of what Envoy was given, by kind.
fn resources(dump: &Value) -> BTreeMap<&'static str, Vec<String>> {
    const KINDS: [(&str, &str, &str); 3] = [
        ("clusters", "dynamic_active_clusters", "/cluster/name"),
        ("listeners", "dynamic_listeners", "/name"),
        ("routes", "dynamic_route_configs", "/route_config/name"),
    ];
    let sections = dump["configs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |field: &str, name: &str| {
        let items = sections.iter().filter_map(|section| section[field].as_array()).flatten();
        items.filter_map(|item| Some(item.pointer(name)?.as_str()?.to_owned())).collect()
    };
    KINDS.into_iter().map(|(kind, field, name)| (kind, of(field, name))).collect()
}
