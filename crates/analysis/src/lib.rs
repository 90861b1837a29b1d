//! Analysis: what is wrong with the objects of a mesh together, in Istio's words and codes.
//!
//! A [`World`] holds decoded objects with the documents they were read from. An [`Analyzer`] is a pure function over it that
//! reports [`Message`]s of the [`catalogue`]; [`analyze`] runs a set of them, drops what users suppressed, and sorts the rest.
//! Files, a cluster and a control plane fill the same world, so they all get the same answer.
//!
//! What generation itself finds out (`mesh::diagnostic`) is not analyzed again: [`generation`] turns those diagnostics into
//! messages. Modules in the order to read them: [`message`], [`catalogue`], [`world`], [`analyzer`], then `analyzers` by kind.
//!
//! The crate does no I/O. It reads one clock, to tell whether a gateway's certificate has expired.

pub mod analyzer;
mod analyzers;
pub mod catalogue;
mod findings;
pub mod generation;
pub mod message;
pub mod suppression;
pub mod world;

pub use analyzer::{Analyzer, Outcome, Selection, analyze};
pub use message::{Level, Message};
pub use suppression::Suppression;
pub use world::{Reference, Resource, World};
