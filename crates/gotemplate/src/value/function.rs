//! Functions that templates call, and how Rust closures become such.
//!
//! A closure's own signature is the Go signature: the evaluator checks the number and the types of arguments against it and
//! reports mismatches in Go's words, so the closure only sees what it can take.
//!
//! ```
//! use canopus_gotemplate::{CallError, Functions, Templates, Value};
//!
//! let mut functions = Functions::builtin();
//! functions.add("shout", |text: String| text.to_uppercase());
//! functions.add("half", |number: i64| match number % 2 {
//!     0 => Ok(number / 2),
//!     _ => Err(CallError::from("the number is odd")),
//! });
//! let mut templates = Templates::new("greeting", functions);
//! templates.parse("greeting", "{{ .name | shout }} {{ half 8 }}")?;
//! let data = Value::map([("name", "mesh")]);
//! assert_eq!(templates.render("greeting", &data)?, b"MESH 4");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod convert;

use std::fmt;
use std::sync::Arc;

use canopus_base::FastMap;

use crate::error::CallError;
use crate::limits::Budget;

use super::{Slot, Value};

pub use convert::{FromArg, Int64, IntoFunction, IntoResult, StringMap, Type, Variadic};

type Body = Arc<dyn Fn(&Budget, Vec<Value>) -> Result<Value, CallError> + Send + Sync>;

/// A function with its signature.
#[derive(Clone)]
pub struct Function {
    pub(crate) params: Vec<Type>,
    /// Whether the last parameter takes any number of arguments.
    pub(crate) variadic: bool,
    pub(crate) body: FunctionBody,
}

/// How a call is carried out.
#[derive(Clone)]
pub(crate) enum FunctionBody {
    Plain(Body),
    /// A builtin that tells a missing value from a nil one.
    Slots(fn(&Budget, &[Slot]) -> Result<Slot, CallError>),
    /// `and` and `or`, which evaluate no more arguments than they need.
    ShortCircuit {
        stops_at: bool,
    },
    /// `call`, which always fails: no value is a function.
    Call,
    /// Renders another template of the set.
    Include,
    /// Renders a text as a template.
    Tpl,
}

impl Function {
    /// Makes a function of a closure; see the module's page for what signatures it may have.
    pub fn new<M>(closure: impl IntoFunction<M>) -> Self {
        closure.into_function()
    }

    pub(crate) fn plain(
        params: Vec<Type>,
        variadic: bool,
        body: impl Fn(&Budget, Vec<Value>) -> Result<Value, CallError> + Send + Sync + 'static,
    ) -> Self {
        Self { params, variadic, body: FunctionBody::Plain(Arc::new(body)) }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("params", &self.params).finish_non_exhaustive()
    }
}

/// The functions that a set of templates may call, by name.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    by_name: FastMap<String, Function>,
}

impl Functions {
    /// Adds a function, or replaces the one of that name.
    pub fn add<M>(&mut self, name: impl Into<String>, closure: impl IntoFunction<M>) -> &mut Self {
        self.insert(name, closure.into_function())
    }

    /// Adds a function that was made before.
    pub fn insert(&mut self, name: impl Into<String>, function: Function) -> &mut Self {
        self.by_name.insert(name.into(), function);
        self
    }

    /// Takes a function away; templates that name it no longer parse.
    pub fn remove(&mut self, name: &str) -> Option<Function> {
        self.by_name.remove(name)
    }

    /// The function of a name.
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name)
    }

    /// Whether there is a function of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}
