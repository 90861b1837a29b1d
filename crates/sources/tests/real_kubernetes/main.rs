//! A real API server as a source: at every time the world is what a fresh read says.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod follow;
mod mirror;
mod outage;
mod restore;
mod review;
mod select;
mod token;
