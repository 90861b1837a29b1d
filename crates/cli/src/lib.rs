//! The command line tool.
//!
//! Owns commands, their output and their exit codes. Called by the name `istioctl`, it takes istioctl's flags and prints its
//! texts, so that scripts keep working; under its own name it says more.
//!
//! Must not know the daemon's internals.

mod analyze;
mod authz;
mod ca;
mod check;
mod check_inject;
mod cluster;
pub mod command;
mod control_plane;
mod daemon;
mod exit;
mod explain;
mod fetch;
mod files;
mod format;
mod generate;
mod global;
mod history;
mod input;
mod install;
mod kube_inject;
mod local;
mod manifest;
mod mesh_test;
mod names;
mod offline;
mod output;
mod persona;
mod proxy;
mod proxy_config;
mod proxy_status;
mod table;
mod tag;
mod usage;
mod validate;
mod wait;
mod what_if;
mod why;
mod world;
