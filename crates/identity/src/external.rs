//! Authorities elsewhere: this process decides who may have a certificate, another one signs it.
//!
//! What comes back is not taken on trust. [`check_chain`] holds it to what was asked for: the key of the request, the names
//! of the caller and no others, and a chain that leads to a root that is handed out.

use std::future::Future;
use std::pin::Pin;

use rustls_pki_types::UnixTime;

use crate::authority::{Lifetimes, Order, SignError, lifetime};
use crate::bundle;
use crate::certificate::Certificate;
use crate::request::Request;

/// A signature that may take a while.
pub type Signature<'a> = Pin<Box<dyn Future<Output = Result<Vec<String>, SignError>> + Send + 'a>>;

/// Signs orders elsewhere.
pub trait ExternalAuthority: Send + Sync {
    /// Has an order signed; returns the chain as [`Authority::sign`](crate::authority::Authority::sign) does.
    fn sign<'a>(&'a self, order: &'a Order, now: UnixTime) -> Signature<'a>;
}

/// Checks an order before it is handed on: signers copy names from the request, so these must be the caller's own.
pub fn check_order(order: &Order, lifetimes: Lifetimes) -> Result<Request, SignError> {
    let request = Request::from_pem(&order.request)?;
    if !request.asks_only_for(&order.identities) {
        return Err(SignError::Names);
    }
    lifetime(lifetimes, order.seconds)?;
    Ok(request)
}

/// Checks a chain, leaf first, that a signer gave for a request; the chain as it is answered, with the roots at its end.
///
/// `known_roots` are those that were configured for the signer; if there are none, a root in the chain itself will do.
pub fn check_chain(
    request: &Request,
    identities: &[String],
    chain: &[u8],
    known_roots: &[u8],
    now: UnixTime,
) -> Result<Vec<String>, SignError> {
    let refused = |reason: String| SignError::External(format!("the signer's answer is refused: {reason}"));
    let read = |text: &[u8]| Certificate::all_from_pem(text).map_err(|error| refused(error.to_string()));
    let (chain, known) = (read(chain)?, read(known_roots)?);
    let (leaf, rest) =
        chain.split_first().ok_or_else(|| refused("there is no certificate in it".to_owned()))?;
    if leaf.public_key() != request.public_key() {
        return Err(refused("the certificate is for another key".to_owned()));
    }
    let is_own = |name: &String| identities.contains(name);
    if leaf.uris().is_empty() || !leaf.uris().iter().all(is_own) || !leaf.dns_names().is_empty() {
        return Err(refused("the certificate has other names than the caller".to_owned()));
    }
    let (own_roots, between): (Vec<&Certificate>, Vec<&Certificate>) =
        rest.iter().partition(|certificate| certificate.is_self_issued());
    let roots: Vec<&Certificate> = if known.is_empty() { own_roots } else { known.iter().collect() };
    if roots.is_empty() {
        let text = "failed to find root cert from either signed cert-chain or mesh config";
        return Err(SignError::External(text.to_owned()));
    }
    let intermediates: Vec<_> = between.iter().map(|certificate| certificate.der().clone()).collect();
    bundle::verify(leaf.der(), &intermediates, roots.iter().map(|root| root.der()), now)
        .map_err(|error| refused(error.to_string()))?;
    let pem = |certificate: &Certificate| certificate.to_pem().map_err(|error| refused(error.to_string()));
    let mut answer = vec![pem(leaf)?];
    for certificate in between {
        answer.push(pem(certificate)?);
    }
    answer.push(roots.into_iter().map(pem).collect::<Result<String, _>>()?);
    Ok(answer)
}
