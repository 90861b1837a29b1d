//! Times and durations. All times are in UTC, and none is read from a clock.

mod civil;
pub(crate) mod duration;
mod layout;

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use civil::Civil;

use crate::error::CallError;
use crate::goparse;
use crate::value::{FromArg, Function, Functions, IntKind, Object, Type, Value};

const NO_CLOCK: &str = "the current time is not available: rendering here is repeatable";

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Time {
    /// Seconds since 1970.
    seconds: i64,
    nanos: u32,
}

/// Go's zero time: the first second of year 1.
const ZERO: Time = Time { seconds: -62_135_596_800, nanos: 0 };

pub(super) fn add_to(functions: &mut Functions, now: Option<SystemTime>) {
    let now = now.and_then(Time::from_system);
    functions
        .add("now", move || now.ok_or(CallError::from(NO_CLOCK)))
        .add("date", move |layout: String, value: Value| format(&layout, &value, now))
        .add("htmlDate", move |value: Value| format("2006-01-02", &value, now))
        .add("htmlDateInZone", move |value: Value, _zone: String| format("2006-01-02", &value, now))
        .add("toDate", |layout: String, text: String| layout::parse(&layout, &text).unwrap_or(ZERO))
        .add("mustToDate", |layout: String, text: String| layout::parse(&layout, &text))
        .add("unixEpoch", |time: Time| time.seconds.to_string())
        .add("ago", move |value: Value| {
            let now = now.ok_or(CallError::from(NO_CLOCK))?;
            let then = instant(&value, Some(now))?;
            let seconds = now.nanoseconds_since(then).div_euclid(1_000_000_000);
            Ok::<_, CallError>(duration::text(seconds.saturating_mul(1_000_000_000)))
        })
        .add("duration", |value: Value| {
            let seconds = match &value {
                Value::String(text) => goparse::int(&text.to_text(), 10).unwrap_or(0),
                Value::Int(int, IntKind::Int64) => *int,
                _ => 0,
            };
            duration::text(seconds.wrapping_mul(1_000_000_000))
        })
        .add("durationRound", move |value: Value| {
            let nanos = match &value {
                Value::String(text) => duration::parse(&text.to_text()).unwrap_or(0),
                Value::Int(int, IntKind::Int64) => *int,
                other => match (Time::from_value(other), now) {
                    (Some(time), Some(now)) => now.nanoseconds_since(time),
                    (Some(_), None) => return Err(CallError::from(NO_CLOCK)),
                    _ => 0,
                },
            };
            Ok(duration::rounded(nanos))
        });
    for name in ["dateInZone", "date_in_zone"] {
        functions.add(name, move |layout: String, value: Value, _zone: String| format(&layout, &value, now));
    }
    for name in ["dateModify", "date_modify"] {
        functions.add(name, |change: String, time: Time| {
            duration::parse(&change).map_or(time, |nanos| time.plus(nanos))
        });
    }
    for name in ["mustDateModify", "must_date_modify"] {
        functions.add(name, |change: String, time: Time| {
            duration::parse(&change).map(|nanos| time.plus(nanos)).map_err(CallError::from)
        });
    }
}

/// The time that a value stands for; one that is no time stands for now.
fn instant(value: &Value, now: Option<Time>) -> Result<Time, CallError> {
    match value {
        Value::Int(seconds, _) => Ok(Time { seconds: *seconds, nanos: 0 }),
        other => Time::from_value(other).or(now).ok_or_else(|| NO_CLOCK.into()),
    }
}

fn format(layout: &str, value: &Value, now: Option<Time>) -> Result<String, CallError> {
    Ok(layout::format(layout, instant(value, now)?))
}

impl Time {
    fn from_system(time: SystemTime) -> Option<Self> {
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        Some(Self { seconds: i64::try_from(since.as_secs()).ok()?, nanos: since.subsec_nanos() })
    }

    /// The time in a value, if it is one. Only this module makes objects of this type.
    fn from_value(value: &Value) -> Option<Self> {
        let Value::Object(object) = value else { return None };
        if object.type_name() != "time.Time" {
            return None;
        }
        let Value::Int(seconds, _) = object.field("\0seconds")? else { return None };
        let Value::Int(nanos, _) = object.field("\0nanos")? else { return None };
        Some(Self { seconds, nanos: u32::try_from(nanos).ok()? })
    }

    fn plus(self, nanos: i64) -> Self {
        let total = i64::from(self.nanos) + nanos.rem_euclid(1_000_000_000);
        let seconds = self
            .seconds
            .saturating_add(nanos.div_euclid(1_000_000_000))
            .saturating_add(total / 1_000_000_000);
        Self { seconds, nanos: u32::try_from(total % 1_000_000_000).unwrap_or(0) }
    }

    fn nanoseconds_since(self, earlier: Self) -> i64 {
        let seconds = self.seconds.saturating_sub(earlier.seconds);
        seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(self.nanos) - i64::from(earlier.nanos))
    }
}

impl FromArg for Time {
    const TYPE: Type = Type::Object(Cow::Borrowed("time.Time"));

    fn from_arg(value: Value) -> Self {
        Self::from_value(&value).unwrap_or(ZERO)
    }
}

impl From<Time> for Value {
    fn from(time: Time) -> Self {
        Self::object(time)
    }
}

impl Object for Time {
    fn type_name(&self) -> Cow<'static, str> {
        "time.Time".into()
    }

    fn field(&self, name: &str) -> Option<Value> {
        // Names that no template can write.
        match name {
            "\0seconds" => Some(Value::int64(self.seconds)),
            "\0nanos" => Some(Value::int64(self.nanos.into())),
            _ => None,
        }
    }

    fn method(&self, name: &str) -> Option<Function> {
        let time = *self;
        let civil = Civil::new(time.seconds);
        let int = |int: i64| Function::new(move || int);
        Some(match name {
            "Format" => Function::new(move |layout: String| layout::format(&layout, time)),
            "String" => Function::new(move || time.print()),
            "Unix" => Function::new(move || Value::int64(time.seconds)),
            "UTC" => Function::new(move || time),
            "Year" => int(civil.year),
            "Day" => int(civil.day),
            "YearDay" => int(civil.year_day),
            "Hour" => int(civil.hour),
            "Minute" => int(civil.minute),
            "Second" => int(civil.second),
            "Nanosecond" => int(time.nanos.into()),
            "IsZero" => Function::new(move || time == ZERO),
            _ => return None,
        })
    }

    fn print(&self) -> String {
        layout::format("2006-01-02 15:04:05.999999999 -0700 MST", *self)
    }

    fn encode(&self) -> Value {
        layout::format("2006-01-02T15:04:05.999999999Z07:00", *self).into()
    }
}
