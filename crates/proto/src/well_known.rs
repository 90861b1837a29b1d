//! Conversions of protobuf's well-known types, and the text forms proto-JSON gives them.

use std::collections::BTreeMap;

use canopus_base::duration::ProtoDuration;
use jiff::Timestamp as Instant;

use crate::google::protobuf::{
    BoolValue, DoubleValue, Duration, ListValue, StringValue, Struct, Timestamp, UInt32Value, UInt64Value,
    Value, value::Kind,
};

impl Duration {
    /// A whole number of seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self { seconds, nanos: 0 }
    }

    /// Reads proto-JSON's form: decimal seconds with at most nine digits after the point, then `s`.
    pub fn from_json(text: &str) -> Option<Self> {
        let duration: ProtoDuration = text.parse().ok()?;
        Some(Self { seconds: duration.seconds(), nanos: duration.nanos() })
    }

    /// Writes proto-JSON's form, with 0, 3, 6 or 9 digits after the point; `None` if out of range.
    pub fn to_json(self) -> Option<String> {
        ProtoDuration::new(self.seconds, self.nanos).ok().map(|duration| duration.to_string())
    }
}

impl From<std::time::Duration> for Duration {
    fn from(d: std::time::Duration) -> Self {
        // Subsecond nanoseconds are below 10^9.
        Self {
            seconds: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            nanos: d.subsec_nanos().cast_signed(),
        }
    }
}

impl TryFrom<Duration> for std::time::Duration {
    type Error = NegativeDuration;

    fn try_from(d: Duration) -> Result<Self, NegativeDuration> {
        let seconds = u64::try_from(d.seconds).map_err(|_| NegativeDuration)?;
        let nanos = u32::try_from(d.nanos).map_err(|_| NegativeDuration)?;
        Ok(Self::new(seconds, nanos.min(999_999_999)))
    }
}

/// A duration below zero has no unsigned counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the duration is negative")]
pub struct NegativeDuration;

impl Timestamp {
    /// Reads RFC 3339.
    pub fn from_json(text: &str) -> Option<Self> {
        let instant: Instant = text.parse().ok()?;
        Some(Self { seconds: instant.as_second(), nanos: instant.subsec_nanosecond() }.normalised())
    }

    /// Writes RFC 3339 in UTC, with 0, 3, 6 or 9 digits after the point; `None` if out of range.
    pub fn to_json(self) -> Option<String> {
        let instant = Instant::new(self.seconds, 0).ok()?;
        let whole = instant.to_string();
        Some(format!("{}{}Z", whole.trim_end_matches('Z'), fraction(u32::try_from(self.nanos).ok()?)))
    }

    /// Protobuf counts nanoseconds forward, also before 1970.
    fn normalised(self) -> Self {
        if self.nanos >= 0 {
            return self;
        }
        Self { seconds: self.seconds - 1, nanos: self.nanos + 1_000_000_000 }
    }
}

fn fraction(nanos: u32) -> String {
    match nanos {
        0 => String::new(),
        n if n.is_multiple_of(1_000_000) => format!(".{:03}", n / 1_000_000),
        n if n.is_multiple_of(1_000) => format!(".{:06}", n / 1_000),
        n => format!(".{n:09}"),
    }
}

/// Wrapper messages are built from the value they wrap.
macro_rules! wrapper {
    ($($wrapper:ty: $inner:ty),* $(,)?) => {$(
        impl From<$inner> for $wrapper {
            fn from(value: $inner) -> Self {
                Self { value }
            }
        }
    )*};
}

wrapper! {
    BoolValue: bool,
    DoubleValue: f64,
    StringValue: String,
    UInt32Value: u32,
    UInt64Value: u64,
}

impl From<Vec<Value>> for ListValue {
    fn from(values: Vec<Value>) -> Self {
        Self { values }
    }
}

impl From<BTreeMap<String, Value>> for Struct {
    fn from(fields: BTreeMap<String, Value>) -> Self {
        Self { fields }
    }
}

/// A struct value is built from the value it holds.
macro_rules! value {
    ($($inner:ty => $kind:ident),* $(,)?) => {$(
        impl From<$inner> for Value {
            fn from(value: $inner) -> Self {
                Self { kind: Some(Kind::$kind(value.into())) }
            }
        }
    )*};
}

value! {
    bool => BoolValue,
    f64 => NumberValue,
    &str => StringValue,
    String => StringValue,
    Struct => StructValue,
    ListValue => ListValue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_text_round_trips_in_canonical_form() {
        for text in ["0s", "1s", "1.500s", "0.000001s", "0.000000001s", "-1.500s", "-0.100s", "315576000000s"]
        {
            assert_eq!(Duration::from_json(text).and_then(Duration::to_json).as_deref(), Some(text));
        }
        assert_eq!(Duration::from_json("1.5s"), Some(Duration { seconds: 1, nanos: 500_000_000 }));
    }

    #[test]
    fn duration_text_is_refused_when_not_decimal_seconds() {
        for text in ["", "s", "1", "1m", "1.0000000001s", "315576000001s", "--1s", "1e3s", " 1s", "-s"] {
            assert_eq!(Duration::from_json(text), None, "{text:?}");
        }
    }

    #[test]
    fn timestamp_text_round_trips_also_before_the_epoch() {
        for text in ["1970-01-01T00:00:00Z", "2026-11-15T23:00:00.250Z", "1969-12-31T23:59:59.500Z"] {
            assert_eq!(Timestamp::from_json(text).and_then(Timestamp::to_json).as_deref(), Some(text));
        }
        let offset = Timestamp::from_json("2020-01-01T01:00:00+01:00").and_then(Timestamp::to_json);
        assert_eq!(offset.as_deref(), Some("2020-01-01T00:00:00Z"));
    }
}
