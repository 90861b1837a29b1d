//! A control plane of our own in the world that Istio's was recorded in.
//!
//! Everything but the sockets is the product's: its engine, its sessions, its routes. Requests are handed to the router and
//! messages to the sessions directly, so that they may come from any address and prove any identity.

mod client;
mod plane;
mod script;
mod world;

pub(super) use client::{Client, Response};
pub(super) use plane::{Identity, Plane};
pub(super) use script::{Action, Script};
pub(super) use world::{RecordedProxy, World};
