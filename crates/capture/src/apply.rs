//! The rim: runs programs on the kernel of the current network namespace.
//!
//! Everything that changes the machine goes through a [`Runner`] (commands) or `routes` (netlink). [`Recorder`] is the
//! runner of dry runs: it takes the same path and changes nothing, so what it prints is what would be run.

mod command;
mod iptables;
mod namespace;
mod nftables;
mod routes;
mod variant;

use std::path::PathBuf;

pub use command::{CommandError, Invocation, Recorder, Runner, System};
pub use iptables::{apply_iptables, log_final_state, replace_iptables};
pub use namespace::{NamespaceError, in_namespace, in_open_namespace};
pub use nftables::apply_nftables;
pub use routes::{RouteError, RouteStep, add_routes, ambient_routes, remove_routes, sidecar_routes};
pub use variant::{Tools, Variant, Version};

/// How to apply a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Replace rules of an earlier run that differ.
    pub reconcile: bool,
    /// Remove rules, and add none.
    pub cleanup_only: bool,
    /// Apply rules even if they seem to be there.
    pub force_apply: bool,
    /// Which iptables to use.
    pub variant: VariantChoice,
    /// The file system is the host's: lock the namespace alone, and look no names up.
    pub cni_mode: bool,
    /// The network namespace to work in; `None` for the current one.
    pub network_namespace: Option<PathBuf>,
    /// The directory of iptables and nft; `None` to search `PATH`.
    pub tools: Option<PathBuf>,
}

/// Which iptables to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VariantChoice {
    /// The legacy one if it has rules here, else the one on nftables.
    #[default]
    Detect,
    /// `iptables-legacy`.
    Legacy,
    /// `iptables-nft`.
    Nft,
}

/// What applying a program came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The rules were there.
    Unchanged,
    /// The rules are there now.
    Applied,
    /// Other rules were removed first.
    Replaced,
    /// No rule is left.
    Removed,
}

/// Why a program could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Rules of an earlier run are in the way.
    #[error(
        "rules of an earlier run differ from the wanted ones: chain {chain} is in table {table} already; nothing was \
         changed; run with --reconcile to replace them, or with --cleanup-only first"
    )]
    Drift {
        /// The table.
        table: &'static str,
        /// A chain that is in the way.
        chain: String,
    },
    /// No usable iptables was found.
    #[error("no usable {program}: {reason}")]
    NoVariant {
        /// What was looked for.
        program: &'static str,
        /// What was tried and why it failed.
        reason: String,
    },
    /// Rules are there, but not what routes packets to the proxy.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The network namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}
