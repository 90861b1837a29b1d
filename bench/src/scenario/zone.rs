use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::client::Kind;
use crate::figure::Figure;
use crate::fixture::{Fixture, KubeNode, ZONES};
use crate::stage::{PATIENCE, PAUSE, Stage};

/// The zone that is lost.
const LOST: usize = ZONES - 1;

/// A zone is lost: its proxies fall silent, its nodes and endpoints are not ready. Then it comes back.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let fixture = stage.world.fixture;
    let pods = fixture.pods();
    let lost: Vec<usize> =
        (0..fixture.proxies).filter(|index| pods[*index].node().zone_index() == LOST).collect();
    let mut figures = vec![Figure::count("proxies in the zone", lost.len() as f64)];

    let mark = stage.mark()?;
    stage.fleet_mut()?.disconnect(lost.iter().copied());
    let (last, written) = change(stage, &lost, false).await?;
    stage.fleet()?.quiet(PAUSE, PATIENCE).await?;
    figures.extend(summary(stage, "zone lost", &mark, last, written).await?);

    let mark = stage.mark()?;
    for index in &lost {
        stage.fleet()?.record().ready.remove(index);
    }
    stage.fleet_mut()?.connect(lost.iter().copied());
    let (last, written) = change(stage, &lost, true).await?;
    stage.fleet()?.ready(fixture.proxies, PATIENCE).await?;
    stage.fleet()?.quiet(PAUSE, PATIENCE).await?;
    figures.extend(summary(stage, "zone back", &mark, last, written).await?);
    Ok(figures)
}

/// Writes what Kubernetes says of the zone; how long until the proxies of the others knew all of it, and how long the writes
/// took.
async fn change(stage: &mut Stage<'_>, lost: &[usize], is_ready: bool) -> Result<(Duration, Duration)> {
    let fixture = stage.world.fixture;
    let changed = affected(&fixture, is_ready);
    let started = Instant::now();
    for (service, _) in &changed {
        let gone = lost.iter().filter(|index| fixture.sees(**index, *service)).count();
        stage.fleet()?.expect(Kind::Eds, &fixture.cluster(*service), fixture.viewers(*service) - gone);
    }
    let nodes = (0..fixture.nodes).map(KubeNode).filter(|node| node.zone_index() == LOST);
    let nodes = nodes.map(|node| {
        (format!("/api/v1/nodes/{}/status", node.name()), json!({"status": node.status(is_ready, 1)}))
    });
    let slices = changed
        .iter()
        .map(|(service, endpoints)| (fixture.slice_path(*service), json!({"endpoints": endpoints})));
    stage.world.api.merge_all(nodes.chain(slices)).await?;
    let written = started.elapsed();
    let mut last = Duration::ZERO;
    for (service, _) in &changed {
        let reached = stage.fleet()?.reached(Kind::Eds, &fixture.cluster(*service), PATIENCE).await;
        let reached = reached.and_then(|reached| reached.last());
        last = last.max(reached.context("a lost zone did not reach everyone")?);
    }
    Ok((last, written))
}

/// Services with pods in the zone, and their endpoints while it is lost or there.
fn affected(fixture: &Fixture, is_ready: bool) -> Vec<(usize, Value)> {
    let of = |service: usize| {
        let pods = fixture.backing(service);
        let is_lost = |zone: usize| zone == LOST;
        let touched = pods.iter().any(|pod| is_lost(pod.node().zone_index()));
        let endpoints = pods.iter().map(|pod| pod.endpoint(is_ready || !is_lost(pod.node().zone_index())));
        touched.then(|| (service, endpoints.collect()))
    };
    (0..fixture.services).filter_map(of).collect()
}

async fn summary(
    stage: &mut Stage<'_>,
    what: &str,
    mark: &crate::stage::Mark,
    last: Duration,
    written: Duration,
) -> Result<Vec<Figure>> {
    let spent = stage.since(mark)?;
    let proxies = stage.world.fixture.proxies;
    let name = format!("{what}, first write to last ACK");
    let mut figures = vec![Figure::time(name.as_str(), last)];
    figures.extend(stage.floor(&name, &[last], spent.received.bytes, proxies).await?);
    figures.extend([
        Figure::time(format!("{what}, of which the API server takes"), written),
        Figure::cpu(format!("{what}, processor time of the subject"), spent.cpu),
        Figure::count(format!("{what}, responses"), spent.received.messages() as f64),
        Figure::bytes(format!("{what}, received"), spent.received.bytes),
    ]);
    Ok(figures)
}
