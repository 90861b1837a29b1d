//! The command line tool.
//!
//! Owns commands, their output and their exit codes. Called by the name `istioctl`, it takes istioctl's flags and prints its
//! texts, so that scripts keep working; under its own name it says more.
//!
//! Must not know the daemon's internals.

mod ca;
mod check_inject;
pub mod command;
mod daemon;
mod exit;
mod files;
mod generate;
mod global;
mod input;
mod install;
mod kube_inject;
mod local;
mod manifest;
mod output;
mod persona;
mod proxy;
mod tag;
mod usage;
mod validate;
mod world;
