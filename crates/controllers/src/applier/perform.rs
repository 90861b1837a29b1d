//! Performs one write of a plan on the API server.

use canopus_api::{Object, Options};
use canopus_base::tree::Node;
use canopus_sources::kubernetes::{ApiError, ApplyOptions};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::declared::{declarers, keepers};
use super::managed;
use crate::FIELD_MANAGER;
use crate::api::Api;
use crate::controller::{Change, Observed, Ownership, Write};

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server took it.
    Written,
    /// The object is no longer what the write was computed from; the next plan will know.
    Outdated,
    /// These managers declare the fields, so the fields are left alone.
    Declared(Vec<String>),
    /// The object was not made by the control plane, and is left alone.
    Foreign,
    /// The server took it and kept nothing of it, as servers do with metadata that comes with a status.
    Ignored,
    /// The control plane may not write this object.
    Forbidden(String),
    /// The write failed otherwise.
    Failed(String),
    /// This process does not lead any more.
    NotLeading,
}

impl Outcome {
    /// The value of the label `result` of metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Outdated => "outdated",
            Self::Declared(_) => "declared_by_others",
            Self::Foreign => "foreign",
            Self::Ignored => "ignored",
            Self::Forbidden(_) => "forbidden",
            Self::Failed(_) => "failed",
            Self::NotLeading => "not_leading",
        }
    }
}

impl From<ApiError> for Outcome {
    fn from(error: ApiError) -> Self {
        match error {
            error if error.is_forbidden() => Self::Forbidden(error.message),
            error if error.is_conflict() => Self::Outdated,
            error => Self::Failed(error.message),
        }
    }
}

/// Makes a write; what became of it, and the state it left a managed object in.
pub(super) async fn perform<A: Api>(api: &A, write: &Write, dry_run: bool) -> (Outcome, Option<Observed>) {
    let key = &write.target;
    let done = match &write.change {
        Change::Apply { fields, ownership } => apply(api, write, fields, *ownership, dry_run).await,
        Change::Status { seen, status } => replace_status(api, write, seen, status, dry_run).await,
        Change::ApplyPart { fields, manager, subresource } => {
            let options = ApplyOptions { manager, subresource, force: true, dry_run };
            let fields = with_times(fields.clone(), Timestamp::now());
            let stored = api.apply(key, &fields, options).await;
            stored.map(|stored| if is_kept(&fields, &stored) { Outcome::Written } else { Outcome::Ignored })
        }
        Change::Manage { fields, manager, mark, .. } => {
            return match manage(api, write, (fields, *mark), manager, dry_run).await {
                Ok(done) => done,
                Err(error) => (error.into(), None),
            };
        }
        Change::Create { object } => match api.create(key, object, dry_run).await {
            // Another writer created the object first.
            Err(error) if error.is_conflict() => Ok(Outcome::Written),
            done => done.map(|()| Outcome::Written),
        },
        Change::Patch { operations } => match api.patch(key, "", operations, dry_run).await {
            Err(error) if error.is_unprocessable() => Ok(Outcome::Outdated),
            done => done.map(|()| Outcome::Written),
        },
        Change::Delete { version } => api.delete(key, version, dry_run).await.map(|()| Outcome::Written),
    };
    (done.unwrap_or_else(Outcome::from), None)
}

async fn manage<A: Api>(
    api: &A,
    write: &Write,
    (fields, mark): (&Value, &str),
    manager: &str,
    dry_run: bool,
) -> Result<(Outcome, Option<Observed>), ApiError> {
    let stored = api.read(&write.target).await?;
    let Some(fields) = managed::adopt(stored.as_ref(), fields, mark) else {
        return Ok((Outcome::Foreign, None));
    };
    let options = ApplyOptions { manager, subresource: "", force: true, dry_run };
    let after = api.apply(&write.target, &fields, options).await?;
    let after = Object::decode_as(write.target.kind, &Node::from(after), Options::watch());
    Ok((Outcome::Written, after.ok().map(|after| Observed::new(after.value.meta()))))
}

