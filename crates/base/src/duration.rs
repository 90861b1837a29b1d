//! Durations in the two texts users meet: Go's (`1h30m`, `1.5s`, `250ms`) and protobuf JSON's (`1.5s`, seconds only).

mod proto;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use proto::{InvalidProtoDuration, ProtoDuration};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The magnitude of the most negative duration, one more than the most positive can have.
const MAX_MAGNITUDE: u64 = 1 << 63;

/// A span of time as Go has it: signed nanoseconds, up to about 292 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Duration {
    nanos: i64,
}

impl Duration {
    /// The empty duration.
    pub const ZERO: Self = Self { nanos: 0 };

    /// A duration of so many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// A duration of so many milliseconds, clamped to the range.
    pub const fn from_millis(millis: i64) -> Self {
        Self { nanos: millis.saturating_mul(MILLISECOND as i64) }
    }

    /// A duration of so many seconds, clamped to the range.
    pub const fn from_secs(seconds: i64) -> Self {
        Self { nanos: seconds.saturating_mul(SECOND as i64) }
    }

    /// The length in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.nanos
    }

    /// The length in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.nanos as f64 / SECOND as f64
    }

    /// Whether it is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The standard library's duration; `None` below zero.
    pub fn to_std(self) -> Option<time::Duration> {
        u64::try_from(self.nanos).ok().map(time::Duration::from_nanos)
    }
}

impl TryFrom<time::Duration> for Duration {
    type Error = std::num::TryFromIntError;

    fn try_from(duration: time::Duration) -> Result<Self, Self::Error> {
        duration.as_nanos().try_into().map(Self::from_nanos)
    }
}

/// Why a text is not a Go duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidDuration {
    /// The text is not a sequence of numbers with units, or the sum overflows.
    #[error("time: invalid duration {}", quoted(text))]
    Form {
        /// The text.
        text: Box<str>,
    },
    /// A number without a unit.
    #[error("time: missing unit in duration {}", quoted(text))]
    MissingUnit {
        /// The text.
        text: Box<str>,
    },
    /// A unit that is none of `ns`, `us`, `ms`, `s`, `m`, `h`.
    #[error("time: unknown unit {} in duration {}", quoted(unit), quoted(text))]
    UnknownUnit {
        /// The unit.
        unit: Box<str>,
        /// The text.
        text: Box<str>,
    },
}

/// The text in quotes, with everything but printable ASCII spelt in hexadecimal, as Go's messages have it.
fn quoted(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    format!("\"{}\"", text.bytes().map(escape).collect::<String>())
}

impl FromStr for Duration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let invalid = || InvalidDuration::Form { text: text.into() };
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if unsigned == "0" {
            return Ok(Self::ZERO);
        }
        if unsigned.is_empty() {
            return Err(invalid());
        }
        let mut total = 0u64;
        let mut rest = unsigned;
        while !rest.is_empty() {
            let (number, after) = Decimal::read(rest).ok_or_else(invalid)?;
            let (unit, after) = read_unit(text, after)?;
            let nanos = number.times(unit).ok_or_else(invalid)?;
            total = total.checked_add(nanos).filter(|total| *total <= MAX_MAGNITUDE).ok_or_else(invalid)?;
            rest = after;
        }
        let nanos =
            if text.starts_with('-') { 0i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() };
        nanos.map(Self::from_nanos).ok_or_else(invalid)
    }
}

/// A decimal number without sign, as integer part and fraction over a power of ten.
struct Decimal {
    whole: u64,
    fraction: u64,
    scale: f64,
}

impl Decimal {
    /// Reads digits with an optional point among or around them.
    fn read(text: &str) -> Option<(Self, &str)> {
        let (whole_digits, rest) = split_digits(text);
        let (fraction_digits, rest) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        if whole_digits.is_empty() && fraction_digits.is_empty() {
            return None;
        }
        let whole = if whole_digits.is_empty() { 0 } else { whole_digits.parse().ok()? };
        if whole > MAX_MAGNITUDE {
            return None;
        }
        let (fraction, scale) = read_fraction(fraction_digits);
        Some((Self { whole, fraction, scale }, rest))
    }

    /// The number times a unit, in whole nanoseconds; `None` beyond [`MAX_MAGNITUDE`].
    fn times(self, unit: u64) -> Option<u64> {
        let whole = self.whole.checked_mul(unit).filter(|nanos| *nanos <= MAX_MAGNITUDE)?;
        // Parity: the fraction goes through a float, so that its last digits come out as Go's do.
        let fraction = (self.fraction as f64 * (unit as f64 / self.scale)) as u64;
        whole.checked_add(fraction).filter(|nanos| *nanos <= MAX_MAGNITUDE)
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The digits behind the point and the power of ten they are over; digits that no longer fit are dropped.
fn read_fraction(digits: &str) -> (u64, f64) {
    let (mut fraction, mut scale) = (0u64, 1.0);
    for digit in digits.bytes().map(|b| u64::from(b - b'0')) {
        if fraction > (MAX_MAGNITUDE - 1) / 10 {
            break;
        }
        let next = fraction * 10 + digit;
        if next > MAX_MAGNITUDE {
            break;
        }
        fraction = next;
        scale *= 10.0;
    }
    (fraction, scale)
}

fn read_unit<'a>(text: &str, rest: &'a str) -> Result<(u64, &'a str), InvalidDuration> {
    let end = rest.bytes().position(|b| b == b'.' || b.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let nanos = match unit {
        "ns" => 1,
        // The micro sign and the Greek letter look alike; both are accepted.
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        "" => return Err(InvalidDuration::MissingUnit { text: text.into() }),
        _ => {
            return Err(InvalidDuration::UnknownUnit { unit: unit.into(), text: text.into() });
        }
    };
    Ok((nanos, rest))
}

impl fmt::Display for Duration {
    /// `72h3m0.5s`: hours are the largest unit, leading zero units are left out, and below a second one unit is used.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if self.is_negative() {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..MICROSECOND => write!(f, "{nanos}ns"),
            MICROSECOND..MILLISECOND => write_decimal(f, nanos, MICROSECOND, "\u{b5}s"),
            MILLISECOND..SECOND => write_decimal(f, nanos, MILLISECOND, "ms"),
            SECOND.. => {
                if nanos >= HOUR {
                    write!(f, "{}h", nanos / HOUR)?;
                }
                if nanos >= MINUTE {
                    write!(f, "{}m", nanos % HOUR / MINUTE)?;
                }
                write_decimal(f, nanos % MINUTE, SECOND, "s")
            }
        }
    }
}

/// Writes `nanos` in a unit, with as many decimals as it needs.
fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64, name: &str) -> fmt::Result {
    let (whole, fraction) = (nanos / unit, nanos % unit);
    if fraction == 0 {
        return write!(f, "{whole}{name}");
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{fraction:0width$}");
    write!(f, "{whole}.{}{name}", digits.trim_end_matches('0'))
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
