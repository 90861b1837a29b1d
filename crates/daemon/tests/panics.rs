//! A panic of any task that runs as long as the process: it is logged and counted, and the task begins again or the process
//! ends with an error; and which of the two is known of every task there is.
//!
//! Tasks are made to panic through `tasks::fail_point`, which `canopusd` itself is built without. So the control plane here is
//! this very test program, started once more as a process of its own: it runs [`the_control_plane`] alone, which does what the
//! arguments after `--` say and takes orders from a directory.

#![allow(dead_code, reason = "the local mesh is shared with others")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the variable is between two runs of this program")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_runtime::tasks::fail_point;
use canopus_testkit::{Consul, KubeApi, eventually, free_port, http};
use local_mesh::LocalMesh;

const PATIENCE: Duration = Duration::from_secs(60);

/// Names the directory that orders come from.
const ORDERS: &str = "CANOPUS_PANIC_ORDERS";

/// What follows from a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The task begins again.
    Recovers,
    /// The process ends with an error.
    Ends,
}

use Outcome::{Ends, Recovers};

/// What follows from a panic of each task of the process. A name that ends in a space stands for all that begin with it.
const TASKS: [(&str, Outcome); 37] = [
    ("apply", Ends),
    ("catalogue of Consul", Recovers),
    ("certificate authority", Ends),
    ("certificate reminders", Recovers),
    ("certificates", Recovers),
    ("checks of Consul", Recovers),
    ("consul", Ends),
    ("controller ", Recovers),
    ("definitions of remote clusters", Recovers),
    ("distributed roots", Recovers),
    ("election ", Recovers),
    ("events of root rotation", Recovers),
    ("files", Ends),
    ("gateway templates", Recovers),
    ("http", Ends),
    ("injector configuration", Recovers),
    ("jwks", Recovers),
    ("kubernetes", Ends),
    ("kubernetes:west", Recovers),
    ("monitoring", Ends),
    ("object history", Recovers),
    ("registering machines", Recovers),
    ("remote clusters", Ends),
    ("roots of remote clusters", Recovers),
    ("secret access", Recovers),
    ("secure xds", Ends),
    ("SPIFFE bundles", Recovers),
    ("spans", Recovers),
    ("validation proof", Recovers),
    ("watch of ", Recovers),
    ("webhooks", Ends),
    ("xds", Ends),
    // These end by themselves, or run only where there is what they are for.
    ("new kubeconfig of a remote cluster", Recovers),
    ("signer roots", Recovers),
    ("start with remote clusters", Ends),
    ("operator", Ends),
    ("election", Ends),
];

/// How many of the last rows are about tasks that are not seen at rest here.
const ELSEWHERE: usize = 5;

/// The row of a task. Sources have the place they read after their name.
fn row(task: &str) -> Option<(&'static str, Outcome)> {
    let exact = TASKS.iter().find(|(name, _)| *name == task);
    let of_many = || TASKS.iter().find(|(name, _)| name.ends_with(' ') && task.starts_with(name));
    let of_source = || {
        let (kind, _) = task.split_once(':')?;
        TASKS.iter().find(|(name, _)| *name == kind)
    };
    exact.or_else(of_many).or_else(of_source).copied()
}

/// Not a test by itself: the process that other tests start.
#[test]
fn the_control_plane() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let arguments: Vec<OsString> =
        std::env::args_os().skip_while(|argument| argument != "--").skip(1).collect();
    std::thread::spawn(move || obey(Path::new(&orders)));
    assert_eq!(canopus_daemon::command::run(arguments), ExitCode::SUCCESS);
}

