//! Why a query has no value.

use thiserror::Error;

/// Why a query has no value; like a value, it is memoised and lasts until something the query read changes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QueryError {
    /// The query, or one it needed, panicked.
    #[error("query {query}({key}) panicked: {message}")]
    Panicked {
        /// The family of the query that panicked.
        query: &'static str,
        /// Its key, as `Debug` prints it.
        key: String,
        /// The panic message.
        message: String,
    },
    /// The query, or one it needed, depends on itself.
    #[error("queries depend on each other: {}", .path.join(" -> "))]
    Cycle {
        /// The members of the cycle as `name(key)`, each reading the next and the last reading the first; the
        /// smallest name comes first, whatever query was asked for.
        path: Vec<String>,
    },
}
