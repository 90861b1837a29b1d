//! Values in messages, as Go prints them.

use std::fmt::Write;

/// A text in quotes, as Go's `%q` has it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' '..='~' => out.push(c),
            _ if is_printable(c) => out.push(c),
            '\0'..='\u{7f}' => write(&mut out, format_args!("\\x{:02x}", u32::from(c))),
            '\u{80}'..='\u{ffff}' => write(&mut out, format_args!("\\u{:04x}", u32::from(c))),
            _ => write(&mut out, format_args!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Whether a character outside ASCII is shown as it is. The standard library escapes what is not, except that it also
/// escapes a combining mark with nothing before it.
fn is_printable(c: char) -> bool {
    !c.is_ascii() && format!("a{c}").escape_debug().count() == 2
}

/// A number as Go's `%v` has it: the shortest text that reads back, with an exponent only when very small or large.
pub(crate) fn number(float: f64) -> String {
    if let Some(text) = not_finite(float) {
        return text.to_owned();
    }
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..21 => float.to_string(),
        small if small < 0 => format!("{mantissa}e-{:02}", small.unsigned_abs()),
        large => format!("{mantissa}e+{large:02}"),
    }
}

/// A number as Go's `%f` has it: six digits after the point.
pub(super) fn fixed(float: f64) -> String {
    not_finite(float).map_or_else(|| format!("{float:.6}"), str::to_owned)
}

fn not_finite(float: f64) -> Option<&'static str> {
    match float {
        f64::INFINITY => Some("+Inf"),
        f64::NEG_INFINITY => Some("-Inf"),
        _ if float.is_nan() => Some("NaN"),
        _ => None,
    }
}

fn write(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_as_go_quotes_it() {
        let cases = [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("tab\tnul\0del\u{7f}bell\u{7}", r#""tab\tnul\x00del\x7fbell\a""#),
            ("é e\u{301} 日本 🦀", "\"é e\u{301} 日本 🦀\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{a0}\u{ad}\u{feff}\u{e000}", r#""\u00a0\u00ad\ufeff\ue000""#),
            ("\u{f0000}", r#""\U000f0000""#),
        ];
        for (text, expected) in cases {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn number_has_an_exponent_only_when_very_small_or_large() {
        let cases = [
            (0.0, "0", "0.000000"),
            (100.1, "100.1", "100.100000"),
            (-1.0, "-1", "-1.000000"),
            (0.00005, "5e-05", "0.000050"),
            (0.0001, "0.0001", "0.000100"),
            (1e20, "100000000000000000000", "100000000000000000000.000000"),
            (1.5e21, "1.5e+21", "1500000000000000000000.000000"),
            (f64::INFINITY, "+Inf", "+Inf"),
            (f64::NAN, "NaN", "NaN"),
        ];
        for (float, shortest, six_digits) in cases {
            assert_eq!((number(float).as_str(), fixed(float).as_str()), (shortest, six_digits));
        }
    }
}
