use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use crate::client::Kind;
use crate::figure::Figure;
use crate::stage::{PATIENCE, Stage};

/// All proxies connect to a fresh process at once.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.fresh().await?;
    let count = stage.world.fixture.proxies;
    let mark = stage.mark()?;
    let started = Instant::now();
    stage.fleet_mut()?.connect(0..count);
    stage.fleet()?.ready(count, PATIENCE).await?;
    let spent = stage.since(&mark)?;
    let peak = stage.control.peak_memory()?;
    sleep(stage.scale.settle).await;
    let settled = stage.control.memory()?;
    let ready: Vec<Duration> = stage.fleet()?.record().ready.values().map(|at| *at - started).collect();
    let last = ready.iter().max().copied().unwrap_or_default();
    let mut figures = Figure::times("connect to all asked for", &ready);
    let floor = stage.floor("last proxy has all it asked for", &[last], spent.received.bytes, count).await?;
    figures.extend([
        Figure::time("last proxy has all it asked for", last),
        Figure::cpu("processor time of the subject", spent.cpu),
        Figure::cpu("processor time of the proxies", spent.client_cpu),
        Figure::bytes("settled memory", settled),
        Figure::bytes("peak memory", peak),
        Figure::count("peak memory, times the settled", peak as f64 / settled.max(1) as f64),
        Figure::bytes("received by each proxy", spent.received.bytes / count as u64),
        Figure::count("streams refused or broken", spent.received.lost as f64),
    ]);
    figures.extend(floor);
    figures.extend(held(stage)?);
    Ok(figures)
}

/// How many resources the first proxy of each kind has: a kind that has none would cost nothing.
fn held(stage: &Stage<'_>) -> Result<Vec<Figure>> {
    let fixture = stage.world.fixture;
    let gateways = fixture.wide_sidecars();
    let waypoints = gateways + fixture.gateways();
    let firsts = [
        ("sidecar", 0, gateways),
        ("gateway", gateways, fixture.gateways()),
        ("waypoint", waypoints, fixture.waypoints()),
    ];
    let fleet = stage.fleet()?;
    let figures = firsts.into_iter().filter(|(.., count)| *count > 0).map(|(kind, first, _)| {
        let proxy = fleet.proxy(first);
        let resources: usize = Kind::ALL.into_iter().map(|kind| proxy.held(kind).len()).sum();
        Figure::count(format!("resources of a {kind}"), resources as f64)
    });
    Ok(figures.collect())
}
