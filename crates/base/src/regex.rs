//! Whether a regular expression is one that the mesh's proxies can run.
//!
//! Proxies match with RE2, whose syntax is that of Go's `regexp`: no look-around, no back-references, repeat counts up to
//! 1000. This module checks that syntax itself, rather than asking a Rust engine, because users see the verdict and the
//! message of Go's parser today, and no other engine draws the line in the same places (`\Q…\E`, `{,3}`, `a**`, octal
//! escapes, class set operations and so on). It checks only; it does not match.

mod check;
#[cfg(test)]
mod tests;
mod unicode;

use std::fmt;

/// Why a regular expression is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("error parsing regexp: {kind}: `{fragment}`")]
pub struct RegexError {
    /// What is wrong.
    pub kind: RegexErrorKind,
    /// The part of the expression that is wrong.
    pub fragment: Box<str>,
}

/// The kinds of fault; their texts are Go's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegexErrorKind {
    /// A class name or a range such as `z-a`.
    CharRange,
    /// A backslash followed by something without meaning, a back-reference included.
    Escape,
    /// `(?P<name>` without a proper name.
    NamedCapture,
    /// `(?` followed by something else than a group or flags: look-around, for one.
    PerlOp,
    /// A repetition directly after another.
    RepeatOp,
    /// A repeat count above 1000, alone or together with those around it, or a minimum above the maximum.
    RepeatSize,
    /// `[` without `]`.
    MissingBracket,
    /// `(` without `)`.
    MissingParen,
    /// A repetition of nothing.
    MissingRepeatArgument,
    /// A backslash at the end.
    TrailingBackslash,
    /// `)` without `(`.
    UnexpectedParen,
    /// The expression nests deeper than a thousand levels.
    NestingDepth,
    /// The expression is too large once its repetitions are expanded.
    Large,
}

impl fmt::Display for RegexErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CharRange => "invalid character class range",
            Self::Escape => "invalid escape sequence",
            Self::NamedCapture => "invalid named capture",
            Self::PerlOp => "invalid or unsupported Perl syntax",
            Self::RepeatOp => "invalid nested repetition operator",
            Self::RepeatSize => "invalid repeat count",
            Self::MissingBracket => "missing closing ]",
            Self::MissingParen => "missing closing )",
            Self::MissingRepeatArgument => "missing argument to repetition operator",
            Self::TrailingBackslash => "trailing backslash at end of expression",
            Self::UnexpectedParen => "unexpected )",
            Self::NestingDepth => "expression nests too deeply",
            Self::Large => "expression too large",
        })
    }
}

/// Checks that proxies accept a regular expression.
pub fn check(pattern: &str) -> Result<(), RegexError> {
    check::Checker::new(pattern).run()
}
