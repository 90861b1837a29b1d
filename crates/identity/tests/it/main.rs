//! The authority from outside: what it issues as others judge it, what it keeps, and how it lives on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod external;
mod issuing;
mod negative;
mod openssl;
mod plugged;
mod replicas;
mod rotation;
mod service;
mod store;
mod trust;
