//! Go's `text/template` with the functions of sprig and Helm, in Go's exact semantics.
//!
//! Injection templates, gateway deployments and Helm charts are written in this language, and users bring their own, so
//! what they print must be what Go prints: kinds, nil rules, number formats, error texts. Start with [`Templates`]:
//! it holds parsed templates and renders them; [`Functions`] says what they may call ([`Functions::builtin`],
//! [`sprig`], [`helm`], and closures of the caller); [`Value`] is the data.
//!
//! ```
//! use canopus_gotemplate::{Functions, Templates, Value};
//!
//! let mut templates = Templates::new("pod", Functions::builtin());
//! templates.parse("pod", "{{ range $i, $name := .names }}{{ $i }}={{ $name }} {{ end }}")?;
//! let data = Value::map([("names", Value::strings(["a", "b"]))]);
//! assert_eq!(templates.render("pod", &data)?, b"0=a 1=b ");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here does I/O or reads a clock, and a rendering is bounded by [`Limits`]: no template and no data makes it panic,
//! hang or run out of memory.
//!
//! # Where this differs from Go
//!
//! - Blocks and parentheses nest up to 150 levels, a rendering up to [`Limits::depth`].
//! - A map cannot be put into itself; Go would overflow its stack on printing it.
//! - `call` always fails: no value is a function.
//! - Template texts are UTF-8.

mod ast;
mod builtins;
pub mod chart;
mod encode;
mod error;
mod exec;
mod gofmt;
mod goparse;
pub mod helm;
mod lex;
mod limits;
mod parse;
pub mod sprig;
mod template;
#[cfg(test)]
mod tests;
mod value;

pub use error::{CallError, ParseError, RenderError};
pub use limits::{Budget, LimitError, Limits};
pub use template::{MissingKey, Templates};
pub use value::{
    Elem, FromArg, Function, Functions, InsertError, Int64, IntKind, IntoFunction, IntoResult, List, Map,
    MapKind, Object, ObjectData, Str, StringMap, Type, UintKind, Value, Variadic,
};
