//! What was found.

use std::borrow::Cow;
use std::fmt;

use super::code::Code;

/// How many errors, and how many warnings, of one object are kept: nobody reads more, and each costs memory.
pub const MAX_FINDINGS: usize = 10_000;

/// All findings about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Why the object is refused, in the order in which Istio says it.
    pub errors: Vec<Finding>,
    /// What somebody should look at.
    pub warnings: Vec<Finding>,
}

/// A fault or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub code: &'static Code,
    /// The field, such as `spec.http[0].route[1].weight`. Empty for the object itself.
    pub path: String,
    /// The value that breaks the rule.
    pub value: Option<Box<str>>,
    /// Istio's words for it.
    pub message: Cow<'static, str>,
    /// Whether Istio words it as a list of one when it is alone.
    pub listed: bool,
    /// Whether Istio would not have said it, because it stopped at an earlier finding or drops the warnings of a part.
    pub ours: bool,
    /// What the words are made of, for those who have other words for the same thing.
    pub arguments: Vec<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Report {
    /// Whether the object is accepted.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// The errors as the one text Istio would have for them; `None` if there are none.
    pub fn error_text(&self) -> Option<String> {
        joined(said(&self.errors))
    }

    /// The warnings as the one text Istio would have for them; `None` if there are none.
    pub fn warning_text(&self) -> Option<String> {
        joined(said(&self.warnings))
    }

    /// The warnings Istio would give, each by itself.
    pub fn warning_texts(&self) -> impl Iterator<Item = &str> {
        said(&self.warnings).map(|warning| &*warning.message)
    }
}

/// The findings that Istio would have.
fn said(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(|finding| !finding.ours)
}

/// Findings as one text, as Go's multierror prints them.
fn joined<'a>(findings: impl Iterator<Item = &'a Finding>) -> Option<String> {
    let findings: Vec<_> = findings.collect();
    match findings.as_slice() {
        [] => None,
        [only] if !only.listed => Some(only.message.clone().into_owned()),
        several => Some(list(several.iter().map(|finding| &*finding.message))),
    }
}

/// A list of messages, as Go's multierror prints it.
pub fn list<'a>(messages: impl ExactSizeIterator<Item = &'a str>) -> String {
    let mut text = match messages.len() {
        1 => "1 error occurred:".to_owned(),
        count => format!("{count} errors occurred:"),
    };
    for message in messages {
        text.push_str("\n\t* ");
        text.push_str(message);
    }
    text.push_str("\n\n");
    text
}
