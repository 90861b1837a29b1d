use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::time::{interval, sleep};

use crate::client::Kind;
use crate::figure::Figure;
use crate::stage::{PATIENCE, PAUSE, Stage};

/// Changes of the storm, a second.
const RATE: u32 = 10;

/// A service comes and goes; then services and routes change in ways that change nothing for proxies.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let mut figures = come_and_go(stage).await?;
    figures.extend(storm(stage).await?);
    Ok(figures)
}

async fn come_and_go(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    let fixture = stage.world.fixture;
    let extra = fixture.services;
    let expected = fixture.viewers(extra);
    let name = fixture.cluster(extra);
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    let mark = stage.mark()?;
    for _ in 0..stage.scale.edits {
        let fleet = stage.fleet()?;
        fleet.expect(Kind::Cds, &name, expected);
        for (collection, object) in fixture.extra_service() {
            stage.world.api.create(&collection, &object).await?;
        }
        let reached = fleet.reached(Kind::Cds, &name, PATIENCE).await;
        added.extend(reached.context("a new service did not reach everyone")?.last());
        fleet.quiet(PAUSE, PATIENCE).await?;
        fleet.expect(Kind::Cds, &name, expected);
        stage.world.api.delete(&fixture.service_path(extra)).await?;
        stage.world.api.delete(&fixture.slice_path(extra)).await?;
        let reached = fleet.reached(Kind::Cds, &name, PATIENCE).await;
        removed.extend(reached.context("the end of a service did not reach everyone")?.last());
        fleet.quiet(PAUSE, PATIENCE).await?;
    }
    let spent = stage.since(&mark)?;
    let events = 2 * stage.scale.edits as u32;
    let mut figures = Figure::times("service added, write to last ACK", &added);
    figures.extend(Figure::times("service removed, write to last ACK", &removed));
    figures.push(Figure::cpu("processor time of the subject, each change", spent.cpu / events));
    figures.push(Figure::bytes("received, each change", spent.received.bytes / u64::from(events)));
    Ok(figures)
}

async fn storm(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    let fixture = stage.world.fixture;
    let count = stage.scale.storm.as_secs() as usize * RATE as usize;
    let mark = stage.mark()?;
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    for n in 0..count {
        ticks.tick().await;
        let (path, patch) = if n % 2 == 0 {
            let path = fixture.service_path(n % fixture.services);
            (path, json!({"metadata": {"annotations": {"example.com/scaled": n.to_string()}}}))
        } else {
            let path = fixture.virtual_service_path(n / 10 * 10 % fixture.services);
            (path, json!({"metadata": {"labels": {"example.com/synced": n.to_string()}}}))
        };
        stage.world.api.merge(&path, &patch).await?;
    }
    // Whatever comes of it comes soon.
    sleep(PAUSE).await;
    stage.fleet()?.quiet(PAUSE, PATIENCE).await?;
    let spent = stage.since(&mark)?;
    Ok(vec![
        Figure::count("no-op changes, responses in all", spent.received.messages() as f64),
        Figure::bytes("no-op changes, received in all", spent.received.bytes),
        Figure::cpu("no-op changes, processor time of the subject, each", spent.cpu / count as u32),
    ])
}
