//! Kubernetes resource quantities: `500m`, `1.5Gi`, `2e3`.

mod parse;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

pub use parse::InvalidQuantity;

/// One unit in billionths.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// One thousandth in billionths.
const NANOS_PER_MILLI: i128 = 1_000_000;

/// An exact amount with the notation it was written in. Comparison looks at the amount alone.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    /// Finer amounts do not exist: reading rounds them up.
    nanos: i128,
    notation: Notation,
    /// The text it was read from, where Kubernetes gives that back unchanged.
    verbatim: Option<Box<str>>,
}

/// How a quantity is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Notation {
    /// Powers of a thousand: `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`.
    #[default]
    DecimalSi,
    /// Powers of 1024: `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`.
    BinarySi,
    /// A decimal exponent: `2e3`.
    DecimalExponent,
}

const DECIMAL_SUFFIXES: [(i32, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY_SUFFIXES: [(u32, &str); 6] =
    [(10, "Ki"), (20, "Mi"), (30, "Gi"), (40, "Ti"), (50, "Pi"), (60, "Ei")];

impl Quantity {
    /// A quantity of so many units.
    pub fn from_units(units: i64, notation: Notation) -> Self {
        Self { nanos: i128::from(units) * NANOS_PER_UNIT, notation, verbatim: None }
    }

    /// A quantity of so many thousandths.
    pub fn from_millis(millis: i64, notation: Notation) -> Self {
        Self { nanos: i128::from(millis) * NANOS_PER_MILLI, notation, verbatim: None }
    }

    /// The amount in whole units, rounded away from zero, at most what fits.
    pub fn value(&self) -> i64 {
        clamp(divide_away_from_zero(self.nanos, NANOS_PER_UNIT))
    }

    /// The amount in thousandths, rounded away from zero, at most what fits.
    pub fn milli_value(&self) -> i64 {
        clamp(divide_away_from_zero(self.nanos, NANOS_PER_MILLI))
    }

    /// The nearest float.
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANOS_PER_UNIT as f64
    }

    /// Whether it is nothing.
    pub const fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether it is below nothing.
    pub const fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// The notation it is written in.
    pub const fn notation(&self) -> Notation {
        self.notation
    }

    /// The canonical text: the largest suffix that leaves an integer.
    pub fn canonical(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        let units = self.nanos / NANOS_PER_UNIT;
        let whole = self.nanos % NANOS_PER_UNIT == 0;
        // Parity: below 1024, and for what is not whole, the binary notation falls back to the decimal one.
        let small = self.nanos.abs() < 1024 * NANOS_PER_UNIT;
        match self.notation {
            Notation::BinarySi if whole && !small => canonical_binary(units),
            Notation::DecimalExponent => canonical_decimal(self.nanos, i32::MAX, |e| match e {
                0 => String::new(),
                _ => format!("e{e}"),
            }),
            _ => canonical_decimal(self.nanos, 18, |e| decimal_suffix(e).to_owned()),
        }
    }
}

fn canonical_binary(mut units: i128) -> String {
    let mut suffix = "";
    for (_, next) in BINARY_SUFFIXES {
        if units % 1024 != 0 {
            break;
        }
        units /= 1024;
        suffix = next;
    }
    format!("{units}{suffix}")
}

/// Moves factors of a thousand into an exponent of at most `max_exponent`.
fn canonical_decimal(nanos: i128, max_exponent: i32, suffix: impl Fn(i32) -> String) -> String {
    let (mut amount, mut exponent) = (nanos, -9);
    while amount % 1000 == 0 && exponent + 3 <= max_exponent {
        amount /= 1000;
        exponent += 3;
    }
    format!("{amount}{}", suffix(exponent))
}

fn decimal_suffix(exponent: i32) -> &'static str {
    DECIMAL_SUFFIXES.iter().find(|(candidate, _)| *candidate == exponent).map_or("", |(_, suffix)| suffix)
}

fn divide_away_from_zero(amount: i128, divisor: i128) -> i128 {
    amount / divisor + if amount % divisor == 0 { 0 } else { amount.signum() }
}

fn clamp(amount: i128) -> i64 {
    amount.try_into().unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

impl fmt::Display for Quantity {
    /// The text as it was read where Kubernetes keeps it, else the canonical one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verbatim {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.canonical()),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuantityVisitor;

        impl Visitor<'_> for QuantityVisitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 500m or 1Gi")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.trim().parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, units: i64) -> Result<Quantity, E> {
                self.visit_str(&units.to_string())
            }

            fn visit_u64<E: de::Error>(self, units: u64) -> Result<Quantity, E> {
                self.visit_str(&units.to_string())
            }

            fn visit_f64<E: de::Error>(self, units: f64) -> Result<Quantity, E> {
                self.visit_str(&units.to_string())
            }
        }

        deserializer.deserialize_any(QuantityVisitor)
    }
}
