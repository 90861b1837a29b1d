//! The formats of texts and numbers that the API server checks.
//!
//! Of those it knows, ISBN, credit card, social security number and RGB colour are not checked here: no object of a mesh
//! has them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use canopus_base::duration::Duration;
use canopus_base::net;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};

use super::{Outcome, Subject};
use crate::crd::cel::Url;
use crate::crd::schema::{Schema, Type};

/// A format that is checked, together with the type it stands with.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Int32,
    Int64,
    Float,
    Double,
    Text(&'static TextFormat),
}

pub(super) struct TextFormat {
    name: &'static str,
    holds: fn(&str) -> bool,
}

const fn text(name: &'static str, holds: fn(&str) -> bool) -> TextFormat {
    TextFormat { name, holds }
}

/// The formats of texts. A schema may leave dashes out of their names.
static TEXTS: [TextFormat; 19] = [
    text("bsonobjectid", |text| text.len() == 24 && is_hexadecimal(text)),
    text("byte", is_base64),
    text("cidr", |text| net::parse_prefix(text).is_ok()),
    text("date", |text| date(text).is_some()),
    text("date-time", is_date_time),
    text("duration", |text| duration(text).is_some()),
    text("email", is_email),
    text("hexcolor", is_hex_colour),
    text("hostname", is_host_name),
    text("ipv4", |text| Ipv4Addr::from_str(text).is_ok()),
    text("ipv6", |text| Ipv6Addr::from_str(text).is_ok()),
    text("k8s-long-name", |text| text.len() <= 253 && text.split('.').all(is_short_name)),
    text("k8s-short-name", |text| text.len() <= 63 && is_short_name(text)),
    text("mac", is_mac),
    text("uri", |text| Url::parse(text).is_ok()),
    text("uuid", |text| is_uuid(text, None)),
    text("uuid3", |text| is_uuid(text, Some('3'))),
    text("uuid4", |text| is_uuid(text, Some('4'))),
    text("uuid5", |text| is_uuid(text, Some('5'))),
];

impl Format {
    /// The format of a schema, if it is one that is checked for the type.
    pub(super) fn from_schema(schema: &Schema) -> Option<Self> {
        let name = schema.format.as_deref()?;
        match (schema.kind, name) {
            (Some(Type::Integer), "int32") => Some(Self::Int32),
            (Some(Type::Integer), "int64") => Some(Self::Int64),
            (Some(Type::Number), "float") => Some(Self::Float),
            (Some(Type::Number), "double") => Some(Self::Double),
            (None | Some(Type::String), _) if !schema.int_or_string => {
                let same = |format: &&TextFormat| format.name.replace('-', "") == name.replace('-', "");
                TEXTS.iter().find(same).map(Self::Text)
            }
            _ => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float => "float",
            Self::Double => "double",
            Self::Text(format) => format.name,
        }
    }
}

/// Checks the format of a text.
pub(super) fn check(format: Option<Format>, text: &str, subject: Subject<'_>, outcome: &mut Outcome) {
    match format {
        Some(Format::Text(format)) if !(format.holds)(text) => {
            outcome.add(subject.wrong_type(format.name, text));
        }
        _ => outcome.passed += 1,
    }
}

/// A date as RFC 3339 writes it.
pub(in crate::crd) fn date(text: &str) -> Option<Date> {
    let is_dash = |at| text.as_bytes().get(at) == Some(&b'-');
    let well_formed = text.len() == 10 && is_dash(4) && is_dash(7);
    well_formed.then(|| text.parse().ok())?
}

/// A point in time as the API server reads it: RFC 3339, also without a zone.
pub(in crate::crd) fn instant(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Some(Timestamp::UNIX_EPOCH);
    }
    let local = |text: &str| DateTime::from_str(text).ok()?.in_tz("UTC").ok().map(|zoned| zoned.timestamp());
    text.parse().ok().or_else(|| local(text))
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let Some((day, rest)) = text.split_once('t') else { return false };
    let time = rest.split('t').next().unwrap_or(rest);
    date(day).is_some() && is_time(time)
}

/// A time of day with fraction and zone: `15:04:05.678z`, `15:04:05+01:00`.
fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let in_range =
        clock_parts(clock).is_some_and(|[hour, minute, second]| hour <= 23 && minute <= 59 && second <= 59);
    in_range && (is_zone(rest) || without_fraction(rest).is_some_and(is_zone))
}

fn clock_parts(clock: &str) -> Option<[u8; 3]> {
    let mut parts =
        clock.split(':').map(|part| (part.len() == 2 && is_digits(part)).then(|| part.parse().ok())?);
    let found = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(found)
}

/// What follows the digits of a fraction. Any character may stand where its point should.
fn without_fraction(text: &str) -> Option<&str> {
    let mut chars = text.chars();
    chars.next()?;
    let digits = chars.as_str();
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < digits.len()).then_some(rest)
}

fn is_zone(text: &str) -> bool {
    let offset = |text: &str| {
        let Some((hours, minutes)) = text.split_once(':') else { return false };
        [hours, minutes].iter().all(|part| part.len() == 2 && is_digits(part))
    };
    text == "z" || text.strip_prefix(['+', '-']).is_some_and(offset)
}

