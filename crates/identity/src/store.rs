//! Where a root is kept: a few named files that change together.
//!
//! The shape is that of a Kubernetes Secret with its resource version. [`DirectoryStore`] keeps it on a disk; a client of
//! the API server implements [`RootStore`] for `istio-ca-secret` elsewhere.

mod directory;

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;

use zeroize::Zeroizing;

pub use directory::DirectoryStore;

/// The Secret of a self-signed root.
pub const CA_SECRET: &str = "istio-ca-secret";
/// The Secret it is kept in with `USE_CACERTS_FOR_SELF_SIGNED_CA`, which has a file [`ISTIO_GENERATED`] then.
///
/// [`ISTIO_GENERATED`]: crate::plugged::ISTIO_GENERATED
pub const CACERTS_SECRET: &str = "cacerts";
/// The type of both.
pub const CA_SECRET_TYPE: &str = "istio.io/ca-root";

/// Files by their names. What they hold is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Record(BTreeMap<String, Zeroizing<Vec<u8>>>);

impl Record {
    /// A file.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(|content| content.as_slice())
    }

    /// Sets a file.
    pub fn set(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.0.insert(name.to_owned(), Zeroizing::new(content.into()));
    }

    /// Removes a file.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The files in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, content)| (name.as_str(), content.as_slice()))
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// A record, and by what to tell whether it has changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The record.
    pub record: Record,
    /// Version of the content; opaque to everybody but the store.
    pub version: String,
}

/// Why a store does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct StoreError {
    /// Where the record is kept.
    pub place: String,
    /// What is wrong.
    pub reason: String,
}

/// An answer that may take a while.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps one record for several processes.
pub trait RootStore: Send + Sync {
    /// The record, if there is one.
    fn load(&self) -> Answer<'_, Option<Versioned>>;

    /// Puts a record where there is none; otherwise leaves the one that is there. Gives the one that is there now.
    fn create_if_absent<'a>(&'a self, record: &'a Record) -> Answer<'a, Versioned>;

    /// Puts a record in the place of the one of this version; `None` if that has changed since.
    fn compare_and_swap<'a>(&'a self, version: &'a str, record: &'a Record) -> Answer<'a, Option<Versioned>>;
}
