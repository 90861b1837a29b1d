//! Floats in Go's words, for the formats whose texts come from Go.

/// The shortest text that reads back as the same number, in Go's `%g` form: `1.5`, `1e+06`, `1e-05`.
pub(crate) fn shortest(float: f64) -> String {
    if !float.is_finite() {
        return not_finite(float);
    }
    general(&format!("{float:e}"))
}

/// The same for a number first narrowed to single precision.
pub(crate) fn shortest_single(float: f64) -> String {
    let single = float as f32;
    if !single.is_finite() {
        return not_finite(single.into());
    }
    general(&format!("{single:e}"))
}

/// YAML's words for what is not a finite number.
fn not_finite(float: f64) -> String {
    let text = match float {
        f64::INFINITY => ".inf",
        f64::NEG_INFINITY => "-.inf",
        _ => ".nan",
    };
    text.to_owned()
}

/// Rewrites `1.5e7` to Go's choice between plain and exponent form.
fn general(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    if exponent < 0 {
        let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
        return format!("{sign}0.{}{digits}", "0".repeat(zeros));
    }
    let whole = usize::try_from(exponent).unwrap_or(0) + 1;
    if digits.len() <= whole {
        return format!("{sign}{digits:0<whole$}");
    }
    format!("{sign}{}.{}", &digits[..whole], &digits[whole..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_follows_the_exponent() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (-0.1, "-0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (123_456.75, "123456.75"),
            (1e21, "1e+21"),
            (5e-324, "5e-324"),
            (f64::INFINITY, ".inf"),
            (f64::NEG_INFINITY, "-.inf"),
            (f64::NAN, ".nan"),
        ];
        for (float, text) in cases {
            assert_eq!(shortest(float), text);
        }
    }

    #[test]
    fn single_precision_has_fewer_digits() {
        assert_eq!(shortest_single(123_456_789.5), "1.2345679e+08");
        assert_eq!(shortest_single(0.1), "0.1");
        assert_eq!(shortest_single(1e300), ".inf");
    }
}
