//! Admission: what the control plane answers when the API server asks about an object that is about to be stored.
//!
//! Owns reading admission reviews and writing the answers to them, as pure functions of the bytes of a request. It must
//! not know servers: whoever listens hands requests in, sends answers out, and counts their outcomes.

pub mod validation;
