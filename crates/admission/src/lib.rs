//! Admission: what the control plane answers when the API server asks about an object that is about to be stored.
//!
//! Owns reading admission reviews and writing the answers to them, as pure functions of the bytes of a request:
//! [`validation`] refuses objects that make no sense, [`injection`] adds proxies to pods, [`selection`] tells which
//! webhook a pod is sent to. It must not know servers nor clients: whoever listens hands requests in, sends answers out,
//! and counts their outcomes.

mod http;
pub mod injection;
mod review;
pub mod selection;
pub mod validation;
