//! The state and its keys as files of a record.
//!
//! A self-signed root stands where istiod has it, so either can follow the other: `ca-cert.pem` and `ca-key.pem` issue.
//! What a rotation needs beside them is in files that istiod does not look at.

use rustls_pki_types::UnixTime;
use zeroize::Zeroizing;

use super::state::{FORMAT, Root, State};
use crate::bundle::{Bundle, BundleError, Parts};
use crate::certificate::{Certificate, CertificateError};
use crate::key::{KeyError, SigningKey};
use crate::pem::PemError;
use crate::plugged::{CA_CERT, CA_KEY, CERT_CHAIN, ROOT_CERT};
use crate::store::Record;

/// The state, as JSON.
pub const STATE: &str = "canopus-rotation.json";
/// The root that will issue next.
pub const NEXT_CERT: &str = "canopus-next-cert.pem";
/// File name of the next root's private key.
pub const NEXT_KEY: &str = "canopus-next-key.pem";
/// A file of istiod's that is always empty.
const UNUSED_KEY: &str = "key.pem";

/// Why a record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A file is not there.
    #[error("{0} is not there")]
    Missing(&'static str),
    /// A certificate cannot be read.
    #[error("{file}: {error}")]
    Certificate {
        /// The file.
        file: &'static str,
        /// Why.
        error: CertificateError,
    },
    /// The state cannot be read.
    #[error("{STATE}: {0}")]
    State(String),
    /// The state is of a later version of this program.
    #[error("{STATE} has format {0}, and this version knows up to {FORMAT}; use the version that wrote it")]
    Later(u32),
    /// The state speaks of a root that is not in the record.
    #[error("{STATE} names root {0}, which is in none of the files")]
    UnknownRoot(String),
    /// A key or certificate cannot be encoded.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The key cannot be encoded.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A root whose key is at hand.
#[derive(Clone)]
pub(super) struct Keyed {
    pub(super) certificate: Certificate,
    pub(super) key: Zeroizing<Vec<u8>>,
}

impl Keyed {
    pub(super) fn new(certificate: Certificate, key: &SigningKey) -> Result<Self, KeyError> {
        Ok(Self { certificate, key: Zeroizing::new(key.to_pem()?.as_bytes().to_vec()) })
    }

    fn read(
        record: &Record,
        certificate: &'static str,
        key: &'static str,
    ) -> Result<Option<Self>, RecordError> {
        let Some(text) = record.get(certificate).filter(|text| !text.is_empty()) else { return Ok(None) };
        let read = Certificate::from_pem(text)
            .map_err(|error| RecordError::Certificate { file: certificate, error })?;
        let key = record.get(key).ok_or(RecordError::Missing(key))?;
        Ok(Some(Self { certificate: read, key: Zeroizing::new(key.to_vec()) }))
    }
}

/// What a record holds.
pub(super) struct Contents {
    pub(super) state: State,
    pub(super) issuer: Keyed,
    next: Option<Keyed>,
    /// Every root of the state, the issuer first.
    roots: Vec<Certificate>,
}

impl Contents {
    /// Starts with one root and no rotation.
    pub(super) fn new(issuer: Keyed) -> Self {
        let state = State::new(Root::from_certificate(&issuer.certificate));
        Self { state, roots: vec![issuer.certificate.clone()], issuer, next: None }
    }

    /// Reads a record. `retirement` is when certificates of now have expired, should somebody else have replaced the issuer.
    pub(super) fn read(record: &Record, retirement: u64) -> Result<Self, RecordError> {
        let issuer = Keyed::read(record, CA_CERT, CA_KEY)?.ok_or(RecordError::Missing(CA_CERT))?;
        let Some(state) = read_state(record)? else { return Ok(Self::new(issuer)) };
        let next = Keyed::read(record, NEXT_CERT, NEXT_KEY)?;
        let found = Root::from_certificate(&issuer.certificate);
        let state = if state.issuer == found.id { state } else { state.taken_over(found, retirement) };
        Self::assemble(state, issuer, next, handed_out(record)?)
    }

    /// Every root of the state, the issuer first.
    pub(super) fn roots(&self) -> &[Certificate] {
        &self.roots
    }

    /// The same after a step.
    pub(super) fn after(&self, state: State, generated: Option<Keyed>) -> Result<Self, RecordError> {
        let mut keyed: Vec<Keyed> = [self.next.clone(), generated].into_iter().flatten().collect();
        keyed.push(self.issuer.clone());
        let find = |id: &str| keyed.iter().find(|one| one.certificate.fingerprint() == id).cloned();
        let issuer = find(&state.issuer).ok_or_else(|| RecordError::UnknownRoot(state.issuer.clone()))?;
        let next = state.next().and_then(|root| find(&root.id));
        let known = keyed.iter().map(|one| one.certificate.clone()).chain(self.roots.iter().cloned());
        Self::assemble(state, issuer, next, known.collect())
    }

    fn assemble(
        state: State,
        issuer: Keyed,
        next: Option<Keyed>,
        mut known: Vec<Certificate>,
    ) -> Result<Self, RecordError> {
        known.extend([&issuer].into_iter().chain(&next).map(|one| one.certificate.clone()));
        let find = |id: &str| known.iter().find(|one| one.fingerprint() == id).cloned();
        let others = state.roots.iter().map(|root| root.id.as_str()).filter(|id| *id != state.issuer);
        let ids: Vec<&str> = [state.issuer.as_str()].into_iter().chain(others).collect();
        let roots = ids.into_iter().map(|id| find(id).ok_or_else(|| RecordError::UnknownRoot(id.to_owned())));
        Ok(Self { roots: roots.collect::<Result<_, _>>()?, state, issuer, next })
    }

    /// Writes everything into a record; what is of no concern to it stays as it was.
    pub(super) fn write(&self, mut record: Record) -> Result<Record, RecordError> {
        record.set(CA_CERT, self.issuer.certificate.to_pem()?);
        record.set(CA_KEY, self.issuer.key.to_vec());
        record.set(CERT_CHAIN, "");
        record.set(UNUSED_KEY, "");
        record.set(ROOT_CERT, self.roots_pem()?);
        match &self.next {
            Some(next) => {
                record.set(NEXT_CERT, next.certificate.to_pem()?);
                record.set(NEXT_KEY, next.key.to_vec());
            }
            None => {
                record.remove(NEXT_CERT);
                record.remove(NEXT_KEY);
            }
        }
        let state = serde_json::to_string_pretty(&self.state)
            .map_err(|error| RecordError::State(error.to_string()))?;
        record.set(STATE, state);
        Ok(record)
    }

    /// What to sign with and hand out in this state, with roots from elsewhere beside its own.
    pub(super) fn bundle(&self, more_roots: &[u8], now: UnixTime) -> Result<Bundle, BundleError> {
        let mut roots = self.roots_pem()?.into_bytes();
        roots.extend(more_roots);
        let certificate = self.issuer.certificate.to_pem()?.into_bytes();
        let parts = Parts { certificate, key: self.issuer.key.clone(), roots, ..Parts::default() };
        Bundle::new(&parts, now)
    }

    fn roots_pem(&self) -> Result<String, PemError> {
        self.roots.iter().map(Certificate::to_pem).collect()
    }
}

fn read_state(record: &Record) -> Result<Option<State>, RecordError> {
    let Some(text) = record.get(STATE) else { return Ok(None) };
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let refused = |error: serde_json::Error| RecordError::State(error.to_string());
    let Format { format } = serde_json::from_slice(text).map_err(refused)?;
    if format > FORMAT {
        return Err(RecordError::Later(format));
    }
    serde_json::from_slice(text).map(Some).map_err(refused)
}

fn handed_out(record: &Record) -> Result<Vec<Certificate>, RecordError> {
    let text = record.get(ROOT_CERT).unwrap_or_default();
    Certificate::all_from_pem(text).map_err(|error| RecordError::Certificate { file: ROOT_CERT, error })
}
