//! Go's words for numbers and IP prefixes it cannot read: messages of policies quote them.

use std::num::IntErrorKind;

use crate::text::quoted;

/// Why a text is not a port number: `<nil>` if it is a number, only too large a one.
pub(super) fn port(text: &str) -> String {
    let refused = |why| format!("strconv.ParseUint: parsing {}: {why}", quoted(text));
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return refused("invalid syntax");
    }
    match text.parse::<u32>() {
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => refused("value out of range"),
        _ => "<nil>".to_owned(),
    }
}

/// Why a text is not an IP prefix.
pub(super) fn prefix(text: &str) -> String {
    let why = match text.rsplit_once('/') {
        None => "no '/'".to_owned(),
        Some((ip, bits)) => prefix_parts(ip, bits),
    };
    format!("netip.ParsePrefix({}): {why}", quoted(text))
}

fn prefix_parts(ip: &str, bits: &str) -> String {
    if let Err(why) = address(ip) {
        return format!("ParseAddr({}): {why}", quoted(ip));
    }
    if ip.contains('%') {
        return "IPv6 zones cannot be present in a prefix".to_owned();
    }
    let leading_zero = bits.len() > 1 && bits.starts_with('0');
    if leading_zero || bits.parse::<i64>().is_err() || bits.starts_with(['+', '-']) {
        return format!("bad bits after slash: {}", quoted(bits));
    }
    "prefix length out of range".to_owned()
}

fn address(ip: &str) -> Result<(), String> {
    match ip.find(['.', ':', '%']).map(|at| ip.as_bytes()[at]) {
        Some(b'.') => v4(ip),
        Some(b':') => v6(ip),
        Some(_) => Err("missing IPv6 address".to_owned()),
        None => Err("unable to parse IP".to_owned()),
    }
}

fn at(why: &str, rest: &str) -> String {
    format!("{why} (at {})", quoted(rest))
}

fn v4(text: &str) -> Result<(), String> {
    let (mut value, mut digits, mut dots) = (0u32, 0, 0);
    for (index, c) in text.char_indices() {
        match c {
            '0'..='9' if digits == 1 && value == 0 => {
                return Err("IPv4 field has octet with leading zero".into());
            }
            '0'..='9' => {
                (value, digits) = (value * 10 + u32::from(c) - u32::from('0'), digits + 1);
                if value > 255 {
                    return Err("IPv4 field has value >255".into());
                }
            }
            '.' if digits == 0 || index + 1 == text.len() => {
                return Err(at("IPv4 field must have at least one digit", &text[index..]));
            }
            '.' if dots == 3 => return Err("IPv4 address too long".into()),
            '.' => (value, digits, dots) = (0, 0, dots + 1),
            _ => return Err(at("unexpected character", &text[index..])),
        }
    }
    if dots < 3 { Err("IPv4 address too short".into()) } else { Ok(()) }
}

fn v6(text: &str) -> Result<(), String> {
    let mut rest = match text.split_once('%') {
        Some((_, "")) => return Err("zone must be a non-empty string".into()),
        Some((address, _)) => address,
        None => text,
    };
    let mut ellipsis = false;
    if let Some(after) = rest.strip_prefix("::") {
        if after.is_empty() {
            return Ok(());
        }
        (rest, ellipsis) = (after, true);
    }
    let mut bytes = 0;
    while bytes < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        match digits {
            0 => return Err(at("each colon-separated field must have at least one digit", rest)),
            1..=4 => {}
            _ => return Err(at("each group must have 4 or less digits", rest)),
        }
        if rest[digits..].starts_with('.') {
            if !ellipsis && bytes != 12 {
                return Err(at("embedded IPv4 address must replace the final 2 fields of the address", rest));
            }
            if bytes > 12 {
                let why = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err(at(why, rest));
            }
            v4(rest)?;
            (rest, bytes) = ("", bytes + 4);
            break;
        }
        bytes += 2;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(at("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(at("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis {
                return Err(at("multiple :: in address", rest));
            }
            (rest, ellipsis) = (after, true);
            if rest.is_empty() {
                break;
            }
        }
    }
    match (rest, bytes) {
        ("", ..16) if !ellipsis => Err("address string too short".into()),
        ("", 16..) if ellipsis => Err("the :: must expand to at least one field of zeros".into()),
        ("", _) => Ok(()),
        _ => Err(at("trailing garbage after address", rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_refused_in_go_words() {
        assert_eq!(port("70000"), "<nil>");
        assert_eq!(port("http"), r#"strconv.ParseUint: parsing "http": invalid syntax"#);
        assert_eq!(port("4294967296"), r#"strconv.ParseUint: parsing "4294967296": value out of range"#);
    }

    #[track_caller]
    fn check(text: &str, why: &str) {
        assert_eq!(prefix(text), format!("netip.ParsePrefix({}): {why}", quoted(text)));
    }

    #[test]
    fn prefix_is_refused_in_go_words() {
        check("10.0.0.0/40", "prefix length out of range");
        check("10.0.0.0/08", r#"bad bits after slash: "08""#);
        check("10.0.0.0/-1", r#"bad bits after slash: "-1""#);
        check("10.0.0/8", r#"ParseAddr("10.0.0"): IPv4 address too short"#);
        check("10.0.0.0.0/8", r#"ParseAddr("10.0.0.0.0"): IPv4 address too long"#);
        check("10.0.0.256/8", r#"ParseAddr("10.0.0.256"): IPv4 field has value >255"#);
        check("10.0.0.01/8", r#"ParseAddr("10.0.0.01"): IPv4 field has octet with leading zero"#);
        check("10..0.1/8", r#"ParseAddr("10..0.1"): IPv4 field must have at least one digit (at ".0.1")"#);
        check("10.0.0.x/8", r#"ParseAddr("10.0.0.x"): unexpected character (at "x")"#);
        check("fe80::1%a/64", "IPv6 zones cannot be present in a prefix");
        check("fe80::1%/64", r#"ParseAddr("fe80::1%"): zone must be a non-empty string"#);
        check("1:2/64", r#"ParseAddr("1:2"): address string too short"#);
        check("::1::/64", r#"ParseAddr("::1::"): multiple :: in address (at ":")"#);
        check("12345::/64", r#"ParseAddr("12345::"): each group must have 4 or less digits (at "12345::")"#);
        check(
            "1:2:3:4:5:6:7:8:9/64",
            r#"ParseAddr("1:2:3:4:5:6:7:8:9"): trailing garbage after address (at "9")"#,
        );
        check("x/1", r#"ParseAddr("x"): unable to parse IP"#);
        check("%/1", r#"ParseAddr("%"): missing IPv6 address"#);
    }
}