/// A duration as Go writes it, or as Scala does (`3 days`).
pub(in crate::crd) fn duration(text: &str) -> Option<Duration> {
    if let Ok(duration) = text.parse() {
        return Some(duration);
    }
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let after = rest[start..].trim_start_matches(|c: char| c.is_ascii_digit());
        let number: i64 = rest[start..rest.len() - after.len()].parse().ok()?;
        let word = after.trim_start();
        let end = word.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(word.len());
        if let Some(unit) = unit(&word[..end].to_lowercase()) {
            total = Some(total.unwrap_or_default().checked_add(number.checked_mul(unit)?)?);
        }
        rest = &word[end..];
    }
    total.map(Duration::from_nanos)
}

/// The nanoseconds in a unit of time; of the longer names any word that starts with them will do.
fn unit(word: &str) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    const UNITS: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", SECOND),
        (&["m"], "min", 60 * SECOND),
        (&["h", "hr"], "hour", 3_600 * SECOND),
        (&["d"], "day", 86_400 * SECOND),
        (&["w", "wk"], "week", 604_800 * SECOND),
    ];
    let names = |(short, long, _): &&(&[&str], &str, i64)| short.contains(&word) || word.starts_with(long);
    UNITS.iter().find(names).map(|(.., nanos)| *nanos)
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let is_member = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/');
    !body.is_empty() && padding <= 2 && text.len().is_multiple_of(4) && body.chars().all(is_member)
}

/// An address with something on both sides of the sign, perhaps after a name.
fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(start), Some(inner)) => &inner[start + 1..],
        (None, None) => text,
        _ => return false,
    };
    let Some((local, domain)) = address.trim().rsplit_once('@') else { return false };
    let is_atom = |text: &str| {
        !text.is_empty()
            && text
                .split('.')
                .all(|part| !part.is_empty() && !part.contains(|c: char| " ()<>[]:;@\\,\"".contains(c)))
    };
    is_atom(local) && is_atom(domain)
}

fn is_hex_colour(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hexadecimal(digits)
}

/// A name of one label, or of several with a last one of letters alone.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let inner = label.strip_prefix('-').is_none() && label.strip_suffix('-').is_none();
        inner
            && (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_alphanumeric() || c == '-' || !c.is_ascii())
    };
    let last_is_letters = match text.rsplit_once('.') {
        Some((_, last)) => last.chars().count() >= 2 && last.chars().all(char::is_alphabetic),
        None => true,
    };
    text.len() <= 255 && last_is_letters && text.split('.').all(is_label)
}

fn is_short_name(text: &str) -> bool {
    let is_member = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.chars().all(is_member)
}

/// Groups of hexadecimal digits: pairs after colons or dashes, or fours after dots; six, eight or twenty bytes in all.
fn is_mac(text: &str) -> bool {
    let (separator, width) = match () {
        () if text.contains(':') => (':', 2),
        () if text.contains('-') => ('-', 2),
        () => ('.', 4),
    };
    let groups: Vec<&str> = text.split(separator).collect();
    let well_formed = groups.iter().all(|group| group.len() == width && is_hexadecimal(group));
    well_formed && matches!(groups.len() * width / 2, 6 | 8 | 20)
}

/// 32 hexadecimal digits in five groups, of which dashes may be left out.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut digits = String::with_capacity(32);
    for c in text.chars() {
        match c {
            '-' if matches!(digits.len(), 8 | 12 | 16 | 20) && !text.contains("--") => {}
            _ if c.is_ascii_hexdigit() => digits.push(c.to_ascii_lowercase()),
            _ => return false,
        }
    }
    let has_variant = || digits[16..].starts_with(['8', '9', 'a', 'b']);
    digits.len() == 32
        && match version {
            None => true,
            Some('3') => digits[12..].starts_with('3'),
            Some(version) => digits[12..].starts_with(version) && has_variant(),
        }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, good: &[&str], bad: &[&str]) {
        let format = TEXTS.iter().find(|format| format.name == name).unwrap();
        for text in good {
            assert!((format.holds)(text), "{name}: {text:?}");
        }
        for text in bad {
            assert!(!(format.holds)(text), "{name}: {text:?}");
        }
    }

    #[test]
    fn texts_are_of_a_format_when_the_api_server_says_so() {
        check(
            "date-time",
            &["2024-01-31T15:04:05Z", "2024-01-31t15:04:05.123+01:00"],
            &["2024-02-30T15:04:05Z"],
        );
        check(
            "date-time",
            &[],
            &["", "2024-01-31", "2024-01-31T24:00:00Z", "2024-01-31T15:04:05", "T", "äT15:04:05Z"],
        );
        check("byte", &["YQ==", "YWI=", "YWJj"], &["", "YQ", "Y===", "YQ-=", "===="]);
        check(
            "duration",
            &["1h30m", "3 days", "2 weeks 1 day", "-1s"],
            &["", "soon", "3", "99999999999 weeks"],
        );
        check(
            "uuid",
            &["123e4567-e89b-12d3-a456-426614174000"],
            &["123e4567", "-123e4567e89b12d3a456426614174000"],
        );
        check("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]);
        check("hostname", &["a", "a-b.example.com"], &["", "a.b.1", "-a", "a..b"]);
        check("email", &["a@b.c", "A <a@b>"], &["a", "@b", "a@", "<a@b", "a b@c"]);
        check("mac", &["01:23:45:67:89:ab", "0123.4567.89ab"], &["01:23", "0123456789ab"]);
        check("uri", &["http://a/b", "/a"], &["a/b", ""]);
        check("k8s-short-name", &["a-1"], &["A", "-a", "a.b", ""]);
        check("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]);
    }
}
