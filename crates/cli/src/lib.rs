//! The command line tool.
//!
//! Owns commands, their output and their exit codes. Called by the name `istioctl`, it takes istioctl's flags and prints its
//! texts, so that scripts keep working; under its own name it says more.
//!
//! Must not know the daemon's internals.

mod analyze;
mod authz;
mod blocking;
pub mod bug_report;
mod ca;
mod check;
mod check_inject;
mod cluster;
pub mod command;
mod control_plane;
mod daemon;
mod dashboard;
mod debug_pages;
pub mod describe;
mod diff;
mod exit;
mod explain;
mod fetch;
mod files;
mod format;
mod generate;
mod global;
mod history;
mod injector;
mod input;
mod install;
mod install_source;
mod kube_inject;
mod local;
mod manifest;
mod mesh_test;
mod names;
mod offline;
mod output;
mod persona;
mod precheck;
mod progress;
mod proxy;
mod proxy_config;
pub mod proxy_status;
mod remote_clusters;
mod remote_secret;
mod settings;
mod table;
mod tag;
mod top;
mod usage;
mod validate;
mod version_command;
mod wait;
mod waypoint;
mod what_if;
mod why;
mod workload;
mod world;
mod xds;
mod ztunnel_config;
