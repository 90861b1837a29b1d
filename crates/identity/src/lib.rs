//! The certificate authority of the mesh: what istiod's Citadel does.
//!
//! The core is pure: bytes and a moment in time go in, certificates and decisions come out.
//!
//! ```text
//!   request (CSR) ─┐
//!                  ├─► service ─► authority ─► issue ─► leaf, intermediates, roots
//!   caller ────────┘                  ▲
//!                                     │ bundle: signing certificate and key, chain, roots, CRL
//!            ┌────────────────────────┼───────────────────────┐
//!         plugged                 self_signed              rotation
//!     (ROOT_CA_DIR files)      (made and renewed)    (state machine over a store)
//! ```
//!
//! Start with [`service::CertificateService`], which answers `CreateCertificate`, and [`rotation`], which replaces a root
//! while the mesh runs. I/O is at the rim: [`store`] keeps the root, [`watch`] follows plugged-in files.
//!
//! Invariants: names in a certificate come from the authenticated caller, never from the request; private keys are zeroised
//! and have no textual form but the PEM that is written to the store; a bundle is used only after a certificate issued under
//! it has been verified against its roots.
//!
//! This crate knows nothing of Envoy, of the mesh model, or of a Kubernetes client.

pub mod authority;
pub mod bundle;
pub mod certificate;
pub mod csr;
pub mod external;
pub mod forecast;
pub mod issue;
pub mod issued;
pub mod key;
pub mod pem;
pub mod plugged;
pub mod request;
pub mod revocation;
pub mod rotation;
pub mod self_signed;
pub mod service;
mod signature;
pub mod store;
pub mod token;
pub mod trust;
pub mod watch;

pub use authority::{Authority, Lifetimes, SignError, SignErrorKind};
pub use bundle::{Bundle, BundleError};
pub use certificate::Certificate;
pub use key::SigningKey;
pub use signature::SignatureError;
