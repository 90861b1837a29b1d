//! Go's durations: nanoseconds in 64 bits.

use crate::gofmt::quote;

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// `time.ParseDuration`.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    let shown = || quote::quoted(text.as_bytes());
    let invalid = || format!("time: invalid duration {}", shown());
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (digits, after) = rest.split_at(number);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let unit = after.len() - after.trim_start_matches(|c: char| c != '.' && !c.is_ascii_digit()).len();
        let (unit, after) = after.split_at(unit);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", shown()));
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!(
                "time: unknown unit {} in duration {}",
                quote::quoted(unit.as_bytes()),
                shown()
            ));
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let part =
            if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse::<f64>().unwrap_or(0.0) };
        total = whole
            .checked_mul(i128::from(*scale))
            .and_then(|nanos| nanos.checked_add((part * *scale as f64) as i128))
            .and_then(|nanos| nanos.checked_add(total))
            .filter(|nanos| *nanos <= 1 << 63)
            .ok_or_else(invalid)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

/// `time.Duration.String`: `1h2m3.5s`.
pub(crate) fn text(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".to_owned();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    let fraction = |value: u64, unit: u64| {
        let (whole, rest) = (value / unit, value % unit);
        let width = unit.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        let digits = digits.trim_end_matches('0');
        if rest == 0 { whole.to_string() } else { format!("{whole}.{digits}") }
    };
    match total {
        0..1_000 => return format!("{sign}{total}ns"),
        1_000..1_000_000 => return format!("{sign}{}µs", fraction(total, 1_000)),
        1_000_000..1_000_000_000 => return format!("{sign}{}ms", fraction(total, 1_000_000)),
        _ => {}
    }
    let minutes = total / 60_000_000_000;
    let seconds = fraction(total % 60_000_000_000, 1_000_000_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// The largest unit alone, as sprig's `durationRound` has it.
pub(super) fn rounded(nanos: i64) -> String {
    const HOUR: u64 = 3_600_000_000_000;
    let units = [
        ("y", HOUR * 24 * 365),
        ("mo", HOUR * 24 * 30),
        ("d", HOUR * 24),
        ("h", HOUR),
        ("m", HOUR / 60),
        ("s", HOUR / 3600),
    ];
    let total = nanos.unsigned_abs();
    let unit = units.iter().find(|(_, size)| total > *size);
    unit.map_or_else(|| "0s".to_owned(), |(name, size)| format!("{}{name}", total / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_back() {
        for written in
            ["0s", "1ns", "1.5µs", "2ms", "1.5s", "1m0s", "1h0m30s", "-2h5m0.25s", "2562047h47m16.854775807s"]
        {
            assert_eq!(parse(written).map(text), Ok(written.to_owned()));
        }
        assert_eq!(parse("1x"), Err("time: unknown unit \"x\" in duration \"1x\"".to_owned()));
        assert_eq!(parse("1"), Err("time: missing unit in duration \"1\"".to_owned()));
        assert_eq!(parse(""), Err("time: invalid duration \"\"".to_owned()));
    }
}
