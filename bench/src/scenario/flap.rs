use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::time::sleep;

use crate::client::Kind;
use crate::figure::Figure;
use crate::stage::{PATIENCE, PAUSE, Stage};

/// The pause between two changes.
const BETWEEN: Duration = Duration::from_millis(50);

/// An endpoint becomes unready and ready again, one change at a time.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let fixture = stage.world.fixture;
    let service = 1.min(fixture.services - 1);
    let mark = stage.mark()?;
    let (mut each, mut last, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for flap in 0..stage.scale.flaps.next_multiple_of(2) {
        let (took, delays) = once(stage, service, flap % 2 == 1).await?;
        written.push(took);
        last.push(delays.iter().max().copied().unwrap_or_default());
        each.extend(delays);
        sleep(BETWEEN).await;
    }
    stage.fleet()?.quiet(PAUSE, PATIENCE).await?;
    let spent = stage.since(&mark)?;
    let events = last.len() as u32;
    let mut figures = Figure::times("write to last ACK", &last);
    let bytes = spent.received.bytes / u64::from(events);
    figures.extend(stage.floor("write to last ACK", &last, bytes, fixture.viewers(service)).await?);
    figures.extend(Figure::times("write to ACK of each proxy", &each));
    figures.extend(Figure::times("of which the API server takes", &written).into_iter().take(1));
    figures.extend([
        Figure::cpu("processor time of the subject, each change", spent.cpu / events),
        Figure::cpu(
            "processor time of the subject, each proxy",
            spent.cpu / events / fixture.viewers(service) as u32,
        ),
        Figure::cpu("processor time of the proxies, each change", spent.client_cpu / events),
        Figure::bytes("received in all, each change", spent.received.bytes / u64::from(events)),
        Figure::count("responses, each change", spent.received.messages() as f64 / f64::from(events)),
    ]);
    Ok(figures)
}

/// An endpoint of a service becomes ready or not; how long the API server took, and how long until each proxy had it.
pub(super) async fn once(
    stage: &Stage<'_>,
    service: usize,
    is_ready: bool,
) -> Result<(Duration, Vec<Duration>)> {
    let fixture = stage.world.fixture;
    let (name, path) = (fixture.cluster(service), fixture.slice_path(service));
    let fleet = stage.fleet()?;
    fleet.expect(Kind::Eds, &name, fixture.viewers(service));
    let started = Instant::now();
    stage.world.api.merge(&path, &json!({"endpoints": fixture.endpoints(service, is_ready)})).await?;
    let written = started.elapsed();
    let reached = fleet.reached(Kind::Eds, &name, PATIENCE).await;
    Ok((written, reached.context("a changed endpoint did not reach everyone")?.delays))
}
