//! Keeping a cluster as its IstioOperator objects say: one attempt at one object, and the status it ends in.
//!
//! ```text
//!   IstioOperator ──► desired ──► precheck ──► plan ──► carry_out ──► State ──► status of the object
//!        (paused, deleted, invalid: a State of its own, and nothing is touched)
//! ```
//!
//! An attempt that finds nothing to change only looks whether everything is ready, so repeating it is how drift is found. The
//! plan is that of `canopus install`; who installed by hand can hand over to the operator and take over again.

use std::time::Duration;

use canopus_sources::kubernetes::ApplyOptions;
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use super::apply::Progress;
use super::object::ObjectId;
use super::plan::Plan;
use super::{ClusterError, Installer, Owner, Removal, asking, refusal};
use crate::inputs::{Input, merge_for_install};
use crate::{Operator, Package, generate};

const API_VERSION: &str = "install.istio.io/v1alpha1";
const KIND: &str = "IstioOperator";
const MANAGER: &str = "canopus-operator";

/// An operator leaves an object with this annotation alone while it is `true`.
pub const PAUSE: &str = "install.istio.io/ignoreReconcile";

/// Keeps a deleted IstioOperator until what it describes is gone.
const FINALIZER: &str = "install.istio.io/canopus-operator";

/// How far an IstioOperator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Objects are applied or waited for; the pending ones with their reasons.
    Progressing(Vec<String>),
    /// All objects are applied and ready.
    Ready {
        /// How many objects there are.
        objects: usize,
    },
    /// All objects are applied, but these are not ready.
    NotReady(Vec<String>),
    /// The specification cannot be installed; nothing was touched.
    Invalid(String),
    /// An object in the cluster is in the way; nothing was changed.
    Blocked(Vec<String>),
    /// The API server did not let a step happen.
    Failed {
        /// The reason as one CamelCase word.
        reason: &'static str,
        /// The object and what to do.
        message: String,
    },
    /// The pause annotation is set.
    Paused,
    /// The object is deleted and its installation is being removed.
    Removing(Vec<String>),
    /// The installation was removed; the object is free to go.
    Removed,
}

impl State {
    /// Whether an attempt ended as it should.
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Ready { .. } | Self::Paused | Self::Removed)
    }

    /// A word of Istio's for the whole, whether all objects are applied, whether they are ready, the reason, the message.
    fn words(&self) -> (&'static str, &'static str, &'static str, &'static str, String) {
        let list = |items: &[String]| items.join("; ");
        match self {
            Self::Progressing(pending) if pending.is_empty() => {
                ("RECONCILING", "False", "False", "Applying", "objects are applied".to_owned())
            }
            Self::Progressing(pending) => {
                ("RECONCILING", "Unknown", "False", "Waiting", format!("waiting for {}", list(pending)))
            }
            Self::Ready { objects } => {
                ("HEALTHY", "True", "True", "Ready", format!("{objects} objects are as they should be"))
            }
            Self::NotReady(pending) => ("ERROR", "True", "False", "NotReady", list(pending)),
            Self::Invalid(message) => ("ERROR", "False", "Unknown", "InvalidSpec", message.clone()),
            Self::Blocked(findings) => ("ACTION_REQUIRED", "False", "Unknown", "Blocked", list(findings)),
            Self::Failed { reason, message } => ("ERROR", "False", "Unknown", reason, message.clone()),
            Self::Paused => (
                "NONE",
                "Unknown",
                "Unknown",
                "Paused",
                format!("the annotation {PAUSE} is \"true\"; remove it to go on"),
            ),
            Self::Removing(pending) if pending.is_empty() => {
                ("UPDATING", "False", "False", "Removing", "objects are deleted".to_owned())
            }
            Self::Removing(pending) => ("UPDATING", "False", "False", "Removing", list(pending)),
            Self::Removed => ("NONE", "False", "False", "Removed", "nothing of it is left".to_owned()),
        }
    }

    /// The status of an IstioOperator in this state. Conditions that say the same as before keep their time.
    pub fn status(&self, object: &Json, now: &str) -> Json {
        let (word, applied, ready, reason, message) = self.words();
        let generation = &object["metadata"]["generation"];
        let before = object.pointer("/status/conditions").and_then(Json::as_array);
        let condition = |kind: &str, status: &str| {
            let before = before.into_iter().flatten().find(|before| before["type"] == kind);
            let since = before.filter(|before| before["status"] == status);
            let since = since.and_then(|before| before["lastTransitionTime"].as_str()).unwrap_or(now);
            json!({"type": kind, "status": status, "reason": reason, "message": message,
                "observedGeneration": generation, "lastTransitionTime": since})
        };
        json!({
            "status": word,
            "message": message,
            "observedGeneration": generation,
            "conditions": [condition("Applied", applied), condition("Ready", ready)],
        })
    }
}

