//! Reading quantities.

use std::str::FromStr;

use super::{BINARY_SUFFIXES, DECIMAL_SUFFIXES, NANOS_PER_UNIT, Notation, Quantity};

/// Why a text is not a quantity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidQuantity {
    /// The text is not a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Form,
    /// The letters behind the number are no known suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// The number is too large to be kept exactly.
    #[error("quantity is out of range")]
    Range,
}

/// The number of decimal digits that always fit `i64`.
const SAFE_DIGITS: i32 = 18;
/// The most a binary quantity can be; larger ones become this.
const BINARY_MAX: i128 = i64::MAX as i128 * NANOS_PER_UNIT;

/// A quantity's text taken apart.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; `0` if there are none.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

/// What a suffix multiplies by.
enum Multiplier {
    PowerOfTwo(u32),
    PowerOfTen(i32),
}

impl FromStr for Quantity {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let parts = Parts::split(text)?;
        let (multiplier, notation) = interpret(parts.suffix)?;
        let magnitude = match multiplier {
            Multiplier::PowerOfTwo(bits) => parts.times_power_of_two(bits),
            Multiplier::PowerOfTen(exponent) => parts.times_power_of_ten(exponent)?,
        };
        let below_one = (1..NANOS_PER_UNIT).contains(&magnitude);
        let verbatim = parts.is_kept_verbatim(&multiplier).then(|| text.into());
        Ok(Self {
            nanos: if parts.negative { -magnitude } else { magnitude },
            notation: if notation == Notation::BinarySi && below_one {
                Notation::DecimalSi
            } else {
                notation
            },
            verbatim,
        })
    }
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, InvalidQuantity> {
        if text.is_empty() {
            return Err(InvalidQuantity::Form);
        }
        // Parity: a sign or a point without any digit is a zero.
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_while(unsigned, |b| b.is_ascii_digit());
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_while(rest, |b| b.is_ascii_digit()),
            None => ("", rest),
        };
        let (_, exponent) = split_while(suffix, |b| b"eEinumkKMGTP".contains(&b));
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(InvalidQuantity::Form);
        }
        let whole = match whole.trim_start_matches('0') {
            "" => "0",
            significant => significant,
        };
        Ok(Self { negative: text.starts_with('-'), whole, fraction, suffix })
    }

    /// The amount in billionths, rounded up and at most [`BINARY_MAX`].
    fn times_power_of_two(&self, bits: u32) -> i128 {
        let scale = NANOS_PER_UNIT << bits;
        // Horner from the last digit: dividing at each step rounds down as dividing once at the end would.
        let (mut fraction, mut inexact) = (0i128, false);
        for digit in self.fraction.bytes().rev().map(|b| i128::from(b - b'0')) {
            let sum = digit * scale + fraction;
            inexact |= sum % 10 != 0;
            fraction = sum / 10;
        }
        let whole = self.whole.parse::<i128>().ok().and_then(|whole| whole.checked_mul(scale));
        let total = whole.and_then(|whole| whole.checked_add(fraction + i128::from(inexact)));
        total.map_or(BINARY_MAX, |total| total.min(BINARY_MAX))
    }

    /// The amount in billionths, rounded up.
    fn times_power_of_ten(&self, exponent: i32) -> Result<i128, InvalidQuantity> {
        let digits = format!("{}{}", self.whole, self.fraction);
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(0);
        }
        let places = i64::try_from(self.fraction.len()).map_err(|_| InvalidQuantity::Range)?;
        let shift = i64::from(exponent) + 9 - places;
        let dropped = usize::try_from(-shift).unwrap_or(0).min(digits.len());
        let (kept, rounded_off) = digits.split_at(digits.len() - dropped);
        let inexact = rounded_off.bytes().any(|b| b != b'0');
        let kept: i128 =
            if kept.is_empty() { 0 } else { kept.parse().map_err(|_| InvalidQuantity::Range)? };
        let factor = 10i128.checked_pow(u32::try_from(shift.max(0)).unwrap_or(u32::MAX));
        let total = factor.and_then(|factor| kept.checked_mul(factor));
        total.and_then(|total| total.checked_add(inexact.into())).ok_or(InvalidQuantity::Range)
    }

    /// Whether Kubernetes gives this text back instead of the canonical one.
    ///
    /// Parity: it does so for texts that its quick test takes for canonical, some of which (`1.500`, `+5`) are not.
    fn is_kept_verbatim(&self, multiplier: &Multiplier) -> bool {
        let whole_digits = i32::try_from(self.whole.len()).unwrap_or(i32::MAX);
        let fraction_digits = i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
        match *multiplier {
            Multiplier::PowerOfTen(exponent) => {
                let Some(scale) = exponent.checked_sub(fraction_digits) else {
                    return false;
                };
                whole_digits.saturating_add(fraction_digits) <= SAFE_DIGITS
                    && scale >= -9
                    && scale % 3 == 0
                    && !self.whole.starts_with('0')
                    && !format!("{}{}", self.whole, self.fraction).ends_with("000")
            }
            Multiplier::PowerOfTwo(bits) => {
                let room = 14 - whole_digits - (bits as f32 * 3.0 / 10.0) as i32;
                let odd = self.whole.parse::<i64>().is_ok_and(|whole| whole & 7 != 0);
                self.fraction.is_empty() && room >= 0 && odd
            }
        }
    }
}

fn interpret(suffix: &str) -> Result<(Multiplier, Notation), InvalidQuantity> {
    if let Some((exponent, _)) = DECIMAL_SUFFIXES.iter().find(|(_, name)| *name == suffix) {
        return Ok((Multiplier::PowerOfTen(*exponent), Notation::DecimalSi));
    }
    if let Some((bits, _)) = BINARY_SUFFIXES.iter().find(|(_, name)| *name == suffix) {
        return Ok((Multiplier::PowerOfTwo(*bits), Notation::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(InvalidQuantity::Suffix)?;
    let exponent = exponent.parse().map_err(|_| InvalidQuantity::Suffix)?;
    Ok((Multiplier::PowerOfTen(exponent), Notation::DecimalExponent))
}

fn split_while(text: &str, holds: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|b| !holds(b)).unwrap_or(text.len());
    text.split_at(end)
}
