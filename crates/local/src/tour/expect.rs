//! Checking what a step expects, until it holds or takes too long.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::certificates::{self, Serials};
use super::load::{Client, SUCCESS};
use super::plain::{self, Outcome};
use crate::mesh::Mesh;
use crate::mesh_file::{Expectation, Percentages, Request, Step};

/// How long an expectation may take that names no time of its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// A status counts when so many answers in a row have it.
const IN_A_ROW: usize = 8;

/// Connections on which shares are counted.
const CONNECTIONS: usize = 4;

/// A mesh is well again after a step when so many requests in a row succeed: on several connections, to several replicas.
const HEALTHY_IN_A_ROW: usize = 30;

/// What is compared with a state before the step.
pub(super) struct Before {
    certificates: Serials,
    control_plane_restarts: u32,
}

impl Before {
    /// Notes what the step will be compared with. What it is to break has to work now: a refusal means nothing where nobody was
    /// answered before, and a failure under load nothing where requests failed already.
    pub(super) async fn note(mesh: &Mesh, step: &Step) -> Result<Self> {
        if let Some(request) = &step.under_load {
            eventually(PATIENCE, async || all_answered(request, SUCCESS, HEALTHY_IN_A_ROW).await)
                .await
                .context("before the step")?;
        }
        let mut before = Self { certificates: Serials::new(), control_plane_restarts: restarts(mesh) };
        for expectation in &step.expect {
            match expectation {
                Expectation::RefusesPlaintext { workload } => {
                    eventually(PATIENCE, async || answers_plaintext(mesh, workload).await)
                        .await
                        .context("before the step")?;
                }
                Expectation::CertificatesRenewed { .. } => {
                    before.certificates = certificates::serials(mesh).await?;
                }
                _ => {}
            }
        }
        Ok(before)
    }
}

/// Waits until an expectation holds, and tells how it came to.
pub(super) async fn fulfilled(
    mesh: &Mesh,
    expectation: &Expectation,
    before: &Before,
    start: Instant,
) -> Result<String> {
    let milliseconds = || start.elapsed().as_millis();
    match expectation {
        Expectation::Status { request, status } => {
            eventually(PATIENCE, async || all_answered(request, *status, IN_A_ROW).await).await?;
            Ok(format!("$ curl {}: {status}, after {} ms", request.get, milliseconds()))
        }
        Expectation::Slow { request, least } => {
            let least = least.to_std().context("a time that is not negative")?;
            let took = eventually(PATIENCE, async || answered_slowly(request, least).await).await?;
            Ok(format!("$ curl {}: takes {} ms, after {} ms", request.get, took.as_millis(), milliseconds()))
        }
        Expectation::Shares(shares) => {
            let counted = eventually(PATIENCE, async || count_shares(shares).await).await?;
            Ok(format!("{} requests to {}: {counted}", shares.requests, shares.request.get))
        }
        Expectation::RefusesPlaintext { workload } => {
            let why = eventually(PATIENCE, async || refuses_plaintext(mesh, workload).await).await?;
            Ok(format!(
                "plain text to {workload}, answered before: refused now ({why}), after {} ms",
                milliseconds()
            ))
        }
        Expectation::Quarantined { object } => {
            let reason = eventually(PATIENCE, async || quarantined(mesh, object).await).await?;
            Ok(format!("{object} is held after {} ms; the proxy's words: {reason}", milliseconds()))
        }
        Expectation::CertificatesRenewed { within } => {
            let within = within.to_std().context("a time that is not negative")?;
            let count = eventually(within, async || renewed(mesh, &before.certificates).await).await?;
            Ok(format!("{count} proxies have new certificates after {} ms", milliseconds()))
        }
        Expectation::ControlPlaneReady { within } => {
            let within = within.to_std().context("a time that is not negative")?;
            let count =
                eventually(within, async || reconnected(mesh, before.control_plane_restarts).await).await?;
            Ok(format!("canopusd is back and serves {count} proxies after {} ms", milliseconds()))
        }
    }
}

/// Tries until it succeeds; the last reason why it did not is the error.
async fn eventually<T, F: Future<Output = Result<T>>>(
    patience: Duration,
    mut attempt: impl FnMut() -> F,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() > patience => {
                return Err(error.context(format!("not within {} s", patience.as_secs())));
            }
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn all_answered(request: &Request, status: u16, in_a_row: usize) -> Result<()> {
    let mut client = Client::new(request)?;
    for _ in 0..in_a_row {
        let response = client.send().await?;
        ensure!(
            response.status == status,
            "{} is answered with {}, not {status}",
            request.get,
            response.status
        );
    }
    Ok(())
}

async fn answered_slowly(request: &Request, least: Duration) -> Result<Duration> {
    let start = Instant::now();
    let response = Client::new(request)?.send().await?;
    let took = start.elapsed();
    ensure!(
        response.status == SUCCESS,
        "{} is answered with {} after {} ms, not {SUCCESS}",
        request.get,
        response.status,
        took.as_millis()
    );
    ensure!(
        took >= least,
        "{} is answered after {} ms, not {}",
        request.get,
        took.as_millis(),
        least.as_millis()
    );
    Ok(took)
}

async fn count_shares(shares: &Percentages) -> Result<String> {
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (request, header, count) =
            (shares.request.clone(), shares.header.clone(), shares.requests / CONNECTIONS);
        clients.spawn_local(async move {
            let mut client = Client::new(&request)?;
            let mut counted: BTreeMap<String, usize> = BTreeMap::new();
            for _ in 0..count {
                let response = client.send().await?;
                let value = response.headers.get(&header).and_then(|value| value.to_str().ok());
                *counted.entry(value.unwrap_or("none").to_owned()).or_default() += 1;
            }
            anyhow::Ok(counted)
        });
    }
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    while let Some(client) = clients.join_next().await {
        for (value, count) in client?? {
            *counted.entry(value).or_default() += count;
        }
    }
    judge(shares, &counted)
}

