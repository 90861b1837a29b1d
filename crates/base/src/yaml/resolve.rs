//! What a scalar means: the YAML 1.1 rules of the library that Kubernetes reads with.

use std::borrow::Cow;

use super::timestamp::is_timestamp;
use crate::float;
use crate::tree::{Number, ReadErrorKind, Value};

/// A scalar's meaning. [`Text`](Self::Text) is the scalar's own text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Resolved {
    Null,
    Bool(bool),
    Number(Number),
    Text,
}

/// The meaning of a scalar without quotes or tag.
pub(super) fn plain(text: &str) -> Resolved {
    match text.as_bytes().first() {
        None => Resolved::Null,
        Some(b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~') => word(text),
        Some(b'0'..=b'9' | b'+' | b'-' | b'.') => number(text),
        Some(_) => Resolved::Text,
    }
}

fn word(text: &str) -> Resolved {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Resolved::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Resolved::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => Resolved::Null,
        _ => Resolved::Text,
    }
}

fn number(text: &str) -> Resolved {
    let float = match text {
        ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
        _ if text.starts_with('.') => decimal(text),
        _ => {
            let digits = without_underscores(text);
            if let Some(int) = integer(&digits) {
                return Resolved::Number(int);
            }
            decimal(&digits)
        }
    };
    float.map_or(Resolved::Text, |float| Resolved::Number(Number::Float(float)))
}

fn without_underscores(text: &str) -> Cow<'_, str> {
    if text.contains('_') { text.replace('_', "").into() } else { text.into() }
}

/// An integer in decimal, or with a prefix for another base; a bare leading zero means octal.
fn integer(text: &str) -> Option<Number> {
    let (negative, magnitude) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = match magnitude.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (&magnitude[2..], 16),
        [b'0', b'o' | b'O', _, ..] => (&magnitude[2..], 8),
        [b'0', b'b' | b'B', _, ..] => (&magnitude[2..], 2),
        [b'0', _, ..] => (&magnitude[1..], 8),
        _ => (magnitude, 10),
    };
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0i64.checked_sub_unsigned(value).map(Number::Int);
    }
    match i64::try_from(value) {
        Ok(int) => Some(Number::Int(int)),
        // Parity: an explicit plus sign is for signed integers only.
        Err(_) => (!text.starts_with('+')).then_some(Number::UInt(value)),
    }
}

/// A decimal fraction; out of a float's range it is none.
fn decimal(text: &str) -> Option<f64> {
    let well_formed = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    if !well_formed {
        return None;
    }
    text.parse().ok().filter(|float: &f64| float.is_finite())
}

/// The meaning of a scalar under a tag of YAML's own, given without its prefix.
pub(super) fn tagged(tag: &str, text: &str) -> Result<Resolved, ReadErrorKind> {
    let resolved = match tag {
        "bool" | "int" | "float" | "null" => plain(text),
        "timestamp" if is_timestamp(text) => return Ok(Resolved::Text),
        "timestamp" => plain(text),
        _ => return Ok(Resolved::Text),
    };
    match (tag, resolved) {
        ("bool", Resolved::Bool(_))
        | ("null", Resolved::Null)
        | ("int", Resolved::Number(Number::Int(_) | Number::UInt(_)))
        | ("float", Resolved::Number(Number::Float(_) | Number::Int(_))) => Ok(resolved),
        _ => {
            let kind = resolved.tag();
            Err(ReadErrorKind::Tag { kind, text: text.into(), tag: format!("!!{tag}").into() })
        }
    }
}

impl Resolved {
    fn tag(self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Number(Number::Float(_)) => "!!float",
            Self::Number(_) => "!!int",
            Self::Text => "!!str",
        }
    }

    /// The value in the tree, if JSON has a form for it.
    pub(super) fn into_value(self, text: &str) -> Result<Value, ReadErrorKind> {
        match self {
            Self::Null => Ok(Value::Null),
            Self::Bool(truth) => Ok(Value::Bool(truth)),
            Self::Number(Number::Float(float)) if !float.is_finite() => {
                Err(ReadErrorKind::Number { text: text.into() })
            }
            Self::Number(number) => Ok(Value::Number(normalized(number))),
            Self::Text => Ok(text.into()),
        }
    }

    /// The text as a map key, if it can be one.
    pub(super) fn into_key(self, text: &str) -> Result<Box<str>, ReadErrorKind> {
        match self {
            Self::Null => Err(ReadErrorKind::Key { kind: "null" }),
            Self::Bool(truth) => Ok(if truth { "true" } else { "false" }.into()),
            Self::Number(Number::Int(int)) => Ok(int.to_string().into()),
            Self::Number(Number::UInt(_)) => {
                Err(ReadErrorKind::Key { kind: "an integer of more than 63 bits" })
            }
            Self::Number(Number::Float(float)) => Ok(float::shortest_single(float).into()),
            Self::Text => Ok(text.into()),
        }
    }
}

