use std::collections::BTreeSet;
use std::time::Duration;

use canopus_sources::kubernetes::{ApiError, ApplyOptions};
use serde_json::Value as Json;
use tokio::time::{Instant, sleep};

use super::object::ObjectId;
use super::plan::{Action, Plan, Step, phase};
use super::{ClusterError, FIELD_MANAGER, Installer, refusal};

/// How often an object is tried that the server refuses for a reason that may pass.
const TRIES: u32 = 6;

/// Reports how an installation goes on.
pub trait Progress: Send {
    /// A component's objects are about to be applied.
    fn begin(&mut self, component: &str, objects: usize);
    /// An object was applied or deleted.
    fn done(&mut self, object: &ObjectId, what: &'static str);
    /// These objects are not ready yet, each with its reason.
    fn waiting(&mut self, pending: &[String]);
    /// A component is ready.
    fn ready(&mut self, component: &str);
}

/// Tells nobody.
impl Progress for () {
    fn begin(&mut self, _: &str, _: usize) {}
    fn done(&mut self, _: &ObjectId, _: &'static str) {}
    fn waiting(&mut self, _: &[String]) {}
    fn ready(&mut self, _: &str) {}
}

impl Installer {
    /// Applies a plan, waits for each component, and deletes what is not part of the installation any more.
    ///
    /// With a `patience` of zero nothing is waited for, except for definitions, without which objects cannot be applied.
    pub async fn carry_out(
        &mut self,
        plan: &Plan,
        patience: Duration,
        progress: &mut dyn Progress,
    ) -> Result<(), ClusterError> {
        let phases: BTreeSet<usize> = plan.steps.iter().map(|step| phase(step.manifest.component)).collect();
        for now in phases {
            let steps: Vec<&Step> =
                plan.steps.iter().filter(|step| phase(step.manifest.component) == now).collect();
            let components: BTreeSet<&str> = steps.iter().map(|step| step.manifest.component).collect();
            let title = components.into_iter().collect::<Vec<_>>().join(", ");
            progress.begin(&title, steps.len());
            for step in &steps {
                self.apply(step).await?;
                let what = match step.action {
                    Action::Create => "created",
                    Action::Change(_) => "changed",
                    Action::Keep => "unchanged",
                };
                progress.done(&step.object, what);
            }
            self.wait(&steps, patience, progress).await?;
            progress.ready(&title);
        }
        for object in &plan.prune {
            self.delete(object).await?;
            progress.done(object, "pruned");
        }
        Ok(())
    }

    async fn apply(&mut self, step: &Step) -> Result<(), ClusterError> {
        let options = ApplyOptions { manager: FIELD_MANAGER, subresource: "", force: true, dry_run: false };
        let mut pause = Duration::from_millis(250);
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(path) = self.path(&step.object).await? else {
                if tries >= TRIES {
                    return Err(ClusterError::UnknownKind { object: step.object.clone() });
                }
                // A definition of this plan may just have been applied.
                self.types.remove(&step.object.api_version);
                sleep(pause).await;
                pause *= 2;
                continue;
            };
            match self.cluster.apply_at(&path, &step.manifest.object, options).await {
                Ok(_) => return Ok(()),
                Err(error) if tries < TRIES && may_pass(&error) => {
                    sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => {
                    let verb = if step.action == Action::Create { "create" } else { "change" };
                    return Err(refusal(&step.object, verb, error));
                }
            }
        }
    }

    pub(super) async fn delete(&mut self, object: &ObjectId) -> Result<bool, ClusterError> {
        let Some(path) = self.path(object).await? else { return Ok(false) };
        // A workload is gone when its pods are.
        let in_foreground = matches!(object.kind.as_str(), "Deployment" | "DaemonSet");
        let deleted = self.cluster.delete_at(&path, in_foreground).await;
        deleted.map_err(|error| refusal(object, "delete", error))
    }

    async fn wait(
        &mut self,
        steps: &[&Step],
        patience: Duration,
        progress: &mut dyn Progress,
    ) -> Result<(), ClusterError> {
        let is_awaited = |step: &&&Step| {
            let kind = step.object.kind.as_str();
            kind == "CustomResourceDefinition"
                || (!patience.is_zero() && matches!(kind, "Deployment" | "DaemonSet"))
        };
        let mut awaited: Vec<&Step> = steps.iter().filter(is_awaited).copied().collect();
        let started = Instant::now();
        let patience = patience.max(Duration::from_secs(60));
        loop {
            let mut pending = Vec::new();
            let mut still = Vec::new();
            for step in awaited {
                if let Some(reason) = self.why_not_ready(&step.object).await? {
                    pending.push(format!("{}: {reason}", step.object));
                    still.push(step);
                }
            }
            if pending.is_empty() {
                return Ok(());
            }
            if started.elapsed() >= patience {
                return Err(ClusterError::NotReady { seconds: patience.as_secs(), pending });
            }
            awaited = still;
            progress.waiting(&pending);
            sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Whether trying again may help: the server is overloaded, a webhook is just coming up, or somebody else was faster.
fn may_pass(error: &ApiError) -> bool {
    matches!(error.code, 0 | 409 | 429 | 500..) || error.message.contains("failed calling webhook")
}

/// A number of a status; absent ones are zero.
pub(super) fn count(object: &Json, path: &str) -> i64 {
    object.pointer(path).and_then(Json::as_i64).unwrap_or_default()
}
