//! Envoy configuration: what a proxy receives.
//!
//! Each resource type is a query from an [`audience`] (and a name) to encoded resources, so proxies of equal audiences share
//! every byte and a change re-encodes only what it touches. One file per resource concern or Envoy filter.
//!
//! Must not know sources, sessions or sockets. User configuration never fails the build: what cannot be honoured is left
//! out where it stands.

mod acceptable;
mod address;
pub mod audience;
pub mod authorization;
pub mod bundle;
pub mod cluster;
pub mod config_keys;
pub mod conflict;
mod dns_cache;
mod durations;
pub mod endpoint;
mod env;
pub mod envoy_filter;
pub mod extension;
mod filter;
mod http;
pub mod impact;
mod inference;
mod jwt;
pub mod listener;
pub mod lost_servers;
mod metadata;
pub mod name_table;
pub mod names;
mod network;
pub mod patch_report;
pub mod pool;
mod provider;
mod proximity;
pub mod proxyless;
pub mod resources;
mod route;
pub mod route_config;
pub mod secret;
pub mod simulate;
pub mod stat_name;
mod telemetry;
mod tls;
mod tunnel;
