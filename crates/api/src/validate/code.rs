//! The rules: what each is called, how bad it is to break it, and what to do then.

use std::borrow::Cow;
use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The object is accepted; somebody should look at it.
    Warning,
    /// The object is refused.
    Error,
}

/// A rule of the catalogue.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    /// A stable name, such as `gateway-no-servers`.
    pub id: &'static str,
    /// How bad it is to break the rule, unless the place says otherwise.
    pub severity: Severity,
    /// What to do about it.
    pub remedy: &'static str,
}

impl Code {
    pub(super) const fn error(id: &'static str, remedy: &'static str) -> Self {
        Self { id, severity: Severity::Error, remedy }
    }

    pub(super) const fn warning(id: &'static str, remedy: &'static str) -> Self {
        Self { id, severity: Severity::Warning, remedy }
    }

    /// A fault under this code, in Istio's words.
    pub fn says(&'static self, message: impl Into<Cow<'static, str>>) -> Fault {
        Fault { code: self, message: message.into(), value: None, listed: false, arguments: Vec::new() }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

/// A broken rule, not yet tied to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rule.
    pub code: &'static Code,
    /// Istio's words for it.
    pub message: Cow<'static, str>,
    /// The value that breaks it.
    pub value: Option<Box<str>>,
    /// Whether Istio words it as a list of one when it is alone.
    pub listed: bool,
    /// What the words are made of, for those who have other words for the same thing.
    pub arguments: Vec<String>,
}

impl Fault {
    /// The same fault with the value that breaks the rule.
    #[must_use]
    pub fn with_value(mut self, value: impl fmt::Display) -> Self {
        self.value = Some(value.to_string().into());
        self
    }

    /// The same fault, worded as a list of one when it is alone.
    #[must_use]
    pub fn listed(mut self) -> Self {
        self.listed = true;
        self
    }

    /// The same fault with what its words are made of.
    #[must_use]
    pub fn with(mut self, arguments: impl IntoIterator<Item = String>) -> Self {
        self.arguments = arguments.into_iter().collect();
        self
    }

    /// The same fault with other words around its own.
    #[must_use]
    pub fn reworded(mut self, message: impl FnOnce(&str) -> String) -> Self {
        self.message = message(&self.message).into();
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The rules of one module: a static of each name, and `CODES` with all of them for the catalogue.
macro_rules! codes {
    ($($name:ident: $severity:ident $id:literal, $remedy:literal;)+) => {
        $(static $name: $crate::validate::Code = $crate::validate::Code::$severity($id, $remedy);)+

        pub(in crate::validate) static CODES: &[&$crate::validate::Code] = &[$(&$name),+];
    };
}

pub(crate) use codes;
