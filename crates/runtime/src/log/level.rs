//! The severities Istio's command lines and ctrlz speak of.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Threshold of a scope: events at this level and above it are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Prints nothing.
    None,
    /// Prints only what ends the process; no event of ours is finer than `Error`, so this prints nothing either.
    Fatal,
    /// Failures that need attention.
    Error,
    /// Things that work but should not stay as they are.
    Warn,
    /// What an operator wants to read on a normal day.
    #[default]
    Info,
    /// What a developer wants to read.
    Debug,
}

impl Level {
    /// All levels, in the order help texts list them.
    pub const ALL: [Level; 6] =
        [Level::Debug, Level::Info, Level::Warn, Level::Error, Level::Fatal, Level::None];

    /// The word used on command lines and in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Fatal => "fatal",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// The level at which a tracing event is printed; `None` for trace events, which are finer than any scope allows.
    pub fn from_tracing(level: tracing::Level) -> Option<Level> {
        match level {
            tracing::Level::ERROR => Some(Level::Error),
            tracing::Level::WARN => Some(Level::Warn),
            tracing::Level::INFO => Some(Level::Info),
            tracing::Level::DEBUG => Some(Level::Debug),
            _ => None,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Level::ALL
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or_else(|| UnknownLevel { text: text.to_owned() })
    }
}

/// A word that names no level.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown log level {text:?}: use one of debug, info, warn, error, fatal, none")]
pub struct UnknownLevel {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_prints() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
    }

    #[test]
    fn refuses_other_spellings() {
        for text in ["", "INFO", "warning", "trace"] {
            assert!(text.parse::<Level>().is_err(), "{text}");
        }
    }

    #[test]
    fn trace_events_have_no_level() {
        assert_eq!(Level::from_tracing(tracing::Level::TRACE), None);
        assert_eq!(Level::from_tracing(tracing::Level::DEBUG), Some(Level::Debug));
    }
}
