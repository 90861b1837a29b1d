//! Helm's helpers for durations.

use std::borrow::Cow;

use crate::error::CallError;
use crate::gofmt::{float, quote};
use crate::goparse;
use crate::sprig::duration;
use crate::value::{Function, Functions, Int64, Object, ObjectData, Value};

const SECOND: f64 = 1e9;

pub(super) fn add_to(functions: &mut Functions) {
    functions
        .add("mustToDuration", |value: Value| nanoseconds(&value).map(Duration))
        .add("durationMilliseconds", |value: Value| Int64(lenient(&value) / 1_000_000))
        .add("durationMicroseconds", |value: Value| Int64(lenient(&value) / 1_000))
        .add("durationNanoseconds", |value: Value| Int64(lenient(&value)))
        .add("durationSeconds", |value: Value| whole_and_rest(lenient(&value), 1_000_000_000))
        .add("durationMinutes", |value: Value| whole_and_rest(lenient(&value), 60_000_000_000))
        .add("durationHours", |value: Value| hours(&value))
        .add("durationDays", |value: Value| hours(&value) / 24.0)
        .add("durationWeeks", |value: Value| hours(&value) / 24.0 / 7.0)
        .add("durationRoundTo", |value: Value, unit: Value| rounded(&value, &unit, true))
        .add("durationTruncateTo", |value: Value, unit: Value| rounded(&value, &unit, false));
}

fn lenient(value: &Value) -> i64 {
    nanoseconds(value).unwrap_or(0)
}

fn hours(value: &Value) -> f64 {
    whole_and_rest(lenient(value), 3_600_000_000_000)
}

/// A duration in a unit, computed as Go does to get the same last digit.
fn whole_and_rest(nanos: i64, unit: i64) -> f64 {
    (nanos / unit) as f64 + (nanos % unit) as f64 / unit as f64
}

fn rounded(value: &Value, unit: &Value, to_nearest: bool) -> Duration {
    let Ok(nanos) = nanoseconds(value) else { return Duration(0) };
    let Some(unit) = nanoseconds(unit).ok().filter(|unit| *unit > 0) else { return Duration(nanos) };
    let rest = nanos % unit;
    let truncated = nanos - rest;
    if to_nearest && rest.unsigned_abs() >= unit.unsigned_abs().div_ceil(2) {
        return Duration(truncated.saturating_add(if nanos < 0 { -unit } else { unit }));
    }
    Duration(truncated)
}

fn nanoseconds(value: &Value) -> Result<i64, CallError> {
    match value {
        Value::Nil => Err("invalid duration".into()),
        Value::String(text) => {
            let text = text.to_text();
            let trimmed = text.trim();
            if trimmed.is_empty() {
                return Err("empty duration".into());
            }
            if let Ok(nanos) = duration::parse(trimmed) {
                return Ok(nanos);
            }
            match goparse::float(trimmed) {
                Some(seconds) => from_seconds(seconds),
                None => Err(format!("could not parse duration {}", quote::quoted(text.as_bytes())).into()),
            }
        }
        Value::Int(seconds, _) => seconds
            .checked_mul(1_000_000_000)
            .ok_or_else(|| format!("duration seconds overflow: {seconds}").into()),
        Value::Uint(seconds, _) => i64::try_from(*seconds)
            .ok()
            .and_then(|seconds| seconds.checked_mul(1_000_000_000))
            .ok_or_else(|| format!("duration seconds overflow: {seconds}").into()),
        Value::Float(seconds) => from_seconds(*seconds),
        Value::Object(object) if object.type_name() == "time.Duration" => match object.data() {
            ObjectData::Int(nanos) => Ok(nanos),
            _ => Ok(0),
        },
        other => Err(format!("unsupported duration type {}", other.type_name()).into()),
    }
}

fn from_seconds(seconds: f64) -> Result<i64, CallError> {
    let shown = || float::shortest(seconds);
    if !seconds.is_finite() {
        return Err(format!("invalid duration seconds: {}", shown()).into());
    }
    if seconds.abs() > i64::MAX as f64 / SECOND {
        return Err(format!("duration seconds overflow: {}", shown()).into());
    }
    Ok((seconds * SECOND) as i64)
}

/// A `time.Duration`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Duration(i64);

impl From<Duration> for Value {
    fn from(duration: Duration) -> Self {
        Self::object(duration)
    }
}

impl Object for Duration {
    fn type_name(&self) -> Cow<'static, str> {
        "time.Duration".into()
    }

    fn method(&self, name: &str) -> Option<Function> {
        let nanos = self.0;
        Some(match name {
            "String" => Function::new(move || duration::text(nanos)),
            "Seconds" => Function::new(move || whole_and_rest(nanos, 1_000_000_000)),
            "Minutes" => Function::new(move || whole_and_rest(nanos, 60_000_000_000)),
            "Hours" => Function::new(move || whole_and_rest(nanos, 3_600_000_000_000)),
            "Milliseconds" => Function::new(move || Int64(nanos / 1_000_000)),
            "Nanoseconds" => Function::new(move || Int64(nanos)),
            _ => return None,
        })
    }

    fn data(&self) -> ObjectData {
        ObjectData::Int(self.0)
    }

    fn print(&self) -> String {
        duration::text(self.0)
    }

    fn encode(&self) -> Value {
        Value::int64(self.0)
    }
}
