//! Go's layouts: a date is written and read as the reference time would be, `Mon Jan 2 15:04:05 MST 2006`.

use super::Time;
use super::civil::{Civil, days_from, days_in};
use crate::error::CallError;
use crate::gofmt::quote;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The elements of a layout. Where several fit, the first of this list does.
const ELEMENTS: [&str; 31] = [
    "January", "Jan", "Monday", "Mon", "MST", "002", "01", "02", "03", "04", "05", "06", "15", "2006", "__2",
    "_2006", "_2", "1", "2", "3", "4", "5", "PM", "pm", "-07:00", "-0700", "-07", "Z07:00", "Z0700", "Z07",
    "Z",
];

/// A piece of a layout.
enum Piece<'a> {
    Text(&'a str),
    Element(&'a str),
    /// A fraction of a second: its separator, digits, and whether zeros at the end are dropped.
    Fraction(char, usize, bool),
}

fn pieces(layout: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < layout.len() {
        let rest = &layout[at..];
        let Some((length, piece)) = piece(rest) else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        if start < at {
            pieces.push(Piece::Text(&layout[start..at]));
        }
        pieces.push(piece);
        at += length;
        start = at;
    }
    if start < layout.len() {
        pieces.push(Piece::Text(&layout[start..]));
    }
    pieces
}

fn piece(rest: &str) -> Option<(usize, Piece<'_>)> {
    let first = rest.chars().next()?;
    if matches!(first, '.' | ',') {
        let digit = rest[1..].chars().next().filter(|c| matches!(c, '0' | '9'))?;
        let digits = rest[1..].chars().take_while(|c| *c == digit).count();
        let followed = rest[1 + digits..].starts_with(|c: char| c.is_ascii_digit());
        return (!followed).then_some((1 + digits, Piece::Fraction(first, digits, digit == '9')));
    }
    let element = ELEMENTS.iter().find(|element| **element != "Z" && rest.starts_with(**element))?;
    // `_2006` is a blank and a year; a name goes on in small letters only if it is the long form.
    if *element == "_2006" {
        return None;
    }
    let goes_on = rest[element.len()..].starts_with(|c: char| c.is_ascii_lowercase());
    if goes_on && matches!(*element, "Jan" | "Mon") {
        return None;
    }
    Some((element.len(), Piece::Element(&rest[..element.len()])))
}

pub(super) fn format(layout: &str, time: Time) -> String {
    let civil = Civil::new(time.seconds);
    let name = |names: &[&'static str], at: i64| {
        usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or_default()
    };
    let hour12 = if civil.hour % 12 == 0 { 12 } else { civil.hour % 12 };
    let mut out = String::new();
    for piece in pieces(layout) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Fraction(separator, digits, trims) => {
                let text = format!("{:09}", time.nanos);
                let text = &text[..digits.min(9)];
                let text = if trims { text.trim_end_matches('0') } else { text };
                if !text.is_empty() {
                    out.push(separator);
                    out.push_str(text);
                }
            }
            Piece::Element(element) => out.push_str(&match element {
                "January" => name(&MONTHS, civil.month - 1).to_owned(),
                "Jan" => name(&MONTHS, civil.month - 1).chars().take(3).collect(),
                "Monday" => name(&DAYS, civil.weekday).to_owned(),
                "Mon" => name(&DAYS, civil.weekday).chars().take(3).collect(),
                "1" => civil.month.to_string(),
                "01" => format!("{:02}", civil.month),
                "2" => civil.day.to_string(),
                "02" => format!("{:02}", civil.day),
                "_2" => format!("{:2}", civil.day),
                "002" => format!("{:03}", civil.year_day),
                "__2" => format!("{:3}", civil.year_day),
                "15" => format!("{:02}", civil.hour),
                "3" => hour12.to_string(),
                "03" => format!("{hour12:02}"),
                "4" => civil.minute.to_string(),
                "04" => format!("{:02}", civil.minute),
                "5" => civil.second.to_string(),
                "05" => format!("{:02}", civil.second),
                "2006" => format!("{:04}", civil.year),
                "06" => format!("{:02}", civil.year.rem_euclid(100)),
                "PM" => if civil.hour < 12 { "AM" } else { "PM" }.to_owned(),
                "pm" => if civil.hour < 12 { "am" } else { "pm" }.to_owned(),
                "MST" => "UTC".to_owned(),
                "-0700" => "+0000".to_owned(),
                "-07:00" => "+00:00".to_owned(),
                "-07" => "+00".to_owned(),
                _ => "Z".to_owned(),
            }),
        }
    }
    out
}

/// What was read so far.
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    year_day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    nanos: u32,
    afternoon: Option<bool>,
    /// Seconds east of UTC.
    offset: i64,
}

