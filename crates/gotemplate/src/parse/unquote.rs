//! String and character literals, by Go's rules.

use crate::value::Str;

const INVALID: &str = "invalid syntax";

/// The bytes of a string literal in double quotes or backquotes.
pub(super) fn unquote(literal: &str) -> Result<Str, &'static str> {
    if let Some(raw) = literal.strip_prefix('`') {
        let raw = raw.strip_suffix('`').ok_or(INVALID)?;
        return Ok(raw.replace('\r', "").into());
    }
    let mut rest = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or(INVALID)?;
    let mut bytes = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let (unit, tail) = unquote_char(rest, '"')?;
        match unit {
            Unit::Char(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Unit::Byte(byte) => bytes.push(byte),
        }
        rest = tail;
    }
    Ok(bytes.into())
}

/// The code of a character literal.
pub(super) fn unquote_rune(literal: &str) -> Result<i64, String> {
    let rest = literal.strip_prefix('\'').ok_or(INVALID)?;
    let (unit, tail) = unquote_char(rest, '\'')?;
    if tail != "'" {
        return Err(format!("malformed character constant: {literal}"));
    }
    Ok(match unit {
        Unit::Char(c) => i64::from(u32::from(c)),
        Unit::Byte(byte) => i64::from(byte),
    })
}

/// What one character or escape stands for. `\x` and octal escapes are bytes, not characters.
enum Unit {
    Char(char),
    Byte(u8),
}

fn unquote_char(text: &str, quote: char) -> Result<(Unit, &str), &'static str> {
    let mut chars = text.chars();
    let first = chars.next().ok_or(INVALID)?;
    if first == quote || first == '\n' {
        return Err(INVALID);
    }
    if first != '\\' {
        return Ok((Unit::Char(first), chars.as_str()));
    }
    let escape = chars.next().ok_or(INVALID)?;
    let rest = chars.as_str();
    let simple = match escape {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' => '\\',
        '\'' | '"' if escape == quote => escape,
        'x' => return digits(rest, 2, 16).and_then(|(code, rest)| Ok((byte(code)?, rest))),
        'u' => return digits(rest, 4, 16).and_then(|(code, rest)| Ok((character(code)?, rest))),
        'U' => return digits(rest, 8, 16).and_then(|(code, rest)| Ok((character(code)?, rest))),
        '0'..='7' => {
            let from_first = &text[1..];
            return digits(from_first, 3, 8).and_then(|(code, rest)| Ok((byte(code)?, rest)));
        }
        _ => return Err(INVALID),
    };
    Ok((Unit::Char(simple), rest))
}

fn digits(text: &str, count: usize, radix: u32) -> Result<(u32, &str), &'static str> {
    let head = text.get(..count).ok_or(INVALID)?;
    if !head.chars().all(|c| c.is_digit(radix)) {
        return Err(INVALID);
    }
    let code = u32::from_str_radix(head, radix).map_err(|_| INVALID)?;
    Ok((code, &text[count..]))
}

fn byte(code: u32) -> Result<Unit, &'static str> {
    u8::try_from(code).map(Unit::Byte).map_err(|_| INVALID)
}

fn character(code: u32) -> Result<Unit, &'static str> {
    char::from_u32(code).map(Unit::Char).ok_or(INVALID)
}
