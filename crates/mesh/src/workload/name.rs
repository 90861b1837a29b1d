//! The name a workload has in telemetry: that of what a user deployed, not of one replica.

use canopus_api::{Meta, annotations, labels};

/// The name of what a pod belongs to: a label's value, its Deployment, its controller, or the pod itself.
pub(super) fn pod_workload_name(meta: &Meta) -> String {
    if let Some(said) = meta.label(labels::WORKLOAD_NAME.name) {
        return said.to_owned();
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

/// The CronJob of a job: jobs are named after the minute they are for, in eight to ten digits.
fn cron_job(job: &str) -> Option<&str> {
    let (name, time) = job.rsplit_once('-')?;
    ((8..=10).contains(&time.len()) && time.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty())
        .then_some(name)
}

/// The name of what a WorkloadEntry belongs to: a label's value, the group it registered for, or the entry itself.
pub(super) fn entry_workload_name(meta: &Meta) -> String {
    let said = meta.label(labels::WORKLOAD_NAME.name);
    let group = || meta.annotation(annotations::AUTO_REGISTRATION_GROUP.name).filter(|name| !name.is_empty());
    said.or_else(group).unwrap_or(&meta.name).to_owned()
}
