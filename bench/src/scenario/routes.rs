use anyhow::{Context as _, Result};
use serde_json::json;

use crate::client::Kind;
use crate::figure::Figure;
use crate::fixture::PORT;
use crate::stage::{PATIENCE, PAUSE, Stage};

/// Seconds that a route of the fixture waits.
const USUAL: usize = 5;

/// VirtualServices change: one that all proxies see, then one that only those of one namespace do.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let fixture = stage.world.fixture;
    let wide = (0, fixture.virtual_service_path(0), fixture.wide_sidecars());
    let mut figures = edits(stage, "seen by all", wide).await?;
    let narrow = (0, fixture.narrow_path(), fixture.edge_proxies());
    figures.extend(edits(stage, "seen by 1 %", narrow).await?);
    Ok(figures)
}

async fn edits(
    stage: &mut Stage<'_>,
    what: &str,
    (service, path, expected): (usize, String, usize),
) -> Result<Vec<Figure>> {
    let routes = PORT.to_string();
    let count = stage.scale.edits.next_multiple_of(2);
    let mark = stage.mark()?;
    let mut last = Vec::new();
    for edit in 0..count {
        let timeout = if edit % 2 == 0 { USUAL + 1 } else { USUAL };
        let patch = json!({"spec": {"http": stage.world.fixture.routes(service, timeout)}});
        let fleet = stage.fleet()?;
        fleet.expect(Kind::Rds, &routes, expected);
        stage.world.api.merge(&path, &patch).await?;
        let reached = fleet.reached(Kind::Rds, &routes, PATIENCE).await;
        let reached = reached.context("a changed route did not reach everyone")?;
        last.extend(reached.last());
        fleet.quiet(PAUSE, PATIENCE).await?;
    }
    let spent = stage.since(&mark)?;
    let events = count as u32;
    let written = format!("{what}, write to last ACK");
    let mut figures = Figure::times(&written, &last);
    let bytes = spent.received.bytes / u64::from(events);
    figures.extend(stage.floor(&written, &last, bytes, expected).await?);
    figures
        .push(Figure::cpu(format!("{what}, processor time of the subject, each edit"), spent.cpu / events));
    figures.push(Figure::bytes(format!("{what}, received, each edit"), bytes));
    for kind in Kind::ALL {
        let messages = spent.received.messages_of(kind) as f64 / f64::from(events);
        figures.push(Figure::count(format!("{what}, {} responses, each edit", kind.name()), messages));
    }
    Ok(figures)
}