async fn apply<A: Api>(
    api: &A,
    write: &Write,
    fields: &Value,
    ownership: Ownership,
    dry_run: bool,
) -> Result<Outcome, ApiError> {
    let key = &write.target;
    let options = |force| ApplyOptions { manager: FIELD_MANAGER, subresource: "", force, dry_run };
    if ownership == Ownership::Take {
        return api.apply(key, fields, options(true)).await.map(|_| Outcome::Written);
    }
    let conflict = match api.apply(key, fields, options(false)).await {
        Err(error) if error.is_conflict() => error,
        done => return done.map(|_| Outcome::Written),
    };
    let Some(stored) = api.read(key).await? else { return Ok(Outcome::Outdated) };
    let declared = declarers(&stored, fields, &keepers(&conflict));
    if !declared.is_empty() {
        return Ok(Outcome::Declared(declared));
    }
    api.apply(key, fields, options(true)).await.map(|_| Outcome::Written)
}

async fn replace_status<A: Api>(
    api: &A,
    write: &Write,
    seen: &Object,
    status: &Value,
    dry_run: bool,
) -> Result<Outcome, ApiError> {
    let key = &write.target;
    let status = with_times(status.clone(), Timestamp::now());
    // One request where the object is as the watch last showed it. Where it is not, or where it is served under another version or
    // the role has no such right, the longer way tells what is the matter.
    let operations = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": seen.meta().resource_version},
        {"op": "add", "path": "/status", "value": status},
    ]);
    match api.patch(key, "status", &operations, dry_run).await {
        Err(error) if matches!(error.code, 403 | 404 | 409 | 422) => {}
        done => return done.map(|()| Outcome::Written),
    }
    let Some(mut stored) = api.read(key).await? else { return Ok(Outcome::Outdated) };
    let read = Object::decode_as(key.kind, &Node::from(stored.clone()), Options::watch());
    // Other writers share the status: what they wrote meanwhile must be part of what is computed.
    if !read.is_ok_and(|read| read.value.same_but_for_version(seen)) {
        return Ok(Outcome::Outdated);
    }
    stored["status"] = status;
    // The server compares the resource version that was read once more.
    api.replace_status(key, &stored, dry_run).await.map(|()| Outcome::Written)
}

/// Whether the metadata that was applied is part of what is stored. Servers fill in and reorder what is in a status, so that is
/// left to the next plan.
fn is_kept(fields: &Value, stored: &Value) -> bool {
    fields.get("metadata").is_none_or(|metadata| is_part(metadata, &stored["metadata"]))
}

fn is_part(fields: &Value, stored: &Value) -> bool {
    match fields {
        Value::Object(fields) => fields.iter().all(|(name, field)| is_part(field, &stored[name.as_str()])),
        field => field == stored,
    }
}

/// The status with this time in conditions that have turned.
fn with_times(mut status: Value, now: Timestamp) -> Value {
    let text = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    set_times(&mut status, &text);
    status
}

fn set_times(value: &mut Value, now: &Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| set_times(item, now)),
        Value::Object(fields) => {
            for (name, field) in fields {
                if let (true, Value::Array(conditions)) = (name == "conditions", &mut *field) {
                    for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
                        condition.entry("lastTransitionTime").or_insert_with(|| now.clone());
                    }
                } else {
                    set_times(field, now);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_get_a_time_when_they_have_turned() {
        let kept = "2026-01-01T00:00:00Z";
        let status = json!({"parents": [{"conditions": [
            {"type": "Accepted", "lastTransitionTime": kept}, {"type": "ResolvedRefs"},
        ]}], "conditions": [{"type": "Programmed"}]});
        let written = with_times(status, Timestamp::from_second(1_800_000_000).unwrap());
        assert_eq!(written["parents"][0]["conditions"][0]["lastTransitionTime"], kept);
        assert_eq!(written["parents"][0]["conditions"][1]["lastTransitionTime"], "2027-01-15T08:00:00Z");
        assert_eq!(written["conditions"][0]["lastTransitionTime"], "2027-01-15T08:00:00Z");
    }
}
