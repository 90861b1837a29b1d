use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::client::Kind;
use crate::figure::Figure;
use crate::fixture::{Pod, collection};
use crate::stage::{PATIENCE, PAUSE, Stage};

/// The workload that is restarted.
const WORKLOAD: usize = 1;

/// What replacing pods took.
#[derive(Default)]
struct Times {
    /// From the write of the endpoints to the last ACK of the other proxies.
    told: Vec<Duration>,
    /// From the connection of a new proxy until it had all it asked for.
    served: Vec<Duration>,
}

/// Restarts one workload, pod by pod, twice; the second time pods of the first names come back.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let fixture = stage.world.fixture;
    let seats = fixture.seats(WORKLOAD);
    let others = || (0..fixture.proxies).filter(|index| !seats.contains(index));
    let before = stage.fleet()?.responses(others());
    let mark = stage.mark()?;
    let mut pods = fixture.backing(WORKLOAD);
    let mut times = Times::default();
    for generation in [1, 0] {
        for at in 0..pods.len() {
            replace(stage, &mut pods, at, generation, &mut times).await?;
        }
    }
    stage.fleet()?.quiet(PAUSE, PATIENCE).await?;
    let spent = stage.since(&mark)?;
    let after = stage.fleet()?.responses(others());
    let events = times.told.len() as u32;
    let mut figures = Figure::times("write to last ACK of others", &times.told);
    let bytes = spent.received.bytes_of(Kind::Eds) / u64::from(events);
    figures.extend(stage.floor("write to last ACK of others", &times.told, bytes, fixture.proxies).await?);
    figures.extend(Figure::times("new proxy, connect to all it asked for", &times.served));
    figures.push(Figure::cpu("processor time of the subject, each pod", spent.cpu / events));
    figures.push(Figure::bytes("received in all, each pod", spent.received.bytes / u64::from(events)));
    for kind in Kind::ALL {
        let responses = (after[kind as usize] - before[kind as usize]) as f64 / f64::from(events);
        figures.push(Figure::count(format!("{} responses to others, each pod", kind.name()), responses));
    }
    Ok(figures)
}

/// A new pod takes the place of one: it comes up before the old one goes, as a Deployment does it.
async fn replace(
    stage: &mut Stage<'_>,
    pods: &mut [Pod],
    at: usize,
    generation: usize,
    times: &mut Times,
) -> Result<()> {
    let fixture = stage.world.fixture;
    let old = pods[at].clone();
    let new = old.restarted(generation);
    let api = stage.world.api.clone();
    let (all, seat) = (collection("Pod", &new.workload.namespace), new.place);
    api.create(&all, &new.object()).await?;
    api.merge(&format!("{all}/{}/status", new.name()), &new.status()).await?;
    let started = Instant::now();
    stage.fleet_mut()?.replace(new.role(seat));
    stage.fleet_mut()?.connect([seat]);
    let name = fixture.cluster(WORKLOAD);
    // The old proxy is gone, and the new one may come before or after the change.
    stage.fleet()?.expect(Kind::Eds, &name, fixture.viewers(WORKLOAD) - 1);
    pods[at] = new;
    let mut endpoints: Vec<Value> = pods.iter().map(|pod| pod.endpoint(true)).collect();
    let mut going = old.endpoint(false);
    going["conditions"]["terminating"] = true.into();
    endpoints.push(going);
    let slice = fixture.slice_path(WORKLOAD);
    api.merge(&slice, &json!({"endpoints": endpoints})).await?;
    let reached = stage.fleet()?.reached(Kind::Eds, &name, PATIENCE).await;
    times.told.extend(reached.context("a replaced pod did not reach everyone")?.last());
    stage.fleet()?.ready(fixture.proxies, PATIENCE).await?;
    let ready = stage.fleet()?.record().ready.get(&seat).copied();
    times.served.extend(ready.map(|ready| ready.saturating_duration_since(started)));
    endpoints.pop();
    api.merge(&slice, &json!({"endpoints": endpoints})).await?;
    api.delete(&format!("{all}/{}?gracePeriodSeconds=0", old.name())).await
}
