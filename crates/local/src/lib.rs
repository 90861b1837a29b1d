//! A mesh on one machine: `canopus up`.
//!
//! ```text
//!  mesh.yaml ─► MeshFile ─► Plan ─┬─► objects ─► canopusd
//!                                 ├─► network (namespaces, veth, bridge)
//!                                 └─► processes: agent + Envoy, program ─► snapshots ─► view, tour
//! ```
//!
//! Owns the mesh file, the plan that follows from it, running it and cleaning up after it, the guided tour and the live view.
//! Everything left of `network` is pure. Whatever is made outside of the process is in the journal first, so that any later
//! process can remove it.
//!
//! Must not know the daemon's insides: control plane and agents are processes, asked over the ports that users have.

pub mod clean;
mod components;
pub mod control;
mod forward;
mod http;
pub mod journal;
pub mod launch;
mod log_tail;
mod mesh;
pub mod mesh_file;
pub mod metrics;
pub mod network;
mod node;
pub mod objects;
mod observe;
pub mod picture;
pub mod plan;
pub mod process;
pub mod programs;
mod service_manager;
pub mod snapshot;
mod sockets;
pub mod state;
pub mod supervisor;
mod tour;
mod unit;
mod url;
pub mod view;
