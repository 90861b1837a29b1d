//! Protobuf's `Duration` in its JSON form: a decimal number of seconds with up to nine decimals and the suffix `s`.

use std::fmt;
use std::str::FromStr;

use super::{Duration, SECOND};

/// Ten thousand years, the range protobuf gives durations.
const MAX_SECONDS: i64 = 315_576_000_000;

/// Seconds and nanoseconds of the same sign, within ten thousand years either way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProtoDuration {
    seconds: i64,
    nanos: i32,
}

/// Why a text or a pair of fields is not a protobuf duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidProtoDuration {
    /// The text is not a decimal number followed by `s`.
    #[error("invalid google.protobuf.Duration value {text:?}")]
    Form {
        /// The text.
        text: Box<str>,
    },
    /// The duration is longer than ten thousand years.
    #[error("google.protobuf.Duration value out of range: {text:?}")]
    TextRange {
        /// The text.
        text: Box<str>,
    },
    /// The seconds are out of range.
    #[error("google.protobuf.Duration: seconds out of range {seconds}")]
    Seconds {
        /// The seconds.
        seconds: i64,
    },
    /// The nanoseconds make a second or more.
    #[error("google.protobuf.Duration: nanos out of range {nanos}")]
    Nanos {
        /// The nanoseconds.
        nanos: i32,
    },
    /// One field is positive and the other negative.
    #[error("google.protobuf.Duration: signs of seconds and nanos do not match")]
    Signs,
}

impl ProtoDuration {
    /// A duration of these two fields, checked.
    pub fn new(seconds: i64, nanos: i32) -> Result<Self, InvalidProtoDuration> {
        if seconds.abs_diff(0) > MAX_SECONDS as u64 {
            return Err(InvalidProtoDuration::Seconds { seconds });
        }
        if u64::from(nanos.unsigned_abs()) >= SECOND {
            return Err(InvalidProtoDuration::Nanos { nanos });
        }
        if seconds.signum() * i64::from(nanos.signum()) < 0 {
            return Err(InvalidProtoDuration::Signs);
        }
        Ok(Self { seconds, nanos })
    }

    /// The `seconds` field.
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// The `nanos` field.
    pub const fn nanos(self) -> i32 {
        self.nanos
    }

    /// Go's duration, at its nearest end if this one is beyond its 292 years.
    pub fn to_duration(self) -> Duration {
        let second = SECOND as i64;
        Duration::from_nanos(self.seconds.saturating_mul(second).saturating_add(self.nanos.into()))
    }
}

impl From<Duration> for ProtoDuration {
    fn from(duration: Duration) -> Self {
        let second = SECOND as i64;
        let (seconds, nanos) = (duration.as_nanos() / second, duration.as_nanos() % second);
        Self { seconds, nanos: i32::try_from(nanos).expect("a remainder of a division by one second fits") }
    }
}

impl FromStr for ProtoDuration {
    type Err = InvalidProtoDuration;

    fn from_str(text: &str) -> Result<Self, InvalidProtoDuration> {
        let invalid = || InvalidProtoDuration::Form { text: text.into() };
        let number = text.strip_suffix('s').ok_or_else(invalid)?;
        let unsigned = number.strip_prefix(['-', '+']).unwrap_or(number);
        let (whole, fraction) = match unsigned.split_once('.') {
            Some((whole, fraction)) => (whole, fraction),
            None if unsigned.is_empty() => return Err(invalid()),
            None => (unsigned, ""),
        };
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if !digits(whole) || !digits(fraction) || fraction.len() > 9 || leading_zero {
            return Err(invalid());
        }
        let seconds: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let nanos: i32 = format!("{fraction:0<9}").parse().map_err(|_| invalid())?;
        if seconds > MAX_SECONDS {
            return Err(InvalidProtoDuration::TextRange { text: text.into() });
        }
        let sign = if number.starts_with('-') { -1 } else { 1 };
        Ok(Self { seconds: seconds * i64::from(sign), nanos: nanos * sign })
    }
}

impl fmt::Display for ProtoDuration {
    /// None, three, six or nine decimals, whichever is the fewest that suffices.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.seconds < 0 || self.nanos < 0 { "-" } else { "" };
        let (seconds, nanos) = (self.seconds.unsigned_abs(), self.nanos.unsigned_abs());
        match nanos {
            0 => write!(f, "{sign}{seconds}s"),
            _ if nanos % 1_000_000 == 0 => write!(f, "{sign}{seconds}.{:03}s", nanos / 1_000_000),
            _ if nanos % 1_000 == 0 => write!(f, "{sign}{seconds}.{:06}s", nanos / 1_000),
            _ => write!(f, "{sign}{seconds}.{nanos:09}s"),
        }
    }
}
