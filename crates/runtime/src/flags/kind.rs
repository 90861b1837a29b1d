//! Types of flags: how their text is read and what code gets.

use std::fmt;

use canopus_base::duration::Duration;

/// Type of a flag, as listings name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Bool,
    /// Whole number.
    Int,
    /// Number.
    Float,
    /// Length of time in Go's notation.
    Duration,
    /// Any text.
    Text,
    /// Texts separated by commas.
    List,
    /// One of a few words.
    Choice,
}

impl Kind {
    /// The word used in listings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Float => "float",
            Kind::Duration => "duration",
            Kind::Text => "string",
            Kind::List => "list",
            Kind::Choice => "choice",
        }
    }
}

/// A flag's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Value of a [`Kind::Bool`].
    Bool(bool),
    /// Value of a [`Kind::Int`].
    Int(i64),
    /// Value of a [`Kind::Float`].
    Float(f64),
    /// Value of a [`Kind::Duration`].
    Duration(Duration),
    /// Value of a [`Kind::Text`].
    Text(String),
    /// Value of a [`Kind::List`].
    List(Vec<String>),
    /// Value of a [`Kind::Choice`].
    Choice(&'static str),
}

impl Value {
    /// Reads a text as Istio does; the error says what was expected.
    pub(super) fn parse(kind: Kind, choices: &'static [&'static str], text: &str) -> Result<Value, String> {
        let expected = |what: &str| what.to_owned();
        match kind {
            Kind::Bool => parse_bool(text).map(Value::Bool).ok_or_else(|| expected("true or false")),
            Kind::Int => text.parse().map(Value::Int).map_err(|_| expected("an integer")),
            Kind::Float => parse_float(text).map(Value::Float).ok_or_else(|| expected("a number")),
            Kind::Duration => {
                text.parse().map(Value::Duration).map_err(|_| expected("a duration such as 100ms or 1h30m"))
            }
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::List => Ok(Value::List(split(text))),
            Kind::Choice => choices
                .iter()
                .find(|choice| **choice == text)
                .map(|choice| Value::Choice(choice))
                .ok_or_else(|| format!("one of {}", choices.join(", "))),
        }
    }

    /// The value as a number, for bounds; durations count in seconds.
    pub(super) fn magnitude(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            Value::Duration(length) => Some(length.as_secs_f64()),
            _ => None,
        }
    }
}

/// The value in the notation in which it could be set.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Duration(value) => write!(f, "{value}"),
            Value::Text(value) => f.write_str(value),
            Value::List(values) => f.write_str(&values.join(",")),
            Value::Choice(value) => f.write_str(value),
        }
    }
}

/// The spellings Go takes for a boolean.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

fn parse_float(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

fn split(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

mod sealed {
    pub trait Sealed {}
}

/// Marker of a flag's type; says what [`Flags::get`](super::Flags::get) returns.
pub trait FlagType: sealed::Sealed {
    /// Type as listings name it.
    const KIND: Kind;

    /// What code gets.
    type Output<'a>;

    /// Takes the typed value out, if it is of this type.
    fn output(value: &Value) -> Option<Self::Output<'_>>;
}

macro_rules! flag_types {
    ($($(#[$doc:meta])* $name:ident: $output:ty = |$value:ident| $get:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}

        impl sealed::Sealed for $name {}

        impl FlagType for $name {
            const KIND: Kind = Kind::$name;
            type Output<'a> = $output;

            fn output(value: &Value) -> Option<Self::Output<'_>> {
                match value {
                    Value::$name($value) => Some($get),
                    _ => None,
                }
            }
        }
    )+};
}

/// Markers, named as the types are in the table.
pub mod types {
    use super::{FlagType, Kind, Value, sealed};

    flag_types! {
        /// True or false.
        Bool: bool = |value| *value;
        /// Whole number.
        Int: i64 = |value| *value;
        /// Number.
        Float: f64 = |value| *value;
        /// Length of time; a negative one is read as zero.
        Duration: std::time::Duration = |value| value.to_std().unwrap_or_default();
        /// Any text.
        Text: &'a str = |value| value;
        /// Texts separated by commas; spaces around them and empty ones do not count.
        List: &'a [String] = |value| value;
        /// One of a few words.
        Choice: &'static str = |value| value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: Kind, text: &str) -> Result<Value, String> {
        Value::parse(kind, &["auto", "off"], text)
    }

    #[test]
    fn booleans_are_spelt_as_in_go() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(parse(Kind::Bool, text), Ok(Value::Bool(true)));
        }
        for text in ["yes", "", "tRue", "on", " true"] {
            assert_eq!(parse(Kind::Bool, text), Err("true or false".to_owned()));
        }
    }

    #[test]
    fn numbers_are_finite() {
        assert_eq!(parse(Kind::Int, "-3"), Ok(Value::Int(-3)));
        assert_eq!(parse(Kind::Float, "1e2"), Ok(Value::Float(100.0)));
        for text in ["", "1.5.2", "inf", "NaN", "1_000"] {
            assert!(parse(Kind::Float, text).is_err(), "{text}");
        }
        for text in ["", "1.0", "99999999999999999999"] {
            assert!(parse(Kind::Int, text).is_err(), "{text}");
        }
    }

    #[test]
    fn list_drops_blanks() {
        let expected = ["a", "b c"].map(str::to_owned).to_vec();
        assert_eq!(parse(Kind::List, " a,,b c ,"), Ok(Value::List(expected)));
        assert_eq!(parse(Kind::List, ""), Ok(Value::List(vec![])));
    }

    #[test]
    fn choice_names_its_words_when_refused() {
        assert_eq!(parse(Kind::Choice, "off"), Ok(Value::Choice("off")));
        assert_eq!(parse(Kind::Choice, "on"), Err("one of auto, off".to_owned()));
    }
}
