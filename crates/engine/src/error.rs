//! Why a query has no value.

use thiserror::Error;

/// Why a query has no value. Memoised like a value: it lasts until something that the query read changes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QueryError {
    /// The query, or one that it needed, panicked.
    #[error("query {query}({key}) panicked: {message}")]
    Panicked {
        /// The family of the query that panicked.
        query: &'static str,
        /// Key of the query, as `Debug` prints it.
        key: String,
        /// The panic message.
        message: String,
    },
    /// The query, or one that it needed, depends on itself.
    #[error("queries depend on each other: {}", .path.join(" -> "))]
    Cycle {
        /// The members of the cycle as `name(key)`. Each reads the next, and the last reads the first. The smallest name
        /// comes first, whichever query was asked for.
        path: Vec<String>,
    },
}
