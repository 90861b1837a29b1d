//! The settings of the command, from flags and environment.

use std::path::PathBuf;

use crate::apply;
use crate::config::CaptureConfig;
use crate::validation::Probe;

/// All settings of the command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What to capture.
    pub capture: CaptureConfig,
    /// How to apply it.
    pub options: apply::Options,
    /// Apply nothing.
    pub skip_rule_apply: bool,
    /// Print what would be run, and change nothing.
    pub dry_run: bool,
    /// Where a dry run writes to as well.
    pub dry_run_file: Option<PathBuf>,
    /// Use nftables instead of iptables.
    pub native_nftables: bool,
    /// Check that traffic is captured.
    pub run_validation: bool,
    /// What to check.
    pub probe: Probe,
}
