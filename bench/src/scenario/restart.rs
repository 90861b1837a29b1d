use std::time::{Duration, Instant};

use anyhow::Result;

use crate::figure::Figure;
use crate::stage::{PATIENCE, Stage};

/// How long nothing arrives before everyone has what they want; some servers take a second to let a proxy in.
const STEADY: Duration = Duration::from_secs(3);

/// The subject is killed and started again; proxies come back and say what they have.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let count = stage.world.fixture.proxies;
    let before = stage.fleet()?.totals();
    let killed = Instant::now();
    let started = stage.restart().await?;
    stage.fleet()?.opened(&before, count, PATIENCE).await?;
    let steady = stage.fleet()?.quiet(STEADY, PATIENCE).await?;
    let received = stage.fleet()?.totals() - &before;
    let resources: u64 = received.kinds.values().map(|total| total.bytes).sum();
    Ok(vec![
        Figure::time("killed to last response", steady.saturating_duration_since(killed)),
        Figure::time("of which until ready", started.took),
        Figure::cpu("processor time of the subject", stage.control.cpu()?),
        Figure::bytes("resources sent again", resources),
        Figure::bytes("received in all", received.bytes),
        Figure::count("streams refused or broken", received.lost as f64),
        Figure::bytes("peak memory", stage.control.peak_memory()?),
    ])
}
