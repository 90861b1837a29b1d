//! What scenarios are played on: the API server, a subject, the proxies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use canopus_testkit::KubeApi;
use canopus_xds::session::Protocol;
use parking_lot::Mutex;

use crate::api::Api;
use crate::client::{Fleet, Record, Role, Target, Totals};
use crate::figure::Figure;
use crate::fixture::{Fixture, collection, gateway_api_definitions};
use crate::floor::{Floor, Load};
use crate::scale::Scale;
use crate::subject::{Control, Launch, Started};
use crate::usage;
use crate::waste::Waste;

/// How long anything may take before it counts as lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// How long nothing arrives before it is quiet.
pub(crate) const PAUSE: Duration = Duration::from_millis(700);

/// A real API server with the fixture in it.
pub(crate) struct World {
    /// The server.
    pub(crate) kube: KubeApi,
    /// A connection to it.
    pub(crate) api: Api,
    /// What is in it.
    pub(crate) fixture: Fixture,
    serial: AtomicUsize,
}

impl World {
    /// Starts the server and fills it.
    pub(crate) async fn start(fixture: Fixture) -> Result<Self> {
        let kube = KubeApi::start().await?;
        let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/crds");
        kube.kubectl(&["apply", "--server-side", "--filename", definitions]).await?;
        if fixture.is_real() {
            let definitions =
                gateway_api_definitions().iter().map(|it| format!("{it}\n---\n")).collect::<String>();
            kube.apply(&definitions).await?;
        }
        kube.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
        let api = Api::connect(&kube).await?;
        let (namespaces, others): (Vec<_>, Vec<_>) =
            fixture.objects().into_iter().partition(|(_, object)| object["kind"] == "Namespace");
        api.create_all(namespaces).await?;
        api.create_all(others).await?;
        let statuses = fixture.all_pods().into_iter().map(|pod| {
            let path = format!("{}/{}/status", collection("Pod", &pod.workload.namespace), pod.name());
            (path, pod.status())
        });
        api.merge_all(statuses).await?;
        Ok(Self { kube, api, fixture, serial: AtomicUsize::new(1) })
    }

    /// The first of so many numbers that nobody was given before: a value written twice is no change the second time.
    pub(crate) fn numbers(&self, count: usize) -> usize {
        self.serial.fetch_add(count, Ordering::Relaxed)
    }
}

/// One subject on the world, with its proxies.
pub(crate) struct Stage<'a> {
    /// The world.
    pub(crate) world: &'a World,
    /// The subject.
    pub(crate) control: Control,
    /// How much is done.
    pub(crate) scale: Scale,
    fleet: Option<Fleet>,
    started: usize,
    protocol: Protocol,
    record: Arc<Mutex<Record>>,
}

/// What was used and received between two moments.
#[derive(Debug)]
pub(crate) struct Spent {
    /// Time that passed.
    pub(crate) time: Duration,
    /// Processor time of the subject.
    pub(crate) cpu: Duration,
    /// Processor time of the proxies.
    pub(crate) client_cpu: Duration,
    /// What the proxies received.
    pub(crate) received: Totals,
}

/// The beginning of something that is measured.
pub(crate) struct Mark {
    at: Instant,
    cpu: Duration,
    client_cpu: Duration,
    received: Totals,
}

impl<'a> Stage<'a> {
    /// A stage on which nothing runs. Stages may share what was learnt of resources.
    pub(crate) fn new(
        world: &'a World,
        launch: Launch,
        scale: Scale,
        protocol: Protocol,
        record: Arc<Mutex<Record>>,
    ) -> Result<Self> {
        Ok(Self { world, control: Control::new(launch)?, scale, fleet: None, started: 0, protocol, record })
    }

    /// A new process of the subject, and proxies that have not connected yet.
    pub(crate) async fn fresh(&mut self) -> Result<Started> {
        self.fresh_with(self.world.fixture.roles(), self.control.target()?).await
    }

    /// A new process of the subject, and other proxies than those of the fixture, which have not connected yet.
    pub(crate) async fn fresh_with(&mut self, roles: Vec<Role>, target: Target) -> Result<Started> {
        self.fleet = None;
        self.control.kill();
        let started = self.start().await?;
        let fleet = Fleet::new(roles, self.protocol, target, Arc::clone(&self.record));
        fleet.forget_ready();
        self.fleet = Some(fleet);
        Ok(started)
    }

    /// Kills the subject and starts it again at the same address; proxies come back by themselves.
    pub(crate) async fn restart(&mut self) -> Result<Started> {
        self.control.kill();
        self.start().await
    }

    async fn start(&mut self) -> Result<Started> {
        self.started += 1;
        self.control.start(self.world.kube.kubeconfig()).await
    }

    /// How often generators ran so far, and in which process: the number of its start.
    pub(crate) async fn waste(&self) -> Option<(usize, Waste)> {
        Some((self.started, self.control.waste().await?))
    }

    /// Makes sure that all proxies are connected and have what they asked for.
    pub(crate) async fn connected(&mut self) -> Result<()> {
        let connected = self.fleet.as_ref().is_some_and(Fleet::is_connected);
        if !connected || !self.control.is_running() {
            self.fresh().await?;
            let count = self.world.fixture.proxies;
            self.fleet_mut()?.connect(0..count);
            self.fleet()?.ready(count, PATIENCE).await?;
        }
        self.fleet()?.quiet(PAUSE, PATIENCE).await?;
        Ok(())
    }

    /// The proxies.
    pub(crate) fn fleet(&self) -> Result<&Fleet> {
        match &self.fleet {
            Some(fleet) => Ok(fleet),
            None => bail!("there are no proxies yet"),
        }
    }

    /// The proxies, to be connected.
    pub(crate) fn fleet_mut(&mut self) -> Result<&mut Fleet> {
        match &mut self.fleet {
            Some(fleet) => Ok(fleet),
            None => bail!("there are no proxies yet"),
        }
    }

    /// What bare sockets take for so many bytes to so many proxies, and how many times that these delays are.
    pub(crate) async fn floor(
        &self,
        what: &str,
        delays: &[Duration],
        bytes: u64,
        proxies: usize,
    ) -> Result<Vec<Figure>> {
        let floor = Floor::measure(Load::divided(bytes, proxies), self.scale.floor_rounds).await?;
        Ok(match delays {
            [delay] => floor.figures_of_one(what, *delay),
            _ => floor.figures(what, delays),
        })
    }

    /// Begins to measure.
    pub(crate) fn mark(&mut self) -> Result<Mark> {
        Ok(Mark {
            at: Instant::now(),
            cpu: self.control.cpu()?,
            client_cpu: usage::own_cpu()?,
            received: self.fleet()?.totals(),
        })
    }

    /// What was spent since.
    pub(crate) fn since(&mut self, mark: &Mark) -> Result<Spent> {
        Ok(Spent {
            time: mark.at.elapsed(),
            cpu: self.control.cpu()?.saturating_sub(mark.cpu),
            client_cpu: usage::own_cpu()?.saturating_sub(mark.client_cpu),
            received: self.fleet()?.totals() - &mark.received,
        })
    }
}