impl From<ClusterError> for State {
    fn from(error: ClusterError) -> Self {
        let reason = match &error {
            ClusterError::NotReady { pending, .. } => return Self::NotReady(pending.clone()),
            ClusterError::Ask { .. } => "ApiServerUnavailable",
            ClusterError::Forbidden { .. } => "Forbidden",
            ClusterError::Refused { .. } => "Refused",
            ClusterError::UnknownKind { .. } => "UnknownKind",
            ClusterError::Conflict(_) => "Conflict",
        };
        Self::Failed { reason, message: error.to_string() }
    }
}

/// What an IstioOperator of a cluster describes.
fn desired(package: &Package, object: &Json) -> Result<Operator, String> {
    let metadata = &object["metadata"];
    if object.pointer("/spec/installPackagePath").and_then(Json::as_str).is_some_and(|path| !path.is_empty())
    {
        return Err("spec.installPackagePath: the operator has its own charts; remove the field".to_owned());
    }
    let stripped = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": object["spec"],
    });
    let text = canopus_base::yaml::node_to_string(&stripped.into());
    let file = name(object);
    merge_for_install(package, &[Input { file, text }], &[]).map_err(|error| error.to_string())
}

fn name(object: &Json) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{KIND} {}/{}", text("namespace"), text("name"))
}

/// Hands what is waited for to whoever writes statuses.
struct Telling<'a> {
    states: &'a watch::Sender<State>,
    removes: bool,
}

impl Progress for Telling<'_> {
    fn begin(&mut self, _: &str, _: usize) {
        self.waiting(&[]);
    }
    fn done(&mut self, object: &ObjectId, what: &'static str) {
        if what != "unchanged" {
            tracing::info!(%object, what, "reconciled");
        }
    }
    fn waiting(&mut self, pending: &[String]) {
        let state = if self.removes { State::Removing } else { State::Progressing };
        self.states.send_replace(state(pending.to_vec()));
    }
    fn ready(&mut self, _: &str) {}
}

impl Installer {
    /// The IstioOperators of the cluster, or of one namespace; none if the cluster does not know the kind.
    pub async fn operators(&mut self, namespace: &str) -> Result<Vec<Json>, ClusterError> {
        let all = ObjectId::new(API_VERSION, KIND, namespace, "");
        // The definition may come and go while an operator runs.
        self.types.remove(API_VERSION);
        let Some(path) = self.path(&all).await? else { return Ok(Vec::new()) };
        self.cluster.list_at(&path, "").await.map_err(|error| asking(KIND, error))
    }

    /// Tries once to bring the cluster to what an IstioOperator says. States on the way are sent to `states`.
    pub async fn reconcile(
        &mut self,
        package: &Package,
        object: &Json,
        patience: Duration,
        states: &watch::Sender<State>,
    ) -> State {
        let is_paused = object["metadata"]["annotations"][PAUSE] == "true";
        if is_paused {
            return State::Paused;
        }
        let attempt = if object["metadata"]["deletionTimestamp"].is_null() {
            self.keep(package, object, patience, states).await
        } else {
            self.take_down(object, patience, states).await
        };
        attempt.unwrap_or_else(State::from)
    }

    async fn keep(
        &mut self,
        package: &Package,
        object: &Json,
        patience: Duration,
        states: &watch::Sender<State>,
    ) -> Result<State, ClusterError> {
        let operator = match desired(package, object) {
            Ok(operator) => operator,
            Err(message) => return Ok(State::Invalid(message)),
        };
        let version = self.kubernetes_version().await?;
        let generated = match generate(package, &operator, false, Some(&version)) {
            Ok(generated) => generated,
            Err(error) => return Ok(State::Invalid(format!("{}: {error}", name(object)))),
        };
        let owner = Owner::new(&operator);
        let findings = self.precheck(&generated, &owner).await?;
        let errors: Vec<String> =
            findings.into_iter().filter(|finding| finding.is_error).map(|finding| finding.message).collect();
        if !errors.is_empty() {
            return Ok(State::Blocked(errors));
        }
        // Before the first object is there, so that no deletion leaves any behind.
        self.set_finalizers(object, &[FINALIZER]).await?;
        let plan = self.plan(&generated, &owner).await?;
        if !plan.is_empty() {
            let mut telling = Telling { states, removes: false };
            self.carry_out(&plan, patience, &mut telling).await?;
        }
        let pending = self.pending(&plan).await?;
        Ok(if pending.is_empty() {
            State::Ready { objects: plan.steps.len() }
        } else {
            State::NotReady(pending)
        })
    }

    /// What of a plan is not ready, each with its reason.
    pub async fn pending(&mut self, plan: &Plan) -> Result<Vec<String>, ClusterError> {
        let mut pending = Vec::new();
        for step in &plan.steps {
            if matches!(step.object.kind.as_str(), "CustomResourceDefinition" | "Deployment" | "DaemonSet")
                && let Some(reason) = self.why_not_ready(&step.object).await?
            {
                pending.push(format!("{}: {reason}", step.object));
            }
        }
        Ok(pending)
    }

