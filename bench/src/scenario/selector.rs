use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::mesh::INBOUND;
use crate::client::Kind;
use crate::figure::Figure;
use crate::fixture::{CANARY, Fixture, WorkloadKind, collection};
use crate::stage::{PATIENCE, PAUSE, Stage};

/// The workload that a policy selects.
const GUARDED: usize = 3;

/// A kind of object that selects the pods of one workload.
struct Selecting {
    what: &'static str,
    collection: String,
    object: Value,
    workload: usize,
}

/// Objects come and go that select one workload: by a label that nothing selected by before, and by its name.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let fixture = stage.world.fixture;
    let mut figures = Vec::new();
    for selecting in [filter(&fixture), policy(&fixture)] {
        figures.extend(come_and_go(stage, &selecting).await?);
    }
    Ok(figures)
}

fn filter(fixture: &Fixture) -> Selecting {
    let workload = CANARY.min(fixture.workloads - 1);
    let labels = fixture.workload(WorkloadKind::Sidecar, workload).labels();
    let object = json!({
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": "bench"},
        "spec": {
            "workloadSelector": {"labels": {"track": labels["track"]}},
            "configPatches": [{
                "applyTo": "LISTENER",
                "match": {"context": "SIDECAR_INBOUND", "listener": {"name": INBOUND}},
                "patch": {"operation": "MERGE", "value": {"per_connection_buffer_limit_bytes": 65536}},
            }],
        },
    });
    let collection = collection("EnvoyFilter", &fixture.namespace(workload));
    Selecting { what: "EnvoyFilter for one label", collection, object, workload }
}

fn policy(fixture: &Fixture) -> Selecting {
    let workload = GUARDED.min(fixture.workloads - 1);
    let name = fixture.workload(WorkloadKind::Sidecar, workload).name();
    let object = json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "bench"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "action": "DENY",
            "rules": [{"to": [{"operation": {"paths": ["/forbidden"]}}]}],
        },
    });
    let collection = collection("AuthorizationPolicy", &fixture.namespace(workload));
    Selecting { what: "AuthorizationPolicy for one workload", collection, object, workload }
}

async fn come_and_go(stage: &mut Stage<'_>, selecting: &Selecting) -> Result<Vec<Figure>> {
    let Selecting { what, collection, object, workload } = selecting;
    let fixture = stage.world.fixture;
    let seats = fixture.seats(*workload);
    let others = || (0..fixture.proxies).filter(|index| !seats.contains(index));
    let before = stage.fleet()?.responses(others());
    let mark = stage.mark()?;
    let mut last = Vec::new();
    for _ in 0..stage.scale.edits {
        for comes in [true, false] {
            let fleet = stage.fleet()?;
            fleet.expect(Kind::Lds, INBOUND, seats.len());
            match comes {
                true => stage.world.api.create(collection, object).await?,
                false => stage.world.api.delete(&format!("{collection}/bench")).await?,
            }
            let reached = fleet.reached(Kind::Lds, INBOUND, PATIENCE).await;
            last.extend(reached.with_context(|| format!("{what} did not reach its workload"))?.last());
            fleet.quiet(PAUSE, PATIENCE).await?;
        }
    }
    let spent = stage.since(&mark)?;
    let after = stage.fleet()?.responses(others());
    let events = last.len() as u32;
    let told_others = after.iter().sum::<u64>() - before.iter().sum::<u64>();
    let written = format!("{what}, write to last ACK");
    let mut figures = Figure::times(&written, &last);
    let bytes = spent.received.bytes / u64::from(events);
    figures.extend(stage.floor(&written, &last, bytes, seats.len()).await?);
    figures.extend([
        Figure::cpu(format!("{what}, processor time of the subject, each change"), spent.cpu / events),
        Figure::count(
            format!("{what}, responses, each change"),
            spent.received.messages() as f64 / f64::from(events),
        ),
        Figure::count(format!("{what}, responses to other workloads"), told_others as f64),
    ]);
    Ok(figures)
}
