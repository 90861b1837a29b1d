//! A client and a server on a network with a control plane, and requests between them.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Echoed, eventually, http};

use crate::network::{Application, Network};
use crate::plane::Plane;
use crate::pod::{Pod, Workload};

const PATIENCE: Duration = Duration::from_secs(30);
/// The address of the service, which only packet rules and proxies know.
pub(crate) const SERVICE: &str = "10.96.0.10:80";
pub(crate) const HOST: &str = "reviews.shop.mesh";

pub(crate) const CLIENT: Workload = Workload { name: "frontend", account: "frontend", number: 2 };
pub(crate) const SERVER: Workload = Workload { name: "reviews", account: "reviews", number: 3 };

/// The service; its workloads are files of their own.
const SERVICES: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews.shop.mesh]
  addresses: [10.96.0.10]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: 80, name: http, protocol: HTTP, targetPort: 8080}
  workloadSelector:
    labels: {app: reviews}
";

/// Every request between the two Envoys has a handshake of its own.
pub(crate) const HANDSHAKE_EACH: &str = "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: shop}
spec:
  host: reviews.shop.mesh
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}
";

/// The object of a workload behind the service.
pub(crate) fn workload_entry(workload: &Workload) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {{name: {}, namespace: shop}}
spec:
  address: {}
  labels: {{app: reviews, security.istio.io/tlsMode: istio}}
  serviceAccount: {}
",
        workload.name,
        workload.address(),
        workload.account
    )
}

pub(crate) struct World {
    // Fields are dropped in this order: pods before their network.
    pub(crate) client: Pod,
    pub(crate) server: Pod,
    pub(crate) plane: Plane,
    _application: Application,
    pub(crate) network: Network,
}

impl World {
    /// Starts everything and waits until a request gets through.
    pub(crate) fn start(objects: &str, plane: &[(&str, &str)], agent: &[(&str, &str)]) -> Result<Self> {
        let mut network = Network::new()?;
        let plane = Plane::start(network.node(), &format!("{SERVICES}---\n{objects}"), plane)?;
        plane.write("reviews.yaml", &workload_entry(&SERVER))?;
        let (client, server) = (network.pod(CLIENT.number)?, network.pod(SERVER.number)?);
        let application = server.serve("reviews", 8080)?;
        let server = Pod::start(server, SERVER, &plane, agent)?;
        let client = Pod::start(client, CLIENT, &plane, agent)?;
        let world = Self { client, server, plane, _application: application, network };
        for pod in [&world.client, &world.server] {
            pod.wait_ready().with_context(|| format!("canopusd:\n{}", world.plane.log()))?;
        }
        world.wait_answer()?;
        Ok(world)
    }

    /// Ends the client's agent and starts another one with these variables, which has no token of the issuer outside.
    pub(crate) fn rejoin(&mut self, variables: &[(&str, &str)]) -> Result<()> {
        self.client.restart_with(variables)?;
        self.client.wait_ready().with_context(|| format!("canopusd:\n{}", self.plane.log()))
    }

    /// Waits until the server's application answers the client's, and tells what reached it.
    pub(crate) fn wait_answer(&self) -> Result<Echoed> {
        let answer =
            self.client.namespace.run(async || eventually("an answer", PATIENCE, async || ask().await).await);
        answer.with_context(|| {
            format!(
                "client:\n{}\nserver:\n{}\ncanopusd:\n{}",
                self.client.log(),
                self.server.log(),
                self.plane.log()
            )
        })
    }

    /// Asks 200 times a second from the client's application while `work` is done, and gives the answers' outcomes.
    pub(crate) fn under_load<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Load)> {
        self.under_load_of(Duration::from_millis(5), work)
    }

    /// The same, with a request each `pause`.
    pub(crate) fn under_load_of<T>(
        &self,
        pause: Duration,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Load)> {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let namespace = self.client.namespace.clone();
        let thread =
            std::thread::spawn(move || namespace.run(async move || Ok(ask_steadily(pause, stopped).await)));
        let result = work();
        let _ = stop.send(true);
        let load = thread.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
        Ok((result?, load))
    }
}

/// What became of a load.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) answered: usize,
    pub(crate) failures: Vec<Failure>,
}

/// A request without an answer.
#[derive(Debug)]
pub(crate) struct Failure {
    sent: Instant,
    reason: String,
}

impl Load {
    /// Fails unless there were requests, and all were answered.
    pub(crate) fn check(&self, least: usize) -> Result<()> {
        self.check_outside(None, least)
    }

    /// The same, but for those that were sent in a time in which there was nobody to answer.
    pub(crate) fn check_outside(&self, gap: Option<Range<Instant>>, least: usize) -> Result<()> {
        let excused = |failure: &&Failure| gap.as_ref().is_some_and(|gap| gap.contains(&failure.sent));
        let failures: Vec<_> = self.failures.iter().filter(|failure| !excused(failure)).collect();
        let first: Vec<_> = failures.iter().take(5).map(|failure| &failure.reason).collect();
        ensure!(failures.is_empty(), "{} of {} failed: {first:#?}", failures.len(), self.answered);
        ensure!(self.answered >= least, "only {} requests were made", self.answered);
        Ok(())
    }
}

async fn ask() -> Result<Echoed> {
    let address: SocketAddr = SERVICE.parse()?;
    let body = http::request(http::Method::GET, address, "/").host(HOST).send().await?.ok()?;
    Echoed::from_body(&body)
}

/// Every request has a connection of its own to the client's Envoy and does not wait for the ones before it.
async fn ask_steadily(pause: Duration, mut stopped: tokio::sync::watch::Receiver<bool>) -> Load {
    let mut requests = tokio::task::JoinSet::new();
    let mut ticks = tokio::time::interval(pause);
    let started = Instant::now();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let (at, sent) = (started.elapsed(), Instant::now());
                let failed = move |error| Failure { sent, reason: format!("after {at:.1?}: {error:#}") };
                requests.spawn(async move { ask().await.map_err(failed) });
            }
            _ = stopped.changed() => break,
        }
    }
    let mut load = Load::default();
    while let Some(done) = requests.join_next().await {
        match done {
            Ok(Ok(_)) => load.answered += 1,
            Ok(Err(error)) => load.failures.push(error),
            Err(error) => load.failures.push(Failure { sent: started, reason: error.to_string() }),
        }
    }
    load
}
