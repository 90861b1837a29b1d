//! Parts of points in time, in UTC, and of spans of time.

use jiff::Zoned;
use jiff::tz::TimeZone;

use super::{Builtin, Cost, method, no_overload};
use crate::crd::cel::error::Result;
use crate::crd::cel::value::Value;

pub(super) const BUILTINS: &[Builtin] = &[
    method("getFullYear", 1..=1, Cost::One, |_, args| date_part(&args[0], |at| i64::from(at.year()))),
    method("getMonth", 1..=1, Cost::One, |_, args| date_part(&args[0], |at| i64::from(at.month()) - 1)),
    method("getDate", 1..=1, Cost::One, |_, args| date_part(&args[0], |at| i64::from(at.day()))),
    method("getDayOfMonth", 1..=1, Cost::One, |_, args| date_part(&args[0], |at| i64::from(at.day()) - 1)),
    method("getDayOfYear", 1..=1, Cost::One, |_, args| {
        date_part(&args[0], |at| i64::from(at.day_of_year()) - 1)
    }),
    method("getDayOfWeek", 1..=1, Cost::One, |_, args| {
        date_part(&args[0], |at| i64::from(at.weekday().to_sunday_zero_offset()))
    }),
    method("getHours", 1..=1, Cost::One, |_, args| {
        time_part(&args[0], |at| i64::from(at.hour()), |nanos| nanos / 3_600_000_000_000)
    }),
    method("getMinutes", 1..=1, Cost::One, |_, args| {
        time_part(&args[0], |at| i64::from(at.minute()), |nanos| nanos / 60_000_000_000)
    }),
    method("getSeconds", 1..=1, Cost::One, |_, args| {
        time_part(&args[0], |at| i64::from(at.second()), |nanos| nanos / 1_000_000_000)
    }),
    method("getMilliseconds", 1..=1, Cost::One, |_, args| {
        time_part(&args[0], |at| i64::from(at.millisecond()), |nanos| nanos / 1_000_000)
    }),
];

fn date_part<'a>(value: &Value<'_>, part: fn(&Zoned) -> i64) -> Result<Value<'a>> {
    match value {
        Value::Timestamp(at) => Ok(part(&at.to_zoned(TimeZone::UTC)).into()),
        _ => no_overload(),
    }
}

/// A part of the time of day, or how many whole units a span has.
fn time_part<'a>(value: &Value<'_>, part: fn(&Zoned) -> i64, units: fn(i64) -> i64) -> Result<Value<'a>> {
    match value {
        Value::Duration(duration) => Ok(units(duration.as_nanos()).into()),
        value => date_part(value, part),
    }
}
