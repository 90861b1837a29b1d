//! `canopusd operator`: keeps a cluster as its IstioOperator objects say.
//!
//! ```text
//!   list of IstioOperators, every few seconds ──► one attempt per object at a time ──► its status
//!                                                  (install::cluster::reconcile)
//! ```
//!
//! An attempt begins when an object changes, and again after [`OperatorArgs::resync`] to repair what drifted, or sooner if
//! the last one did not end well. A change of the object ends the attempt that is under way. Only the replica that holds the
//! lease acts; when it loses it, attempts stop where they are, which is safe because each step can be repeated.
//!
//! It shares nothing with `canopusd discovery` but the program.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use canopus_controllers::election::{Candidate, ClusterLock, Election, Leadership, LockKind};
use canopus_install::Package;
use canopus_install::cluster::{Installer, State};
use canopus_runtime::flags::{Flags, POD_NAMESPACE};
use canopus_runtime::log::{self, LogFlags, Scope, Scopes};
use canopus_runtime::shutdown::{Phase, Shutdown};
use canopus_runtime::tasks::Tasks;
use canopus_sources::kubernetes::{Access, Cluster, RateLimit};
use clap::Args;
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use crate::discovery::fail;

/// How often the objects are listed.
const POLL: Duration = Duration::from_secs(3);

/// The pause after an attempt that did not end well; it doubles up to the time of a resync.
const RETRY: Duration = Duration::from_secs(5);

/// Statuses are written no more often than this while an attempt is under way.
const STATUS_PAUSE: Duration = Duration::from_secs(1);

/// How long the process may take to give the lease back.
const GRACE: Duration = Duration::from_secs(5);

const LEASE: &str = "canopus-operator-leader";

const SCOPES: &[Scope] = &[Scope::new("installation", "What the operator does to the cluster")
    .covering(&["canopus_install", "canopus_daemon::operator"])];

/// Keep the cluster as its IstioOperator objects say.
#[derive(Args, Clone, Debug)]
pub(crate) struct OperatorArgs {
    /// Kubeconfig file; without, the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Only objects of this namespace; without, those of all namespaces.
    #[arg(long, value_name = "NAMESPACE", default_value = "")]
    watch_namespace: String,
    /// Directory with `charts` and `profiles` to install from; without, the charts that are built in.
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// How often drift is looked for, such as `60s`.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    resync: Duration,
    /// How long a component may take to be ready before the status says that it is not.
    #[arg(long, value_name = "DURATION", default_value = "300s", value_parser = duration)]
    readiness_timeout: Duration,
    #[command(flatten)]
    log: LogFlags,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: canopus_base::duration::Duration = text.parse().map_err(|error| format!("{error}"))?;
    duration.to_std().filter(|duration| !duration.is_zero()).ok_or_else(|| "must be positive".to_owned())
}

