//! The threads that sign.
//!
//! Signing takes a processor for a millisecond where keys are RSA. It has threads of its own, fewer than there are
//! processors, so that a mesh that renews all its certificates at once delays nothing but certificates.

use std::sync::Arc;
use std::thread::available_parallelism;

use canopus_identity::authority::{Authority, Order, SignError};
use canopus_identity::external::ExternalAuthority;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use rustls::pki_types::UnixTime;
use tokio::sync::{Semaphore, oneshot};

/// How many requests may wait. More than a second's worth would only be answered after their callers have given up.
const WAITING: usize = 4096;

/// Too many requests are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many certificate requests are waiting; try again")]
pub struct Busy;

/// Signs requests, a few at a time.
#[derive(Clone)]
pub struct Signers {
    authority: Arc<Authority>,
    threads: Arc<ThreadPool>,
    places: Arc<Semaphore>,
    external: Option<Arc<dyn ExternalAuthority>>,
}

impl Signers {
    /// Threads that sign for an authority.
    pub fn new(authority: Arc<Authority>) -> Result<Self, ThreadPoolBuildError> {
        let count = available_parallelism().map_or(1, |count| count.get() / 2).max(1);
        let threads = ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|number| format!("signer {number}"))
            .build()?;
        Ok(Self {
            authority,
            threads: Arc::new(threads),
            places: Arc::new(Semaphore::new(WAITING)),
            external: None,
        })
    }

    /// Hands orders on to an external authority from now on.
    #[must_use]
    pub fn handing_on(self, external: Arc<dyn ExternalAuthority>) -> Self {
        Self { external: Some(external), ..self }
    }

    /// Queues an order for signing and waits for the chain.
    pub async fn sign(&self, order: Order) -> Result<Result<Vec<String>, SignError>, Busy> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Busy)?;
        if let Some(external) = &self.external {
            return Ok(external.sign(&order, UnixTime::now()).await);
        }
        let (sender, signed) = oneshot::channel();
        let authority = Arc::clone(&self.authority);
        self.threads.spawn(move || {
            // A caller who is gone needs no certificate.
            if !sender.is_closed() {
                let _ = sender.send(authority.sign(&order, UnixTime::now()));
            }
            drop(place);
        });
        signed.await.map_err(|_| Busy)
    }
}
