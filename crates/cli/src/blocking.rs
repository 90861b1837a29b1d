//! Commands that are asynchronous, run to their end.

use anyhow::Context as _;

/// Runs a command that is asynchronous itself.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(command)
}
