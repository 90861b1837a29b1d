//! The workload name in telemetry: the name of what a user deployed rather than of one replica.

use canopus_api::{Meta, annotations, labels};

/// The workload name of a pod: from a label, else its Deployment, else its controller, else the pod.
pub(super) fn pod_workload_name(meta: &Meta) -> String {
    if let Some(name) = meta.label(labels::WORKLOAD_NAME.name) {
        return name.to_owned();
    }
    let generated = meta.generate_name.as_ref().is_some_and(|prefix| !prefix.is_empty());
    let Some(owner) = generated.then(|| meta.controller()).flatten() else { return meta.name.to_string() };
    let named = match &*owner.kind {
        "ReplicaSet" => ["pod-template-hash", "rollouts-pod-template-hash"]
            .into_iter()
            .filter_map(|label| meta.label(label).filter(|hash| !hash.is_empty()))
            .find(|hash| owner.name.ends_with(*hash))
            .map(|hash| owner.name.strip_suffix(&format!("-{hash}")).unwrap_or(&owner.name)),
        "ReplicationController" => meta.label("deploymentconfig").filter(|name| !name.is_empty()),
        "Job" => cron_job(&owner.name),
        _ => None,
    };
    match named.unwrap_or(&owner.name) {
        "" => meta.name.to_string(),
        name => name.to_owned(),
    }
}

/// The CronJob of a Job. Jobs of a CronJob end in their scheduled minute, eight to ten digits.
fn cron_job(job: &str) -> Option<&str> {
    let (name, time) = job.rsplit_once('-')?;
    ((8..=10).contains(&time.len()) && time.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty())
        .then_some(name)
}

/// The workload name of a WorkloadEntry: from a label, else its WorkloadGroup, else the entry.
pub(super) fn entry_workload_name(meta: &Meta) -> String {
    let name = meta.label(labels::WORKLOAD_NAME.name);
    let group = || meta.annotation(annotations::AUTO_REGISTRATION_GROUP.name).filter(|name| !name.is_empty());
    name.or_else(group).unwrap_or(&meta.name).to_owned()
}
