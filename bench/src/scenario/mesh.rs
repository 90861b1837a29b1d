use anyhow::{Context as _, Result};
use serde_json::json;

use crate::client::Kind;
use crate::figure::Figure;
use crate::fixture::collection;
use crate::stage::{PATIENCE, PAUSE, Stage};

/// The listener that every sidecar has for what comes in.
pub(super) const INBOUND: &str = "virtualInbound";

/// Mutual TLS becomes strict in the whole mesh, and permissive again.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let policies = collection("PeerAuthentication", "istio-system");
    let policy = json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": "default"},
        "spec": {"mtls": {"mode": "STRICT"}},
    });
    let mut last = Vec::new();
    let mark = stage.mark()?;
    for _ in 0..stage.scale.edits {
        for strict in [true, false] {
            let fleet = stage.fleet()?;
            fleet.expect(Kind::Lds, INBOUND, stage.world.fixture.sidecars());
            if strict {
                stage.world.api.create(&policies, &policy).await?;
            } else {
                stage.world.api.delete(&format!("{policies}/default")).await?;
            }
            let reached = fleet.reached(Kind::Lds, INBOUND, PATIENCE).await;
            last.extend(reached.context("a policy of the mesh did not reach everyone")?.last());
            fleet.quiet(PAUSE, PATIENCE).await?;
        }
    }
    let spent = stage.since(&mark)?;
    let events = 2 * stage.scale.edits as u32;
    let mut figures = Figure::times("write to last ACK", &last);
    let bytes = spent.received.bytes / u64::from(events);
    let sidecars = stage.world.fixture.sidecars();
    figures.extend(stage.floor("write to last ACK", &last, bytes, sidecars).await?);
    figures.extend([
        Figure::cpu("processor time of the subject, each change", spent.cpu / events),
        Figure::bytes("received, each change", bytes),
        Figure::bytes("peak memory", stage.control.peak_memory()?),
    ]);
    Ok(figures)
}
