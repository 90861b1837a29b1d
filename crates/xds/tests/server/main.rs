//! The server with real streams over loopback, and with none at all.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod abuse;
mod bounds;
mod conversation;
mod ending;
mod flood;
mod panic;
mod pressure;
mod toy;
