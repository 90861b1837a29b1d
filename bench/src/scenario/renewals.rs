use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_testkit::{Certified, grpc_call};
use rcgen::{CertificateParams, KeyPair};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::flap;
use crate::figure::Figure;
use crate::stage::{PATIENCE, PAUSE, Stage};
use crate::subject::CertificatePort;

/// The method that agents call.
const METHOD: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";

/// How many workloads renew, and within which time.
const WORKLOADS: usize = 10_000;
const WITHIN: Duration = Duration::from_secs(60);

/// The pause between two changes of an endpoint.
const BETWEEN: Duration = Duration::from_millis(250);

/// gRPC's code for a server that has too much to do.
const RESOURCE_EXHAUSTED: i32 = 8;

/// Ten thousand workloads renew their certificates within a minute, each with its own certificate on a connection of its own,
/// while an endpoint changes now and then. Pushes must not wait for signatures.
pub(super) async fn play(stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    stage.connected().await?;
    let quiet = flaps(stage, stage.scale.flaps.next_multiple_of(2)).await?;

    let port = stage.control.certificate_port();
    let own = workloads(&port)?;
    let request = request()?;
    let mark = stage.mark()?;
    let started = Instant::now();
    let is_over = Cell::new(false);
    let renewing = async {
        let answers = renew_all(port, own, request).await;
        is_over.set(true);
        (answers, started.elapsed())
    };
    let stage_now: &Stage<'_> = stage;
    let pushing = async {
        let mut last = Vec::new();
        // The fixture is left as it was: with its endpoint ready.
        while !is_over.get() || last.len() % 2 == 1 {
            let (_, delays) = flap::once(stage_now, service(stage_now), last.len() % 2 == 1).await?;
            last.push(delays.iter().max().copied().unwrap_or_default());
            sleep(BETWEEN).await;
        }
        anyhow::Ok(last)
    };
    let ((answers, took), pushes) = tokio::join!(renewing, pushing);
    let pushes = pushes?;
    let spent = stage.since(&mark)?;
    stage.fleet()?.quiet(PAUSE, PATIENCE).await?;

    let (mut each, mut refused, mut failed) = (Vec::new(), 0, BTreeMap::<String, usize>::new());
    for answer in answers {
        match answer {
            Ok(time) => each.push(time),
            Err(Refused::Busy) => refused += 1,
            Err(Refused::Other(reason)) => *failed.entry(reason).or_default() += 1,
        }
    }
    ensure!(failed.is_empty(), "renewals failed: {failed:?}");
    ensure!(!pushes.is_empty(), "nothing was pushed meanwhile");
    let mut figures = Figure::times("renewal, connection and all", &each);
    figures.extend(Figure::times("write to last ACK before", &quiet));
    figures.extend(Figure::times("write to last ACK meanwhile", &pushes));
    figures.extend([
        Figure::count("renewals each second", each.len() as f64 / took.as_secs_f64()),
        Figure::count("renewals refused because too many waited", f64::from(refused)),
        Figure::cpu("processor time of the subject, each renewal", spent.cpu / WORKLOADS as u32),
    ]);
    Ok(figures)
}

fn service(stage: &Stage<'_>) -> usize {
    1.min(stage.world.fixture.services - 1)
}

/// How long changes take to reach the last proxy while nothing else happens.
async fn flaps(stage: &Stage<'_>, count: usize) -> Result<Vec<Duration>> {
    let mut last = Vec::new();
    for flap in 0..count {
        let (_, delays) = flap::once(stage, service(stage), flap % 2 == 1).await?;
        last.push(delays.iter().max().copied().unwrap_or_default());
        sleep(BETWEEN).await;
    }
    Ok(last)
}

/// Certificates that workloads have from before.
fn workloads(port: &CertificatePort) -> Result<Vec<Certified>> {
    let identities =
        (0..WORKLOADS).map(|number| format!("spiffe://cluster.local/ns/renewal/sa/workload-{number}"));
    identities.map(|identity| port.authority.workload(&[&identity])).collect()
}

/// What each of them asks. The key is the same for all: making 10,000 would be the agents' work, and is not measured.
fn request() -> Result<Bytes> {
    let csr = CertificateParams::default().serialize_request(&KeyPair::generate()?)?.pem()?;
    let message = IstioCertificateRequest { csr, validity_duration: 86400, ..Default::default() };
    Ok(message.encode_to_vec().into())
}

/// Why a workload has no new certificate.
enum Refused {
    Busy,
    Other(String),
}

/// Renews one after the other at an even pace, whether or not those before have their answer.
async fn renew_all(
    port: CertificatePort,
    own: Vec<Certified>,
    request: Bytes,
) -> Vec<Result<Duration, Refused>> {
    let port = Arc::new(port);
    let mut pace = interval(WITHIN / WORKLOADS as u32);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut renewals = JoinSet::new();
    for certified in own {
        pace.tick().await;
        let (port, request) = (Arc::clone(&port), request.clone());
        renewals.spawn(async move { renew(&port, &certified, request).await });
    }
    renewals.join_all().await
}

async fn renew(port: &CertificatePort, own: &Certified, request: Bytes) -> Result<Duration, Refused> {
    let started = Instant::now();
    let other = |reason: String| Refused::Other(reason);
    let channel = canopus_testkit::channel(&port.authority.root(), port.address, port.name, Some(own)).await;
    let channel = channel.context("connecting").map_err(|error| other(format!("{error:#}")))?;
    match grpc_call(channel, METHOD, request).await {
        Ok(answer) if answer.len() > 500 => Ok(started.elapsed()),
        Ok(answer) => Err(other(format!("an answer of {} bytes", answer.len()))),
        Err(status) if status.code() as i32 == RESOURCE_EXHAUSTED => Err(Refused::Busy),
        Err(status) => Err(other(format!("{:?}: {}", status.code(), status.message()))),
    }
}
