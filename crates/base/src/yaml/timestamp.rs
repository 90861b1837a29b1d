//! What looks like a point in time. Such scalars stay strings, but must be quoted when written.

/// Whether a text is a date, or a date with a time, in one of the forms YAML readers take for a timestamp.
pub(super) fn is_timestamp(text: &str) -> bool {
    let Some(rest) = date(text) else { return false };
    match rest.as_bytes().first() {
        None => true,
        Some(b'T' | b't') => time(&rest[1..]).is_some_and(is_zone),
        Some(b' ') => time(&rest[1..]).is_some_and(str::is_empty),
        _ => false,
    }
}

/// `YYYY-M-D`, and what follows it.
fn date(text: &str) -> Option<&str> {
    let (year, rest) = digits(text, 4)?;
    if text.len() - rest.len() != 4 {
        return None;
    }
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    ((1..=12).contains(&month) && (1..=days_in(month, year)).contains(&day)).then_some(rest)
}

fn days_in(month: u32, year: u32) -> u32 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `h:m:s` with an optional fraction, and what follows it.
fn time(text: &str) -> Option<&str> {
    let (hour, rest) = digits(text, 2)?;
    let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = digits(rest.strip_prefix(':')?, 2)?;
    let fraction =
        rest.strip_prefix(['.', ',']).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let rest = fraction.map_or(rest, |fraction| fraction.trim_start_matches(|c: char| c.is_ascii_digit()));
    (hour < 24 && minute < 60 && second < 60).then_some(rest)
}

/// `Z`, or an offset of two-digit hours and minutes.
fn is_zone(text: &str) -> bool {
    let Some(offset) = text.strip_prefix(['+', '-']) else { return text == "Z" };
    let well_formed = offset.len() == 5 && offset.as_bytes()[2] == b':';
    let part = |range| offset.get(range).and_then(|part| digits(part, 2)).filter(|(_, rest)| rest.is_empty());
    well_formed
        && part(0..2).is_some_and(|(hours, _)| hours <= 24)
        && part(3..5).is_some_and(|(minutes, _)| minutes <= 60)
        && offset.bytes().filter(u8::is_ascii_digit).count() == 4
}

/// Reads one to `most` digits; the number and the rest of the text.
fn digits(text: &str, most: usize) -> Option<(u32, &str)> {
    let length = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_are_recognised() {
        for yes in [
            "2001-01-01",
            "2001-1-2",
            "2024-02-29",
            "2001-12-14T21:59:43.10-05:00",
            "2001-12-14t21:59:43Z",
            "2001-12-14 21:59:43",
            "2001-12-14 1:2:3.5",
            "2001-12-14 1:2:3,5",
        ] {
            assert!(is_timestamp(yes), "{yes}");
        }
        for no in [
            "",
            "2001",
            "2001-",
            "2001-13-01",
            "2001-02-29",
            "2001-1-0",
            "201-01-01",
            "4-01-01",
            "20010-01-01",
            "2001-01-01x",
            "2001-12-14 21:59:43Z",
            "2001-12-14T21:59:43",
            "2001-12-14T24:00:00Z",
            "2001-12-14T21:59:43+5:00",
            "2001-12-14T21:59:43z",
            "2001-12-14T21:59Z",
        ] {
            assert!(!is_timestamp(no), "{no}");
        }
    }
}
