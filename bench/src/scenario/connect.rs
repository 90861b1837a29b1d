use std::time::{Duration, Instant};

use anyhow::Result;

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
    let ready: Vec<Duration> = stage.fleet()?.record().ready.values().map(|at| *at - started).collect();
    let last = ready.iter().max().copied().unwrap_or_default();
    let mut figures = Figure::times("connect to all asked for", &ready);
    figures.extend([
        Figure::time("last proxy has all it asked for", last),
        Figure::cpu("processor time of the subject", spent.cpu),
        Figure::cpu("processor time of the proxies", spent.client_cpu),
        Figure::bytes("peak memory", stage.control.peak_memory()?),
        Figure::bytes("received by each proxy", spent.received.bytes / count as u64),
        Figure::count("streams refused or broken", spent.received.lost as f64),
    ]);
    Ok(figures)
}