    async fn take_down(
        &mut self,
        object: &Json,
        patience: Duration,
        states: &watch::Sender<State>,
    ) -> Result<State, ClusterError> {
        // The names alone tell the owner: a specification that became invalid can be deleted too.
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let revision =
            object.pointer("/spec/revision").and_then(Json::as_str).unwrap_or("default").to_owned();
        let owner = Owner { name: text("name"), namespace: text("namespace"), revision };
        let objects = self.to_remove(&Removal::Owner(owner)).await?;
        let mut telling = Telling { states, removes: true };
        self.remove(&objects, patience, &mut telling).await?;
        self.set_finalizers(object, &[]).await?;
        Ok(State::Removed)
    }

    /// Lets all IstioOperators go without removing what they describe.
    pub(super) async fn release_operators(&mut self) -> Result<(), ClusterError> {
        for object in self.operators("").await? {
            self.set_finalizers(&object, &[]).await?;
        }
        Ok(())
    }

    /// Applies the operator's finalizers of an IstioOperator; none lets go of it.
    async fn set_finalizers(&mut self, object: &Json, finalizers: &[&str]) -> Result<(), ClusterError> {
        let has = object.pointer("/metadata/finalizers").and_then(Json::as_array);
        let has = has.into_iter().flatten().any(|finalizer| finalizer == FINALIZER);
        if has != finalizers.is_empty() {
            return Ok(());
        }
        let fields = json!({"metadata": {"finalizers": finalizers, "uid": object["metadata"]["uid"]}});
        self.apply_to_operator(object, "", fields, "mark").await
    }

    /// Writes the status of an IstioOperator.
    pub async fn write_status(&mut self, object: &Json, status: &Json) -> Result<(), ClusterError> {
        self.apply_to_operator(object, "/status", json!({"status": status}), "write the status of").await
    }

    async fn apply_to_operator(
        &mut self,
        object: &Json,
        subresource: &str,
        mut fields: Json,
        verb: &'static str,
    ) -> Result<(), ClusterError> {
        let id = ObjectId::from_list_item(API_VERSION, KIND, object);
        let Some(path) = self.path(&id).await? else { return Err(ClusterError::UnknownKind { object: id }) };
        fields["apiVersion"] = json!(API_VERSION);
        fields["kind"] = json!(KIND);
        fields["metadata"]["name"] = json!(id.name);
        let options = ApplyOptions { manager: MANAGER, subresource: "", force: true, dry_run: false };
        match self.cluster.apply_at(&format!("{path}{subresource}"), &fields, options).await {
            // An object that is gone has nothing to say any more.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            answer => answer.map(drop).map_err(|error| refusal(&id, verb, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(status: Json) -> Json {
        json!({"metadata": {"name": "mesh", "namespace": "istio-system", "generation": 3}, "status": status})
    }

    #[test]
    fn status_names_the_reason_and_the_pending_object() {
        let pending = "Deployment istio-system/istiod: 0 of 1 ready".to_owned();
        let status = State::NotReady(vec![pending.clone()]).status(&object(json!({})), "now");
        assert_eq!(status["status"], "ERROR");
        assert_eq!(status["observedGeneration"], 3);
        let ready = &status["conditions"][1];
        assert_eq!(
            (&ready["type"], &ready["status"], &ready["reason"]),
            (&json!("Ready"), &json!("False"), &json!("NotReady"))
        );
        assert_eq!(ready["message"], json!(pending));
    }

    #[test]
    fn condition_keeps_its_time_while_it_says_the_same() {
        let before = State::Ready { objects: 1 }.status(&object(json!({})), "first");
        let after = State::Ready { objects: 2 }.status(&object(before.clone()), "second");
        assert_eq!(after["conditions"][1]["lastTransitionTime"], "first");
        let worse = State::NotReady(vec!["x".into()]).status(&object(before), "second");
        assert_eq!(worse["conditions"][0]["lastTransitionTime"], "first");
        assert_eq!(worse["conditions"][1]["lastTransitionTime"], "second");
    }

    #[test]
    fn wrong_specification_is_named_and_a_package_path_refused() {
        let with = |spec: Json| {
            let object = json!({"metadata": {"name": "mesh", "namespace": "istio-system"}, "spec": spec});
            desired(&Package::built_in(), &object)
        };
        let operator = with(json!({"profile": "minimal", "revision": "canary"})).unwrap();
        assert_eq!(Owner::new(&operator).name, "mesh");
        assert_eq!(Owner::new(&operator).revision, "canary");
        assert!(with(json!({"installPackagePath": "/charts"})).unwrap_err().contains("installPackagePath"));
        let unknown = with(json!({"profile": "nonsense"})).unwrap_err();
        assert!(unknown.contains("nonsense"), "{unknown}");
    }
}