/// Tells again and again which tasks run, and has those panic that are named.
fn obey(orders: &Path) {
    let (told, scratch, wanted) = (orders.join("running"), orders.join("running.new"), orders.join("panic"));
    loop {
        if let Ok(names) = fs::read_to_string(&wanted) {
            fs::remove_file(&wanted).unwrap();
            names.lines().for_each(|name| assert!(fail_point::panic_in(name) > 0, "{name} does not run"));
        }
        fs::write(&scratch, fail_point::running().join("\n")).unwrap();
        fs::rename(&scratch, &told).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A control plane that takes orders.
struct Plane {
    mesh: LocalMesh,
    orders: PathBuf,
}

impl Plane {
    async fn start(arguments: &[String], environment: &[(&str, &str)]) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-panics-").tempdir()?;
        let orders = directory.path().to_owned();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "the_control_plane", "--nocapture", "--", "canopusd", "discovery"]);
        command.args(arguments).arg("--snapshot=").env(ORDERS, &orders).envs(environment.iter().copied());
        Ok(Self { mesh: LocalMesh::launch(command, directory).await?, orders })
    }

    /// The tasks that run, each as often as it does.
    fn running(&self) -> Result<BTreeMap<String, usize>> {
        let mut running = BTreeMap::new();
        for name in fs::read_to_string(self.orders.join("running"))?.lines() {
            *running.entry(name.to_owned()).or_default() += 1;
        }
        Ok(running)
    }

    /// The tasks that run once those have ended that only start something.
    async fn at_rest(&self) -> Result<BTreeMap<String, usize>> {
        let mut before = BTreeMap::new();
        eventually("the same tasks twice", PATIENCE, async || {
            let now = self.running()?;
            let is_same = now == before && !now.contains_key("start with remote clusters");
            before.clone_from(&now);
            tokio::time::sleep(Duration::from_secs(1)).await;
            ensure!(is_same, "still starting: {now:?}");
            Ok(now)
        })
        .await
    }

    fn order_panics(&self, names: &[&str]) -> Result<()> {
        let scratch = self.orders.join("panic.new");
        fs::write(&scratch, names.join("\n"))?;
        Ok(fs::rename(scratch, self.orders.join("panic"))?)
    }

    /// How often tasks have panicked, by the metrics.
    async fn panics(&self) -> Result<BTreeMap<String, u64>> {
        let page = http::get(self.mesh.monitoring(), "/metrics").await?.ok()?;
        let counts = page.lines().filter_map(|line| {
            let (task, count) = line.strip_prefix("canopus_task_panics_total{task=\"")?.split_once("\"} ")?;
            Some((task.to_owned(), count.parse::<f64>().ok()? as u64))
        });
        Ok(counts.collect())
    }

    /// Has tasks panic at once, and waits until each runs again.
    async fn recovers(&self, names: &[&str], usual: &BTreeMap<String, usize>) -> Result<()> {
        self.order_panics(names)?;
        eventually(&format!("{names:?} to begin again"), PATIENCE, async || {
            let (panics, running) = (self.panics().await?, self.running()?);
            for name in names {
                let (seen, wanted) = (panics.get(*name).copied().unwrap_or_default(), usual[*name]);
                ensure!(seen >= wanted as u64, "{name} has panicked {seen} times of {wanted}");
                ensure!(running.get(*name) == Some(&wanted), "{name} does not run again");
                // The log is written by a thread of its own.
                let log = self.mesh.log();
                ensure!(
                    log.contains(&format!("{name} panicked, beginning again")),
                    "{name} is not in the log"
                );
                // The place of a panic is told by its hook.
                ensure!(log.contains("fail_point.rs:"), "no place of a panic is in the log");
            }
            Ok(())
        })
        .await
    }

    /// Has a task panic, and waits until the process has ended with an error that says so.
    async fn ends(mut self, name: &str) -> Result<()> {
        self.order_panics(&[name])?;
        let ended = eventually(&format!("the end after a panic of {name}"), PATIENCE, async || {
            match self.mesh.check_running() {
                Ok(()) => anyhow::bail!("it runs"),
                Err(error) => Ok(format!("{error:#}")),
            }
        })
        .await?;
        ensure!(!ended.contains("exit status: 0"), "{ended}");
        let log = self.mesh.log();
        ensure!(log.contains(&format!("task {name} panicked, stopping the process")), "{log}");
        Ok(())
    }
}

const WORLD: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
";

fn service(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{ports: [{{name: http, port: 80}}]}}}}"
    )
}

/// The names that tasks are given where they are started, up to what depends on the mesh.
fn names_in(directory: &Path, names: &mut BTreeSet<String>) -> Result<()> {
    const STARTS: [&str; 4] = ["asks.spawn(", ".supervise(", ".supervise_with(", "keep_running("];
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            names_in(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            for (at, start) in STARTS.iter().flat_map(|start| text.match_indices(start)) {
                let argument = text[at + start.len()..].trim_start();
                let argument = argument.strip_prefix("format!(").unwrap_or(argument);
                let name = argument.strip_prefix('"').and_then(|rest| rest.split(['"', '{']).next());
                names.extend(name.map(str::to_owned));
            }
        }
    }
    Ok(())
}

#[test]
fn every_task_that_is_started_by_name_has_a_row() -> Result<()> {
    let mut names = BTreeSet::new();
    for sources in ["src", "../sources/src", "../controllers/src"] {
        names_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join(sources), &mut names)?;
    }
    ensure!(names.len() > 15, "there are more tasks than {names:?}");
    let unknown: Vec<_> = names.iter().filter(|name| row(name).is_none()).collect();
    ensure!(unknown.is_empty(), "what follows from a panic of {unknown:?}? Give each a row in TASKS");
    Ok(())
}