pub(super) fn parse(layout: &str, text: &str) -> Result<Time, CallError> {
    let fail = |value: &str, element: &str| {
        let [text, layout, value, element] =
            [text, layout, value, element].map(|part| quote::quoted(part.as_bytes()));
        CallError::from(format!("parsing time {text} as {layout}: cannot parse {value} as {element}"))
    };
    let out_of_range = |what: &str| {
        CallError::from(format!("parsing time {}: {what} out of range", quote::quoted(text.as_bytes())))
    };
    let mut fields = Fields {
        year: 0,
        month: 1,
        day: 1,
        year_day: None,
        hour: 0,
        minute: 0,
        second: 0,
        nanos: 0,
        afternoon: None,
        offset: 0,
    };
    let mut rest = text;
    for piece in pieces(layout) {
        match piece {
            Piece::Text(expected) => {
                rest = rest.strip_prefix(expected).ok_or_else(|| fail(rest, expected))?;
            }
            Piece::Fraction(_, digits, trims) => {
                rest = fields
                    .fraction(rest, if trims { None } else { Some(digits) })
                    .ok_or_else(|| fail(rest, ".000"))?;
            }
            Piece::Element(element) => {
                let before = rest;
                rest = fields.element(element, rest).ok_or_else(|| fail(before, element))?;
                // A fraction may follow the seconds though the layout has none.
                if matches!(element, "5" | "05") && rest.starts_with('.') {
                    rest = fields.fraction(rest, None).unwrap_or(rest);
                }
            }
        }
    }
    if !rest.is_empty() {
        let text = quote::quoted(text.as_bytes());
        return Err(format!("parsing time {text}: extra text: {}", quote::quoted(rest.as_bytes())).into());
    }
    fields.time().map_err(out_of_range)
}

/// Between so many and so many digits.
fn digits(text: &str, least: usize, most: usize) -> Option<(i64, &str)> {
    let count = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if count < least {
        return None;
    }
    Some((text[..count].parse().ok()?, &text[count..]))
}

fn named<'a>(text: &'a str, names: &[&str], length: usize) -> Option<(i64, &'a str)> {
    names.iter().enumerate().find_map(|(at, name)| {
        let name = &name[..length.min(name.len())];
        let head = text.get(..name.len()).filter(|head| head.eq_ignore_ascii_case(name))?;
        Some((i64::try_from(at).ok()?, &text[head.len()..]))
    })
}

impl Fields {
    fn fraction<'a>(&mut self, text: &'a str, exact: Option<usize>) -> Option<&'a str> {
        let Some(tail) = text.strip_prefix(['.', ',']) else {
            return exact.is_none().then_some(text);
        };
        let count = tail.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 || exact.is_some_and(|exact| exact != count) {
            return None;
        }
        self.nanos = format!("{:0<9}", &tail[..count.min(9)]).parse().ok()?;
        Some(&tail[count..])
    }

    fn element<'a>(&mut self, element: &str, text: &'a str) -> Option<&'a str> {
        let unpadded = text.trim_start_matches(' ');
        let (value, rest) = match element {
            "January" => named(text, &MONTHS, usize::MAX)?,
            "Jan" => named(text, &MONTHS, 3)?,
            "Monday" => return named(text, &DAYS, usize::MAX).map(|(_, rest)| rest),
            "Mon" => return named(text, &DAYS, 3).map(|(_, rest)| rest),
            "2006" => digits(text, 4, 4)?,
            "002" => digits(text, 3, 3)?,
            "__2" => digits(unpadded, 1, 3)?,
            "_2" => digits(unpadded, 1, 2)?,
            "1" | "2" | "3" | "4" | "5" | "15" => digits(text, 1, 2)?,
            "01" | "02" | "03" | "04" | "05" | "06" => digits(text, 2, 2)?,
            "PM" | "pm" => {
                let (at, rest) = named(text, &["AM", "PM"], 2)?;
                self.afternoon = Some(at == 1);
                return Some(rest);
            }
            "MST" => {
                return text.strip_prefix("UTC").or_else(|| {
                    let letters = text.bytes().take_while(u8::is_ascii_uppercase).count();
                    (3..=4).contains(&letters).then(|| &text[letters..])
                });
            }
            zone => return self.zone(zone, text),
        };
        match element {
            "January" | "Jan" => self.month = value + 1,
            "1" | "01" => self.month = value,
            "2" | "02" | "_2" => self.day = value,
            "002" | "__2" => self.year_day = Some(value),
            "15" | "3" | "03" => self.hour = value,
            "4" | "04" => self.minute = value,
            "5" | "05" => self.second = value,
            "06" => self.year = value + if value >= 69 { 1900 } else { 2000 },
            _ => self.year = value,
        }
        Some(rest)
    }

    fn zone<'a>(&mut self, element: &str, text: &'a str) -> Option<&'a str> {
        if element.starts_with('Z')
            && let Some(rest) = text.strip_prefix('Z')
        {
            return Some(rest);
        }
        let sign = if text.starts_with('-') { -1 } else { 1 };
        let (hours, mut rest) = digits(text.strip_prefix(['+', '-'])?, 2, 2)?;
        let mut minutes = 0;
        if element.len() > 3 {
            rest = if element.contains(':') { rest.strip_prefix(':')? } else { rest };
            (minutes, rest) = digits(rest, 2, 2)?;
        }
        self.offset = sign * (hours * 3600 + minutes * 60);
        Some(rest)
    }

    fn time(mut self) -> Result<Time, &'static str> {
        if let Some(afternoon) = self.afternoon {
            self.hour = self.hour % 12 + if afternoon { 12 } else { 0 };
        }
        if !(1..=12).contains(&self.month) {
            return Err("month");
        }
        if !(1..=days_in(self.year, self.month)).contains(&self.day) {
            return Err("day");
        }
        for (value, limit, what) in
            [(self.hour, 24, "hour"), (self.minute, 60, "minute"), (self.second, 60, "second")]
        {
            if value >= limit {
                return Err(what);
            }
        }
        let days = match self.year_day {
            Some(day) => days_from(self.year, 1, 1) + day - 1,
            None => days_from(self.year, self.month, self.day),
        };
        let seconds = days * 86_400 + self.hour * 3600 + self.minute * 60 + self.second - self.offset;
        Ok(Time { seconds, nanos: self.nanos })
    }
}
