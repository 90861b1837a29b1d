use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::client::Kind;
use crate::figure::Figure;
use crate::stage::{PATIENCE, PAUSE, Stage};

/// Changes a second.
const RATES: [u32; 3] = [10, 50, 200];

/// How long a change may take before it counts as lost.
const LOST: Duration = Duration::from_secs(30);

/// Endpoints of one service after another change at a steady rate, whether proxies keep up or not.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let mut figures = Vec::new();
    for rate in RATES {
        figures.extend(play_at(stage, rate).await?);
    }
    Ok(figures)
}

async fn play_at(stage: &mut Stage<'_>, rate: u32) -> Result<Vec<Figure>> {
    let fixture = stage.world.fixture;
    let wanted = (stage.scale.churn.as_secs_f64() * f64::from(rate)) as usize;
    // Each service changes once, so that what arrives can be told apart; the second half puts the first back.
    let services = (wanted / 2).clamp(1, fixture.services);
    let mark = stage.mark()?;
    let (mut delays, mut lost) = (Vec::new(), 0_u32);
    for ready in [false, true] {
        let mut ticks = interval(Duration::from_secs(1) / rate);
        let mut writes = JoinSet::new();
        for service in 0..services {
            ticks.tick().await;
            stage.fleet()?.expect(Kind::Eds, &fixture.cluster(service), fixture.viewers(service));
            let (api, path) = (stage.world.api.clone(), fixture.slice_path(service));
            let patch = json!({"endpoints": fixture.endpoints(service, ready)});
            writes.spawn(async move { api.merge(&path, &patch).await });
        }
        while let Some(written) = writes.join_next().await {
            written??;
        }
        let deadline = Instant::now() + LOST;
        for service in 0..services {
            let patience = deadline.saturating_duration_since(Instant::now());
            let reached = stage.fleet()?.reached(Kind::Eds, &fixture.cluster(service), patience).await;
            match reached.and_then(|reached| reached.last()) {
                Some(last) => delays.push(last),
                None => lost += 1,
            }
        }
    }
    let spent = stage.since(&mark)?;
    stage.fleet()?.quiet(PAUSE, PATIENCE).await?;
    sleep(Duration::from_millis(100)).await;
    let what = format!("{rate} a second, write to last ACK");
    let bytes = spent.received.bytes / (2 * services) as u64;
    let mut figures = Figure::times(&what, &delays);
    figures.extend(stage.floor(&what, &delays, bytes, fixture.viewers(0)).await?);
    figures.extend([
        Figure::count(
            format!("{rate} a second, cores of the subject"),
            spent.cpu.as_secs_f64() / spent.time.as_secs_f64(),
        ),
        Figure::cpu(
            format!("{rate} a second, processor time of the subject, each change"),
            spent.cpu / (2 * services) as u32,
        ),
        Figure::bytes(format!("{rate} a second, received, each change"), bytes),
        Figure::count(format!("{rate} a second, changes that did not arrive"), lost),
    ]);
    Ok(figures)
}
