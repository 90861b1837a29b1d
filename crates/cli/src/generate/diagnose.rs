//! What is wrong with the objects, and what had to be left out for it.

use canopus_engine::{QueryError, Snapshot};
use canopus_envoy::audience::AudiencesOf;
use canopus_mesh::diagnostic::{self, Severity};
use canopus_mesh::gateway::MergedGateways;
use canopus_mesh::proxy::Proxy;
use indicatif::ProgressBar;

use super::Message;
use crate::global::Global;
use crate::input::Input;
use crate::validate::{check, report};

/// The findings of `canopus validate`, for files in which there are any.
pub(super) fn objects(inputs: &[Input], global: &Global) -> Vec<Message> {
    let files = inputs.iter().map(|input| check::file(input, global, &ProgressBar::hidden()));
    let noteworthy =
        files.filter(|file| file.count(check::Severity::Error) + file.count(check::Severity::Warning) > 0);
    noteworthy
        .map(|file| Message { is_error: !file.is_valid(), text: report::text(std::slice::from_ref(&file)) })
        .collect()
}

/// What is wrong with the objects together.
pub(super) fn world(world: &Snapshot) -> Result<Vec<Message>, QueryError> {
    let found = diagnostic::all_diagnostics(world)?;
    Ok(found
        .iter()
        .map(|found| Message { text: format!("{found}\n"), is_error: found.severity == Severity::Error })
        .collect())
}

/// Servers of Gateways that the proxy does not run.
pub(super) fn left_out(world: &Snapshot, proxy: &Proxy) -> Result<Vec<Message>, QueryError> {
    let audiences = world.get::<AudiencesOf>(proxy)?;
    let Some(runner) = audiences.gateway() else { return Ok(Vec::new()) };
    let merged = world.get::<MergedGateways>(runner)?;
    let left_out = merged.rejected.iter();
    Ok(left_out
        .map(|server| Message { text: format!("warning: left out: {server}\n"), is_error: false })
        .collect())
}
