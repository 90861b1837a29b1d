//! `strconv.FormatFloat`.

/// How a float is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `1.5e+07`.
    Exponent,
    /// `15000000`.
    Fixed,
    /// Whichever of the two is shorter.
    General,
    /// `0x1.8p+01`.
    Hex,
    /// `6755399441055744p-51`.
    Binary,
}

/// Formats a float; without a precision, as few digits as identify it.
pub(crate) fn format(float: f64, form: Form, precision: Option<usize>) -> String {
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    match (form, precision) {
        (Form::Exponent, None) => exponent(&format!("{float:e}")),
        (Form::Exponent, Some(precision)) => exponent(&format!("{float:.precision$e}")),
        (Form::Fixed, None) => format!("{float}"),
        (Form::Fixed, Some(precision)) => format!("{float:.precision$}"),
        (Form::General, precision) => general(float, precision),
        (Form::Hex, precision) => hex(float, precision),
        (Form::Binary, _) => {
            let (sign, mantissa, power) = parts(float);
            format!("{sign}{mantissa}p{power:+}")
        }
    }
}

/// The shortest text as `%v` prints it: `1.5`, `1e+06`.
pub(crate) fn shortest(float: f64) -> String {
    format(float, Form::General, None)
}

/// A float as `encoding/json` writes it: exponents only for the very large and very small.
pub(crate) fn json(float: f64) -> String {
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        // Parity: one-digit negative exponents lose their leading zero.
        return format(float, Form::Exponent, None).replace("e-0", "e-");
    }
    format(float, Form::Fixed, None)
}

/// Rewrites `1.5e7` to `1.5e+07`.
fn exponent(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Sign, mantissa and the power of two it is multiplied with.
fn parts(float: f64) -> (&'static str, u64, i64) {
    let bits = float.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let exponent = i64::try_from(bits >> 52 & 0x7ff).unwrap_or(0);
    let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
    (if float.is_sign_negative() { "-" } else { "" }, mantissa, exponent.max(1) - 1075)
}

fn hex(float: f64, precision: Option<usize>) -> String {
    let (sign, mut mantissa, mut power) = parts(float);
    if mantissa == 0 {
        power = -60;
    }
    // The leading one goes to bit 60, so that whole digits follow it.
    while mantissa != 0 && mantissa < 1 << 60 {
        mantissa <<= 1;
        power -= 1;
    }
    if let Some(digits) = precision.filter(|digits| *digits < 15) {
        let dropped = 60 - 4 * digits;
        let (kept, rest, half) = (mantissa >> dropped, mantissa & ((1 << dropped) - 1), 1 << (dropped - 1));
        let up = rest > half || (rest == half && kept & 1 == 1);
        mantissa = (kept + u64::from(up)) << dropped;
        if mantissa & 1 << 61 != 0 {
            mantissa >>= 1;
            power += 1;
        }
    }
    let power = power + 60;
    let digits = format!("{:015x}", mantissa & ((1 << 60) - 1));
    let digits = match precision {
        None => digits.trim_end_matches('0').to_owned(),
        Some(precision) => format!("{:0<precision$}", &digits[..precision.min(15)]),
    };
    let point = if digits.is_empty() { "" } else { "." };
    let direction = if power < 0 { '-' } else { '+' };
    format!("{sign}0x{}{point}{digits}p{direction}{:02}", mantissa >> 60, power.abs())
}

fn general(float: f64, precision: Option<usize>) -> String {
    let scientific = match precision {
        None => format!("{float:e}"),
        Some(precision) => format!("{float:.*e}", precision.max(1) - 1),
    };
    let (mantissa, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let mut digits = mantissa.replace('.', "");
    digits.truncate(digits.trim_end_matches('0').len().max(1));
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let threshold = match precision {
        None => 6,
        Some(precision) => {
            let precision = i32::try_from(precision.max(1)).unwrap_or(i32::MAX);
            if precision > count && count > power { count } else { precision }
        }
    };
    // A zero has no digits for Go, and never an exponent.
    let zero = digits == "0";
    if !zero && (power < -4 || power >= threshold) {
        let (head, tail) = digits.split_at(1);
        let point = if tail.is_empty() { "" } else { "." };
        return exponent(&format!("{sign}{head}{point}{tail}e{power}"));
    }
    format!("{sign}{}", fixed(&digits, power))
}

/// Places the decimal point: `power` is the exponent of the first digit.
fn fixed(digits: &str, power: i32) -> String {
    if power < 0 {
        let zeros = usize::try_from(-power - 1).unwrap_or(0);
        return format!("0.{}{digits}", "0".repeat(zeros));
    }
    let whole = usize::try_from(power).unwrap_or(0) + 1;
    if digits.len() <= whole {
        return format!("{digits:0<whole$}");
    }
    format!("{}.{}", &digits[..whole], &digits[whole..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_form_switches_to_exponents() {
        let cases = [
            (0.0, None, "0"),
            (1.5, None, "1.5"),
            (1e6, None, "1e+06"),
            (123_456.0, None, "123456"),
            (1_234_567.0, None, "1.234567e+06"),
            (1e-5, None, "1e-05"),
            (0.0001, None, "0.0001"),
            (1234.5678, Some(3), "1.23e+03"),
            (100.0, Some(3), "100"),
            (1e20, Some(30), "100000000000000000000"),
            (0.00012, Some(2), "0.00012"),
        ];
        for (float, precision, expected) in cases {
            assert_eq!(format(float, Form::General, precision), expected, "{float} {precision:?}");
        }
    }

    #[test]
    fn json_form_avoids_exponents() {
        let cases = [(1e6, "1000000"), (1e21, "1e+21"), (1e-7, "1e-7"), (1.5e-12, "1.5e-12"), (0.1, "0.1")];
        for (float, expected) in cases {
            assert_eq!(json(float), expected);
        }
    }
}
