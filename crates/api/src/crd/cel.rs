//! The expression language of rules, as Kubernetes runs it.
//!
//! Grammar and macros are those of the `cel` crate. Evaluation is ours, because rules need three things no library for
//! Rust has: a bound on what one may cost, values typed by the schema of the object, and the API server's error texts.

mod data;
mod error;
mod eval;
mod functions;
mod meter;
mod parse;
mod program;
mod url;
mod value;

#[cfg(test)]
mod tests;

pub(super) use error::EvalError;
pub(super) use meter::Meter;
pub use parse::check;
pub(super) use program::Program;
pub(super) use url::Url;
pub(super) use value::Value;
