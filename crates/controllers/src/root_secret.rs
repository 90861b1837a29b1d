//! A self-signed root in a Secret of the cluster, shared by all replicas.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_identity::plugged::ISTIO_GENERATED;
use canopus_identity::store::{
    Answer, CA_SECRET_TYPE, CACERTS_SECRET, Record, RootStore, StoreError, Versioned,
};
use canopus_sources::kubernetes::{Cluster, SecretError, StoredSecret};
use zeroize::Zeroize;

/// Keeps the record of a root in a Secret.
pub struct SecretStore {
    cluster: Cluster,
    namespace: String,
    name: String,
}

impl SecretStore {
    /// The Secret of this name.
    pub fn new(cluster: Cluster, namespace: &str, name: &str) -> Self {
        Self { cluster, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn failed(&self, error: &SecretError) -> StoreError {
        StoreError { place: format!("Secret {}/{}", self.namespace, self.name), reason: error.to_string() }
    }

    async fn read(&self) -> Result<Option<Versioned>, StoreError> {
        let secret = self.cluster.secret(&self.namespace, &self.name).await;
        secret.map_err(|error| self.failed(&error))?.map(|secret| self.versioned(secret)).transpose()
    }

    fn versioned(&self, secret: StoredSecret) -> Result<Versioned, StoreError> {
        let mut record = Record::default();
        let data = Encoded(secret.data);
        for (key, value) in &data.0 {
            let decoded = BASE64_STANDARD.decode(value).map_err(|_| StoreError {
                place: format!("Secret {}/{}", self.namespace, self.name),
                reason: format!("{key} is not base64"),
            })?;
            record.set(key, decoded);
        }
        Ok(Versioned { record, version: secret.resource_version })
    }

    fn data(&self, record: &Record) -> Encoded {
        let encoded = record.iter().map(|(key, value)| (key.to_owned(), BASE64_STANDARD.encode(value)));
        // Parity: this tells a Secret that was written here from one that somebody plugged in.
        let mark = (self.name == CACERTS_SECRET).then(|| (ISTIO_GENERATED.to_owned(), String::new()));
        Encoded(encoded.chain(mark).collect())
    }
}

/// The values of a Secret in base64, overwritten when they are not needed any more: there are keys among them.
struct Encoded(BTreeMap<String, String>);

impl Drop for Encoded {
    fn drop(&mut self) {
        self.0.values_mut().for_each(Zeroize::zeroize);
    }
}

impl RootStore for SecretStore {
    fn load(&self) -> Answer<'_, Option<Versioned>> {
        Box::pin(self.read())
    }

    fn create_if_absent<'a>(&'a self, record: &'a Record) -> Answer<'a, Versioned> {
        Box::pin(async move {
            let data = self.data(record);
            let made = self.cluster.create_secret(&self.namespace, &self.name, CA_SECRET_TYPE, &data.0).await;
            match made.map_err(|error| self.failed(&error))? {
                Some(secret) => self.versioned(secret),
                None => self.read().await?.ok_or_else(|| StoreError {
                    place: format!("Secret {}/{}", self.namespace, self.name),
                    reason: "it was removed as soon as it was made".to_owned(),
                }),
            }
        })
    }

    fn compare_and_swap<'a>(&'a self, version: &'a str, record: &'a Record) -> Answer<'a, Option<Versioned>> {
        Box::pin(async move {
            let data = self.data(record);
            let replaced = self.cluster.replace_secret(&self.namespace, &self.name, version, &data.0).await;
            let replaced = replaced.map_err(|error| self.failed(&error))?;
            replaced.map(|secret| self.versioned(secret)).transpose()
        })
    }
}
