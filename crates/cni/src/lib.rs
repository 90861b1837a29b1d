//! Traffic capture from the node, in the place of istio-cni.
//!
//! ```text
//!  container runtime ──► istio-cni (plugin) ── sidecar pods ──► capture: rules in the pod's namespace
//!                            │ ambient pods: /cmdadd
//!                            ▼
//!  API server ──────► install-cni (agent) ──► capture: rules of pods and of the node
//!    pods, namespaces        │ ZDS: namespaces of pods
//!                            ▼
//!                         ztunnel
//! ```
//!
//! One program has two names. As `istio-cni` it is the plugin ([`plugin`]): it lives for one call. As `install-cni` it is
//! the agent: it installs the plugin ([`install`]), repairs pods that started without it ([`repair`]), and enrols pods in
//! ambient mode ([`ambient`]).
//!
//! Invariant: a pod that should be captured runs captured or does not run. What cannot be found out or done is an error
//! that the container runtime sees, so that it tries again.
//!
//! The crate knows nothing of what meshes are configured to do; `capture` knows the rules, this crate when they are due.

pub mod ambient;
pub mod command;
pub mod files;
pub mod install;
pub mod plugin;
pub mod pod;
pub mod repair;
pub mod selector;
pub mod sockets;