/// A cluster with everything in it that a control plane has a task for; it stands for the remote cluster too.
async fn cluster() -> Result<KubeApi> {
    let kube = KubeApi::start().await?;
    for manifest in canopus_api::crd::own::manifests() {
        kube.apply(&manifest.text).await?;
    }
    kube.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
    kube.apply(WORLD).await?;
    let secret = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "west", "namespace": "istio-system", "labels": {"istio/multiCluster": "true"}},
        "stringData": {"west": fs::read_to_string(kube.kubeconfig())?},
    });
    kube.apply(&secret.to_string()).await?;
    Ok(kube)
}

/// Whether a service is known to the control plane.
async fn knows(plane: &Plane, host: &str) -> Result<()> {
    eventually(&format!("the service {host}"), PATIENCE, async || {
        let registry = http::get(plane.mesh.http, "/debug/registryz").await?.ok()?;
        ensure!(registry.contains(host), "{host} is not known");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn real_control_plane_recovers_from_or_ends_with_a_panic_of_every_task() -> Result<()> {
    let (kube, consul) = (cluster().await?, Consul::start().await?);
    let environment = [
        ("PILOT_ENABLE_AMBIENT", "true"),
        ("PILOT_ENABLE_ANALYSIS", "true"),
        ("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "true"),
        ("EXTERNAL_ISTIOD", "true"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
    ];
    let arguments = || -> Result<Vec<String>> {
        Ok(vec![
            format!("--kubeconfig={}", kube.kubeconfig().display()),
            "--registries=Kubernetes,Consul".to_owned(),
            format!("--consulserverURL=http://{}", consul.address()),
            format!("--secureGRPCAddr=127.0.0.1:{}", free_port()?),
            format!("--httpsAddr=127.0.0.1:{}", free_port()?),
        ])
    };
    let plane = Plane::start(&arguments()?, &environment).await?;
    let tasks = plane.at_rest().await?;

    let objects = tempfile::tempdir()?;
    let from_files =
        vec![format!("--configDir={}", objects.path().display()), "--registries=Mock".to_owned()];
    let on_files = Plane::start(&from_files, &[]).await?;
    let on_files_at_rest = on_files.at_rest().await?;
    let files = on_files_at_rest.keys().find(|task| task.starts_with("files:"));
    let files = files.context("files are not read")?.clone();

    let unknown: Vec<_> =
        tasks.keys().chain(on_files_at_rest.keys()).filter(|task| row(task).is_none()).collect();
    ensure!(unknown.is_empty(), "what follows from a panic of {unknown:?}? Give each a row in TASKS");
    let seen: BTreeSet<&str> =
        tasks.keys().chain([&files]).filter_map(|task| row(task)).map(|(name, _)| name).collect();
    let here = TASKS[..TASKS.len() - ELSEWHERE].iter().map(|(name, _)| *name);
    let unseen: Vec<_> = here.filter(|name| !seen.contains(name)).collect();
    ensure!(unseen.is_empty(), "no task is called {unseen:?}; {tasks:?} run");

    // Watches all at once, the others one by one: some run parts of their own.
    let (watches, others): (Vec<&str>, Vec<&str>) = tasks
        .keys()
        .map(String::as_str)
        .filter(|task| row(task).is_some_and(|(_, outcome)| outcome == Recovers))
        .partition(|task| task.starts_with("watch of "));
    ensure!(watches.len() > 20, "there are watches of more kinds than {watches:?}");
    plane.recovers(&watches, &tasks).await?;
    for task in &others {
        plane.recovers(&[task], &tasks).await?;
    }
    // After all of that it goes on as if nothing had been.
    kube.apply(&service("late")).await?;
    knows(&plane, "late.shop.svc.cluster.local").await?;
    consul.register(&serde_json::json!({"Name": "late", "Address": "10.0.0.1", "Port": 80})).await?;
    knows(&plane, "late.service.consul").await?;
    http::get(plane.mesh.http, "/ready").await?.ok()?;

    let mut plane = Some(plane);
    for (task, _) in tasks.iter().filter(|(task, _)| row(task).is_some_and(|(_, outcome)| outcome == Ends)) {
        let dying = match plane.take() {
            Some(plane) => plane,
            None => Plane::start(&arguments()?, &environment).await?,
        };
        dying.ends(task).await?;
    }
    on_files.ends(&files).await
}
