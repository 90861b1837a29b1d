//! Where a lock is kept: an annotation of a ConfigMap, or a Lease.
//!
//! Parity: istiod has most of its locks in ConfigMaps, for the sake of its older versions, and those that each revision has
//! for itself in Leases. A replica must look where the others look.

use std::future::Future;

use canopus_api::{Kind, ObjectKey};
use canopus_sources::kubernetes::{ApiError, Cluster};
use serde_json::{Value, json};

use super::candidate::Record;

const ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";

const HOLDER_KEY: &str = "leader.istio.io/holder-key";

/// A lock as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredLock {
    /// What it says.
    pub record: Record,
    /// The object it is part of, with its resource version.
    pub object: Value,
}

/// Stores a lock. A write succeeds only if nobody wrote since the lock was loaded.
pub trait Lock: Send + Sync + 'static {
    /// Names the lock in the log.
    fn name(&self) -> String;

    /// The lock, if there is one.
    fn load(&self) -> impl Future<Output = Result<Option<StoredLock>, String>> + Send;

    /// Creates the lock; whether nobody was faster.
    fn create(&self, record: &Record) -> impl Future<Output = Result<bool, String>> + Send;

    /// Replaces what was loaded (compare-and-swap); false if another writer was faster.
    fn replace(
        &self,
        held: &StoredLock,
        record: &Record,
    ) -> impl Future<Output = Result<bool, String>> + Send;
}

/// The kind of object a lock is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// An annotation of a ConfigMap.
    ConfigMap,
    /// A Lease.
    Lease,
}

/// A lock in a cluster.
pub struct ClusterLock {
    cluster: Cluster,
    kind: LockKind,
    key: ObjectKey,
}

impl ClusterLock {
    /// The lock of this name in a namespace.
    pub fn new(cluster: Cluster, kind: LockKind, namespace: &str, name: &str) -> Self {
        let object = match kind {
            LockKind::ConfigMap => Kind::ConfigMap,
            LockKind::Lease => Kind::Lease,
        };
        Self { cluster, kind, key: ObjectKey::new(object, namespace, name) }
    }
}

impl Lock for ClusterLock {
    fn name(&self) -> String {
        self.key.to_string()
    }

    async fn load(&self) -> Result<Option<StoredLock>, String> {
        let object = self.cluster.read_object(&self.key).await.map_err(|error| error.to_string())?;
        Ok(object.map(|object| StoredLock { record: read(self.kind, &object), object }))
    }

    async fn create(&self, record: &Record) -> Result<bool, String> {
        let info = self.key.kind.info();
        let mut object = json!({
            "apiVersion": info.api_version(),
            "kind": info.kind,
            "metadata": {"name": &*self.key.name, "namespace": &*self.key.namespace},
        });
        write(self.kind, record, &mut object);
        was_first(self.cluster.create_object(&self.key, &object).await)
    }

    async fn replace(&self, held: &StoredLock, record: &Record) -> Result<bool, String> {
        let mut object = held.object.clone();
        write(self.kind, record, &mut object);
        was_first(self.cluster.replace_object(&self.key, "", &object, false).await)
    }
}

fn was_first(written: Result<Value, ApiError>) -> Result<bool, String> {
    match written {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// What an object says of the lock. One that says nothing, or nothing that can be read, is held by nobody.
fn read(kind: LockKind, object: &Value) -> Record {
    let annotations = &object["metadata"]["annotations"];
    match kind {
        LockKind::ConfigMap => {
            let text = annotations[ANNOTATION].as_str().unwrap_or_default();
            serde_json::from_str(text).unwrap_or_default()
        }
        LockKind::Lease => {
            let spec = &object["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            Record {
                holder_identity: text(&spec["holderIdentity"]),
                holder_key: text(&annotations[HOLDER_KEY]),
                lease_duration_seconds: spec["leaseDurationSeconds"].as_u64().unwrap_or_default(),
                acquire_time: text(&spec["acquireTime"]),
                renew_time: text(&spec["renewTime"]),
                leader_transitions: spec["leaseTransitions"].as_u64().unwrap_or_default(),
            }
        }
    }
}

fn write(kind: LockKind, record: &Record, object: &mut Value) {
    match kind {
        LockKind::ConfigMap => {
            object["metadata"]["annotations"][ANNOTATION] = json!(json!(record).to_string());
        }
        LockKind::Lease => {
            object["spec"]["holderIdentity"] = json!(record.holder_identity);
            object["spec"]["leaseDurationSeconds"] = json!(record.lease_duration_seconds);
            object["spec"]["acquireTime"] = json!(record.acquire_time);
            object["spec"]["renewTime"] = json!(record.renew_time);
            object["spec"]["leaseTransitions"] = json!(record.leader_transitions);
            if !record.holder_key.is_empty() {
                object["metadata"]["annotations"][HOLDER_KEY] = json!(record.holder_key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            holder_identity: "istiod-1".into(),
            holder_key: "default".into(),
            lease_duration_seconds: 30,
            acquire_time: "2026-01-01T00:00:00.000000Z".into(),
            renew_time: "2026-01-01T00:00:10.000000Z".into(),
            leader_transitions: 3,
        }
    }

    #[test]
    fn record_survives_both_kinds_of_object() {
        for kind in [LockKind::ConfigMap, LockKind::Lease] {
            let mut object = json!({"metadata": {"name": "lock"}});
            write(kind, &record(), &mut object);
            assert_eq!(read(kind, &object), record(), "{object}");
        }
    }

    #[test]
    fn lock_is_read_as_istiod_writes_it() {
        let text = r#"{"holderIdentity":"istiod-7","holderKey":"default","leaseDurationSeconds":30,
            "acquireTime":"2026-01-01T00:00:00Z","renewTime":"2026-01-01T00:00:00Z","leaderTransitions":1}"#;
        let object = json!({"metadata": {"annotations": {ANNOTATION: text}}});
        let read = read(LockKind::ConfigMap, &object);
        assert_eq!((read.holder_identity.as_str(), read.leader_transitions), ("istiod-7", 1));
    }

    #[test]
    fn lock_is_free_when_it_cannot_be_read() {
        for object in [json!({}), json!({"metadata": {"annotations": {ANNOTATION: "{"}}})] {
            assert_eq!(read(LockKind::ConfigMap, &object), Record::default());
            assert_eq!(read(LockKind::Lease, &object), Record::default());
        }
    }
}