/// Turns a float without fraction into the integer it is written as in JSON: `1.0` and `1e3` are integers there.
pub(super) fn normalized(number: Number) -> Number {
    /// From here on Go writes floats with an exponent.
    const EXPONENT_FROM: f64 = 1e21;
    match number {
        Number::Float(float) if float.fract() == 0.0 && float.abs() < EXPONENT_FROM => {
            let digits = float.to_string();
            let int = digits.parse().map(Number::Int);
            int.or_else(|_| digits.parse().map(Number::UInt)).unwrap_or(number)
        }
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(int: i64) -> Resolved {
        Resolved::Number(Number::Int(int))
    }

    fn float(float: f64) -> Resolved {
        Resolved::Number(Number::Float(float))
    }

    #[test]
    fn plain_scalars_follow_yaml_1_1() {
        let cases = [
            ("", Resolved::Null),
            ("~", Resolved::Null),
            ("NULL", Resolved::Null),
            ("nUll", Resolved::Text),
            ("y", Resolved::Bool(true)),
            ("Off", Resolved::Bool(false)),
            ("yES", Resolved::Text),
            ("0", int(0)),
            ("-0", int(0)),
            ("+12", int(12)),
            ("0777", int(511)),
            ("0o17", int(15)),
            ("0x1F", int(31)),
            ("-0x1f", int(-31)),
            ("0b11", int(3)),
            ("-0b11", int(-3)),
            ("1_000", int(1000)),
            ("0x_1F", int(31)),
            ("9223372036854775807", int(i64::MAX)),
            ("-9223372036854775808", int(i64::MIN)),
            ("18446744073709551615", Resolved::Number(Number::UInt(u64::MAX))),
            ("+18446744073709551615", float(18_446_744_073_709_551_615.0)),
            ("08", float(8.0)),
            ("0x", Resolved::Text),
            ("0b12", Resolved::Text),
            ("1.5", float(1.5)),
            ("1.", float(1.0)),
            (".5", float(0.5)),
            ("._5", Resolved::Text),
            ("1e3", float(1000.0)),
            ("1e400", Resolved::Text),
            (".inf", float(f64::INFINITY)),
            ("-.INF", float(f64::NEG_INFINITY)),
            ("inf", Resolved::Text),
            ("infinity", Resolved::Text),
            ("nan", Resolved::Text),
            ("-", Resolved::Text),
            ("--1", Resolved::Text),
            ("+-1", Resolved::Text),
            ("1:30", Resolved::Text),
            ("1.2.3", Resolved::Text),
            ("2001-01-01", Resolved::Text),
            ("<<", Resolved::Text),
            ("é", Resolved::Text),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text), expected, "{text}");
        }
    }

    #[test]
    fn tags_are_held_to() {
        assert_eq!(tagged("str", "12"), Ok(Resolved::Text));
        assert_eq!(tagged("int", "12"), Ok(int(12)));
        assert_eq!(tagged("float", "1"), Ok(int(1)));
        assert_eq!(tagged("bool", "yes"), Ok(Resolved::Bool(true)));
        assert_eq!(tagged("timestamp", "2001-01-01"), Ok(Resolved::Text));
        assert_eq!(tagged("anything", "x"), Ok(Resolved::Text));
        let error = tagged("int", "x").unwrap_err();
        assert_eq!(error.to_string(), "cannot decode !!str `x` as a !!int");
        assert!(tagged("timestamp", "x").is_err());
        assert!(tagged("null", "1").is_err());
    }

    #[test]
    fn whole_floats_become_integers() {
        assert_eq!(normalized(Number::Float(1.0)), Number::Int(1));
        assert_eq!(normalized(Number::Float(-0.0)), Number::Int(0));
        assert_eq!(normalized(Number::Float(1e19)), Number::UInt(10_000_000_000_000_000_000));
        assert_eq!(normalized(Number::Float(1e20)), Number::Float(1e20));
        assert_eq!(normalized(Number::Float(1.5)), Number::Float(1.5));
    }

    #[test]
    fn keys_are_texts() {
        let key = |text: &str| plain(text).into_key(text);
        for (text, expected) in
            [("a", "a"), ("y", "true"), ("0x10", "16"), ("1.0", "1"), ("1e10", "1e+10"), (".inf", ".inf")]
        {
            assert_eq!(key(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(key("~").is_err());
        assert!(key("18446744073709551615").is_err());
    }
}
