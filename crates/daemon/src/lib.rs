//! The control plane as a process: flags, wiring and ports.
//!
//! This is the composition root. Sources feed one apply loop, the loop feeds the engine, and the xDS server asks the
//! engine for what each proxy's view holds.
//!
//! Must not know the command line tool.

mod apply;
pub mod command;
pub mod control_plane;
pub mod discovery;
mod http;
mod settings;
mod sources;
