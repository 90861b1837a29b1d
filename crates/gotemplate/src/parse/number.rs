//! Number literals: Go's ideal constants, kept under every type that can hold them.

use super::unquote;
use crate::ast::Number;
use crate::gofmt::quote;
use crate::goparse;
use crate::lex::{Token, TokenKind};

pub(super) fn number(token: &Token) -> Result<Number, String> {
    let text = token.text.as_str();
    let number = Number { text: text.to_owned(), ..Number::default() };
    match token.kind {
        TokenKind::CharConstant => {
            let rune = unquote::unquote_rune(text)?;
            let uint = u64::try_from(rune).ok();
            return Ok(Number { int: Some(rune), uint, float: Some(rune as f64), ..number });
        }
        TokenKind::Complex => {
            // The sign that starts the second part: not the first character, not an exponent's.
            let split = text
                .char_indices()
                .skip(1)
                .filter(|(at, c)| matches!(c, '+' | '-') && !text[..*at].ends_with(['e', 'E', 'p', 'P']))
                .last();
            let parts = split.and_then(|(at, _)| {
                let re = goparse::float(&text[..at])?;
                Some((re, goparse::float(text[at..].strip_suffix('i')?)?))
            });
            let (re, im) = parts.ok_or("syntax error scanning complex number")?;
            return Ok(simplified(number, re, im));
        }
        _ => {}
    }
    if let Some(im) = text.strip_suffix('i').and_then(goparse::float) {
        return Ok(simplified(number, 0.0, im));
    }
    real(text, number)
}

fn real(text: &str, mut number: Number) -> Result<Number, String> {
    number.uint = goparse::uint(text, 0);
    number.int = goparse::int(text, 0);
    if number.int == Some(0) {
        // `-0`.
        number.uint = Some(0);
    }
    if let Some(int) = number.int {
        number.float = Some(int as f64);
    } else if let Some(uint) = number.uint {
        number.float = Some(uint as f64);
    } else if let Some(float) = goparse::float(text) {
        if !text.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {}", quote::quoted(text.as_bytes())));
        }
        number.float = Some(float);
        number.int = exact_int(float);
        number.uint = exact_uint(float);
    } else {
        return Err(format!("illegal number syntax: {}", quote::quoted(text.as_bytes())));
    }
    Ok(number)
}

fn simplified(mut number: Number, re: f64, im: f64) -> Number {
    number.complex = Some((re, im));
    if im == 0.0 {
        number.float = Some(re);
        number.int = exact_int(re);
        number.uint = exact_uint(re);
    }
    number
}

fn exact_int(float: f64) -> Option<i64> {
    let int = float as i64;
    (int as f64 == float).then_some(int)
}

fn exact_uint(float: f64) -> Option<u64> {
    let int = float as u64;
    (int as f64 == float).then_some(int)
}
