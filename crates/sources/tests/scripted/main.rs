//! An API server that misbehaves on purpose: slow, forgetful, garbled, set back in time.
//!
//! A real API server cannot be made to do these things at a given moment; the ones it can do are tested with a real one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod faults;
mod outage;
mod rewind;
mod start;
