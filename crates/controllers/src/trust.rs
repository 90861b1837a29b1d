//! The roots that are handed out, as an input of the engine, so that what depends on them is computed like anything else.

use std::sync::Arc;

use canopus_engine::Input;

/// What verifies the control plane and its workloads: one value, absent while there is no authority.
pub struct DistributedRoots;

/// The value of [`DistributedRoots`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// The root certificates in PEM.
    pub roots: Arc<str>,
    /// The revocation lists in PEM; empty if there are none.
    pub crl: Arc<str>,
}

impl Input for DistributedRoots {
    const NAME: &'static str = "distributed_roots";
    type Key = ();
    type Value = Roots;
    type Index = ();
}

/// Whether the API server was seen to ask this control plane's validation webhook; absent until it was.
pub struct ValidationProof;

impl Input for ValidationProof {
    const NAME: &'static str = "validation_proof";
    type Key = ();
    type Value = bool;
    type Index = ();
}