/// Whether shares are as expected; their text if they are.
fn judge(shares: &Percentages, counted: &BTreeMap<String, usize>) -> Result<String> {
    let total: usize = counted.values().sum();
    let percent = |count: usize| 100.0 * count as f64 / total.max(1) as f64;
    let told: Vec<String> =
        counted.iter().map(|(value, count)| format!("{value} {:.0} %", percent(*count))).collect();
    let told = told.join(", ");
    let names = shares.percent.keys().chain(counted.keys());
    for name in names {
        let expected = shares.percent.get(name).copied().unwrap_or_default();
        let found = percent(counted.get(name).copied().unwrap_or_default());
        ensure!(
            (found - expected).abs() <= shares.tolerance,
            "{told}, where {name} should have {expected:.0} %"
        );
    }
    Ok(told)
}

/// Asks a workload in plain text, past the proxies of its clients.
async fn ask_plainly(mesh: &Mesh, workload: &str) -> Result<Outcome> {
    let pod = mesh.components.plan.pods_of(workload).next().context("no such workload")?;
    let port = pod.ports.first().context("the workload has no port")?;
    let address = SocketAddr::from((pod.address, port.inbound.unwrap_or(port.target)));
    mesh.node.run(plain::ask(address)).await?
}

async fn answers_plaintext(mesh: &Mesh, workload: &str) -> Result<()> {
    match ask_plainly(mesh, workload).await? {
        Outcome::Answered(_) => Ok(()),
        Outcome::Closed(how) => bail!("{workload} does not answer plain text ({how})"),
    }
}

async fn refuses_plaintext(mesh: &Mesh, workload: &str) -> Result<&'static str> {
    match ask_plainly(mesh, workload).await? {
        Outcome::Answered(line) => bail!("{workload} answers plain text with {line}"),
        Outcome::Closed(how) => Ok(how),
    }
}

async fn quarantined(mesh: &Mesh, object: &str) -> Result<String> {
    let held = mesh.observer.control_plane().await.quarantined;
    let found = held.into_iter().find(|held| held.object == object);
    found.map(|held| held.reason).with_context(|| format!("{object} is not in quarantine"))
}

async fn renewed(mesh: &Mesh, before: &Serials) -> Result<usize> {
    // Every proxy is asked; that need not happen more often.
    sleep(Duration::from_millis(200)).await;
    certificates::all_renewed(before, &certificates::serials(mesh).await?)
}

fn restarts(mesh: &Mesh) -> u32 {
    mesh.units.get("canopusd").map_or(0, |unit| unit.status.borrow().restarts)
}

/// Whether the control plane has been started again and all proxies are connected to it.
async fn reconnected(mesh: &Mesh, before: u32) -> Result<u64> {
    ensure!(restarts(mesh) > before, "canopusd has not been started again");
    let expected = mesh.components.plan.pods.iter().filter(|pod| pod.proxy.is_some()).count() as u64;
    let connections = mesh.observer.debug("/debug/connections").await?;
    let count = connections["totalClients"].as_u64().unwrap_or_default();
    ensure!(count >= expected, "{count} of {expected} proxies are connected again");
    Ok(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares() -> Percentages {
        Percentages {
            request: Request { get: "http://localhost/".to_owned(), headers: BTreeMap::new() },
            header: "x".to_owned(),
            percent: BTreeMap::from([("v1".to_owned(), 90.0), ("v3".to_owned(), 10.0)]),
            tolerance: 5.0,
            requests: 100,
        }
    }

    fn counted(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn shares_within_the_tolerance_are_told() {
        assert_eq!(judge(&shares(), &counted(&[("v1", 88), ("v3", 12)])).unwrap(), "v1 88 %, v3 12 %");
    }

    #[test]
    fn missing_and_unexpected_values_are_failures() {
        for wrong in [&[("v1", 100)][..], &[("v1", 80), ("v3", 10), ("v2", 10)], &[]] {
            assert!(judge(&shares(), &counted(wrong)).is_err(), "{wrong:?}");
        }
    }
}
