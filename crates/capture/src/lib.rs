//! Traffic capture: which packets of a pod or machine go to its proxy, in the place of `istio-iptables`.
//!
//! ```text
//!  CommandLine + HostFacts ──► CaptureConfig ──► iptables::sidecar ──► RuleProgram ─┐
//!  (flags, environment)        (checked, typed)  nftables::sidecar ──► Transaction ─┴─► apply ──► kernel
//! ```
//!
//! Everything left of `apply` is pure: a [`CaptureConfig`] gives the same program on every machine, so a program can be
//! printed, compared and tested without privileges. `apply` is the only module that runs commands, talks to the kernel
//! or changes namespaces; `validation` opens the sockets of the probe.
//!
//! Invariant: every value that a user can set is a checked type (`PortRange`, `Owner`, `InterfaceName`, `IpNet`) before
//! it reaches a rule. Rule texts are assembled with `format!` and split at blanks, so a value with a blank, a quote or a
//! line break would be an injection into a program that root runs.
//!
//! Start reading at [`iptables::sidecar`]; [`nftables::sidecar`] says the same in the other language, and [`ambient`]
//! has the rules of pods whose proxy is the node's ztunnel. The crate knows nothing of meshes, proxies or Kubernetes.

pub mod ambient;
pub mod apply;
mod command_line;
mod config;
mod facts;
pub mod iptables;
pub mod nftables;
pub mod pod;
mod run;
mod settings;
pub mod validation;

pub use command_line::{CommandLine, Environment};
pub use config::{
    CaptureConfig, ConfigError, DnsCapture, Family, InboundPorts, InterceptionMode, InterfaceName,
    OutboundRanges, Owner, OwnerGroups, PortRange,
};
pub use facts::{FactsError, HostFacts};
pub use run::{RunError, VALIDATION_FAILED, run};
pub use settings::Settings;

/// The port on which the agent or ztunnel answers DNS queries.
pub(crate) const DNS_PROXY_PORT: u16 = 15053;
