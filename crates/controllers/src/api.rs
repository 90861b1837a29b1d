//! The operations of an API server that applying needs, as a trait so that appliers can be tested without one.

use std::future::Future;

use canopus_api::ObjectKey;
use canopus_sources::kubernetes::{ApiError, ApplyOptions, Cluster};
use serde_json::Value;

use crate::FIELD_MANAGER;

/// Reads and writes single objects.
pub trait Api: Send + Sync + 'static {
    /// An object as it is stored.
    fn read(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Value>, ApiError>> + Send;

    /// Applies fields on the server's side.
    fn apply(
        &self,
        key: &ObjectKey,
        fields: &Value,
        force: bool,
        dry_run: bool,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;

    /// Replaces the status of an object if it still has the resource version of `object`.
    fn replace_status(
        &self,
        key: &ObjectKey,
        object: &Value,
        dry_run: bool,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
}

impl Api for Cluster {
    async fn read(&self, key: &ObjectKey) -> Result<Option<Value>, ApiError> {
        self.read_object(key).await
    }

    async fn apply(
        &self,
        key: &ObjectKey,
        fields: &Value,
        force: bool,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let options = ApplyOptions { manager: FIELD_MANAGER, force, dry_run };
        self.apply_object(key, fields, options).await.map(drop)
    }

    async fn replace_status(&self, key: &ObjectKey, object: &Value, dry_run: bool) -> Result<(), ApiError> {
        self.replace_object(key, "status", object, dry_run).await.map(drop)
    }
}
