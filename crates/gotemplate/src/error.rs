use crate::limits::LimitError;

/// A template could not be parsed. The text is Go's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("template: {name}:{line}: {message}")]
pub struct ParseError {
    /// The template, as it was named to the parser.
    pub name: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// A template failed while it ran. The text is Go's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct RenderError {
    pub(crate) text: String,
    /// The error of a template that this one called, if that was the cause.
    #[source]
    pub(crate) cause: Option<Box<RenderError>>,
    pub(crate) limit: Option<LimitError>,
    /// What `fail` or `required` said, if that was the cause.
    pub(crate) raised: Option<String>,
}

impl RenderError {
    /// What `fail` or `required` said, if that was the cause.
    pub fn raised(&self) -> Option<&str> {
        self.raised.as_deref()
    }

    /// Where it happened: `template:line:column`.
    pub fn location(&self) -> &str {
        self.text.strip_prefix("template: ").and_then(|text| text.split(": ").next()).unwrap_or_default()
    }

    /// The bound that was reached, if that was the cause.
    pub fn limit(&self) -> Option<LimitError> {
        self.limit
    }
}

/// Why a function failed. Made from any text with `?` or `.into()`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The function refused its arguments.
    #[error("{0}")]
    Failed(String),
    /// The template itself raised this error, through `fail` or `required`.
    #[error("{0}")]
    Raised(String),
    /// A template that the function ran failed.
    #[error("{prefix}{error}")]
    Template {
        /// What the function says before the error.
        prefix: String,
        /// The error.
        error: Box<RenderError>,
    },
    /// A bound was reached.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl From<String> for CallError {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<&str> for CallError {
    fn from(message: &str) -> Self {
        Self::Failed(message.to_owned())
    }
}
