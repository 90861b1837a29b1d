//! What makes pods: Deployments, DaemonSets, StatefulSets; and what scales and protects them.

use crate::decode::slim;
use crate::kube::PodSpec;
use crate::macros::object;
use crate::meta::Meta;
use crate::resource::Resource;
use crate::value::{Condition, IntOrString, LabelSelector};

/// Pods that are all alike.
pub type Deployment = Resource<DeploymentSpec, DeploymentStatus>;
/// A pod on every node.
pub type DaemonSet = Resource<DaemonSetSpec, DaemonSetStatus>;
/// Pods with names that stay.
pub type StatefulSet = Resource<StatefulSetSpec, StatefulSetStatus>;
/// How many pods there should be under load.
pub type HorizontalPodAutoscaler = Resource<HorizontalPodAutoscalerSpec>;
/// How many pods may be away at once.
pub type PodDisruptionBudget = Resource<PodDisruptionBudgetSpec>;

object! {
    /// What new pods look like.
    PodTemplate {
        /// Metadata of the pods that are made from the template.
        metadata: Meta,
        /// Spec of the pods that are made from the template.
        spec: PodSpec,
    }

    /// What a deployment is.
    DeploymentSpec {
        /// How many pods.
        replicas: i32 = 1,
        /// Which pods are its own.
        selector: LabelSelector,
        /// What its pods look like.
        template: PodTemplate,
    }

    /// What became of a deployment.
    DeploymentStatus {
        /// The generation that was last looked at.
        observed_generation: i64,
        /// How many pods there are.
        replicas: i32,
        /// How many of them are made from the present template.
        updated_replicas: i32,
        /// How many are ready.
        ready_replicas: i32,
        /// How many have been ready for long enough.
        available_replicas: i32,
        /// Observations.
        conditions: Vec<Condition>,
    }

    /// What a daemon set is.
    DaemonSetSpec {
        /// Which pods are its own.
        selector: LabelSelector,
        /// What its pods look like.
        template: PodTemplate,
    }

    /// What became of a daemon set.
    DaemonSetStatus {
        /// The generation that was last looked at.
        observed_generation: i64,
        /// On how many nodes it should run.
        desired_number_scheduled: i32,
        /// On how many it runs with the present template.
        updated_number_scheduled: i32,
        /// On how many it is ready.
        number_ready: i32,
        /// On how many it has been ready for long enough.
        number_available: i32,
    }

    /// What a stateful set is.
    StatefulSetSpec {
        /// How many pods.
        replicas: i32 = 1,
        /// Which pods are its own.
        selector: LabelSelector,
        /// The headless service its pods are named below.
        service_name: Box<str>,
        /// What its pods look like.
        template: PodTemplate,
    }

    /// What became of a stateful set.
    StatefulSetStatus {
        /// The generation that was last looked at.
        observed_generation: i64,
        /// How many pods there are.
        replicas: i32,
        /// How many are ready.
        ready_replicas: i32,
    }

    /// How many pods there should be under load.
    HorizontalPodAutoscalerSpec {
        /// What is scaled.
        scale_target_ref: ScaleTarget,
        /// At least so many.
        min_replicas: Option<i32>,
        /// At most so many.
        max_replicas: i32,
    }

    /// What is scaled.
    ScaleTarget {
        /// Group and version of the target.
        api_version: Box<str>,
        /// Kind of the target.
        kind: Box<str>,
        /// Name of the target.
        name: Box<str>,
    }

    /// How many pods may be away at once.
    PodDisruptionBudgetSpec {
        /// The pods.
        selector: Option<LabelSelector>,
        /// Number or percentage of pods that must stay available.
        min_available: Option<IntOrString>,
        /// Number or percentage of pods that may be unavailable.
        max_unavailable: Option<IntOrString>,
    }
}

slim!(
    DeploymentSpec,
    DeploymentStatus,
    DaemonSetSpec,
    DaemonSetStatus,
    StatefulSetSpec,
    StatefulSetStatus,
    HorizontalPodAutoscalerSpec,
    PodDisruptionBudgetSpec,
);