pub(crate) fn main(args: OperatorArgs) -> ExitCode {
    let scopes = Scopes::new();
    scopes.register(SCOPES);
    let _log = match log::install(&scopes, &args.log) {
        Ok(guard) => guard,
        Err(error) => return fail(&error.into()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.context("cannot start").and_then(|runtime| runtime.block_on(run(args)));
    done.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
}

async fn run(args: OperatorArgs) -> anyhow::Result<()> {
    let flags = Flags::from_env();
    let shutdown = Shutdown::new();
    shutdown.stop_on_signals().context("cannot handle signals")?;
    let tasks = Tasks::new(shutdown.clone());
    let access = args.kubeconfig.clone().map_or(Access::Pod, Access::Kubeconfig);
    let limit = RateLimit { qps: 100.0, burst: 200 };
    let cluster = Cluster::connect(&access, limit).await.context("cannot reach Kubernetes")?;

    let namespace = flags.get(POD_NAMESPACE);
    // Renewals must not queue behind an attempt's requests.
    let lock = ClusterLock::new(cluster.limited(limit), LockKind::Lease, namespace, LEASE);
    let candidate = Candidate::new(&crate::controllers::identity(&flags), "default");
    let (mut election, leadership) = Election::new(lock, candidate);
    let part = shutdown.register(Phase::Intake, "election");
    tasks.spawn("election", async move { election.run(|| None, part.stopping()).await });

    let package = args.manifests.clone().map_or_else(Package::built_in, Package::open);
    let reconciler = Reconciler { cluster, package: Arc::new(package), args: Arc::new(args) };
    info!(namespace, "the operator waits for the lease {LEASE}");
    tasks.spawn("operator", reconciler.run(leadership));
    shutdown.requested().await;
    let outcome = shutdown.run(GRACE).await;
    if outcome.failed {
        bail!("{}", outcome.reason);
    }
    Ok(())
}

#[derive(Clone)]
struct Reconciler {
    cluster: Cluster,
    package: Arc<Package>,
    args: Arc<OperatorArgs>,
}

/// What is known of one object.
struct Tracked {
    /// What of the object an attempt depends on; another value begins a new attempt.
    desire: Json,
    attempt: Option<AbortHandle>,
    due: Instant,
    pause: Duration,
}

impl Reconciler {
    async fn run(self, mut leadership: Leadership) {
        loop {
            leadership.acquired().await;
            info!("this replica leads");
            tokio::select! {
                () = self.lead() => {}
                () = leadership.lost() => warn!("this replica leads no more"),
            }
        }
    }

    /// Reconciles for as long as this replica leads. Dropping the future ends all attempts.
    async fn lead(&self) {
        let mut tracked: BTreeMap<String, Tracked> = BTreeMap::new();
        let mut attempts: JoinSet<(String, State)> = JoinSet::new();
        let mut polls = interval(POLL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lister = Installer::new(self.cluster.clone());
        let mut trouble = String::new();
        loop {
            tokio::select! {
                _ = polls.tick() => {
                    let listed = timeout(POLL * 10, lister.operators(&self.args.watch_namespace)).await;
                    let listed = listed.map_err(|_| "no answer in time".to_owned());
                    match listed.and_then(|listed| listed.map_err(|error| error.to_string())) {
                        Ok(objects) => {
                            trouble.clear();
                            self.start_due(&objects, &mut tracked, &mut attempts);
                        }
                        // The same trouble every few seconds is worth one line.
                        Err(error) if error == trouble => {}
                        Err(error) => {
                            warn!(%error, "cannot list IstioOperators");
                            trouble = error;
                        }
                    }
                }
                Some(ended) = attempts.join_next() => match ended {
                    Ok((uid, state)) => self.ended(&uid, &state, &mut tracked),
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => {
                        warn!(%error, "an attempt broke");
                        // Which one is not told; all that run none are tried again soon.
                        for object in tracked.values_mut().filter(|object| object.attempt.as_ref().is_some_and(AbortHandle::is_finished)) {
                            object.attempt = None;
                            object.due = Instant::now() + RETRY;
                        }
                    }
                },
            }
        }
    }

    fn start_due(
        &self,
        objects: &[Json],
        tracked: &mut BTreeMap<String, Tracked>,
        attempts: &mut JoinSet<(String, State)>,
    ) {
        let uid = |object: &Json| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        tracked.retain(|known, object| {
            let exists = objects.iter().any(|object| uid(object) == *known);
            if let (false, Some(attempt)) = (exists, &object.attempt) {
                attempt.abort();
            }
            exists
        });
        for object in objects {
            let (uid, desire) = (uid(object), desire(object));
            let known = tracked.entry(uid.clone()).or_insert_with(|| Tracked {
                desire: Json::Null,
                attempt: None,
                due: Instant::now(),
                pause: RETRY,
            });
            if known.desire != desire {
                if let Some(attempt) = known.attempt.take() {
                    attempt.abort();
                }
                (known.desire, known.due, known.pause) = (desire, Instant::now(), RETRY);
            }
            if known.attempt.is_none() && Instant::now() >= known.due {
                known.attempt = Some(attempts.spawn(self.clone().attempt(uid, object.clone())));
            }
        }
    }

    fn ended(&self, uid: &str, state: &State, tracked: &mut BTreeMap<String, Tracked>) {
        let Some(object) = tracked.get_mut(uid) else { return };
        object.attempt = None;
        if state.is_settled() {
            (object.due, object.pause) = (Instant::now() + self.args.resync, RETRY);
        } else {
            object.due = Instant::now() + object.pause;
            object.pause = (object.pause * 2).min(self.args.resync.max(RETRY));
        }
    }

    /// Makes one attempt at one object and keeps its status current.
    async fn attempt(self, uid: String, object: Json) -> (String, State) {
        let mut installer = Installer::new(self.cluster.clone());
        let mut writer = StatusWriter::new(&self.cluster, object.clone());
        let (sender, mut states) = watch::channel(State::Progressing(Vec::new()));
        let state = {
            let work = installer.reconcile(&self.package, &object, self.args.readiness_timeout, &sender);
            tokio::pin!(work);
            loop {
                tokio::select! {
                    state = &mut work => break state,
                    Ok(()) = states.changed() => {
                        let state = states.borrow_and_update().clone();
                        writer.write(&state).await;
                        // A wait whose reason changes with every look must not become a write for each.
                        tokio::select! {
                            state = &mut work => break state,
                            () = sleep(STATUS_PAUSE) => {}
                        }
                    }
                }
            }
        };
        if state != State::Removed {
            writer.write(&state).await;
        }
        (uid, state)
    }
}

/// The fields that an attempt depends on: statuses and other managers' marks are not among them.
fn desire(object: &Json) -> Json {
    let metadata = &object["metadata"];
    let paused = &metadata["annotations"][canopus_install::cluster::PAUSE];
    serde_json::json!([object["spec"], metadata["deletionTimestamp"], paused])
}

/// Writes the status of one object when it says something new.
struct StatusWriter {
    installer: Installer,
    object: Json,
}

impl StatusWriter {
    fn new(cluster: &Cluster, object: Json) -> Self {
        Self { installer: Installer::new(cluster.clone()), object }
    }

    async fn write(&mut self, state: &State) {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let status = state.status(&self.object, &now);
        if status == self.object["status"] {
            return;
        }
        let name = self.object["metadata"]["name"].as_str().unwrap_or_default();
        info!(name, status = %status["status"], message = %status["message"], "status");
        match self.installer.write_status(&self.object, &status).await {
            Ok(()) => self.object["status"] = status,
            Err(error) => warn!(%error, "cannot write the status"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_does_not_begin_a_new_attempt_but_pausing_does() {
        let object = json!({"metadata": {"name": "mesh"}, "spec": {"profile": "minimal"}});
        let mut with_status = object.clone();
        with_status["status"] = json!({"status": "HEALTHY"});
        with_status["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(desire(&object), desire(&with_status));
        let mut paused = object.clone();
        paused["metadata"]["annotations"] = json!({"install.istio.io/ignoreReconcile": "true"});
        assert_ne!(desire(&object), desire(&paused));
    }
}
