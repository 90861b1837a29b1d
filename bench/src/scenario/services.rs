use anyhow::{Context as _, Result};

use crate::client::Kind;
use crate::figure::Figure;
use crate::stage::{PATIENCE, PAUSE, Stage};

/// A service comes and goes.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
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
    let bytes = spent.received.bytes / u64::from(events);
    let mut figures = Figure::times("service added, write to last ACK", &added);
    figures.extend(stage.floor("service added, write to last ACK", &added, bytes, expected).await?);
    figures.extend(Figure::times("service removed, write to last ACK", &removed));
    figures.push(Figure::cpu("processor time of the subject, each change", spent.cpu / events));
    figures.push(Figure::bytes("received, each change", bytes));
    Ok(figures)
}
