//! Applies nftables transactions.

use super::command::{Invocation, Runner};
use super::{ApplyError, Options, Outcome};
use crate::nftables::{Transaction, cleanup};

/// Applies the transaction of a sidecar.
///
/// It replaces the contents of the tables it has rules for, so applying it twice is applying it once. Tables that an
/// earlier run with other settings has made go as well if the options say so, in the same transaction.
pub fn apply_nftables(
    runner: &mut dyn Runner,
    transaction: &Transaction,
    options: &Options,
) -> Result<Outcome, ApplyError> {
    let (transaction, outcome) = if options.cleanup_only {
        (cleanup(), Outcome::Removed)
    } else if options.reconcile {
        (transaction.clone().after(cleanup()), Outcome::Replaced)
    } else {
        (transaction.clone(), Outcome::Applied)
    };
    if transaction.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    let input = transaction.to_string();
    tracing::info!("applying with nft:\n{}", input.trim_end());
    runner.run(&Invocation { input: Some(input), ..Invocation::new("nft", ["-f", "-"]) })?;
    Ok(outcome)
}
