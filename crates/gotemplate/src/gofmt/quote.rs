//! `strconv.Quote` and its relatives.

use crate::value::runes;

/// Whether Go's `unicode.IsPrint` holds: letters, marks, numbers, punctuation, symbols and the plain blank.
pub(crate) fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\u{9f}' => false,
        // The standard library knows: it escapes what cannot be printed. The letter before keeps it from escaping marks.
        _ => {
            let mut text = ['a', c].into_iter().collect::<String>();
            let plain = text.len();
            text = text.escape_debug().collect();
            text.len() == plain
        }
    }
}

/// `strconv.Quote`.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    quote_with(bytes, '"', false)
}

/// `strconv.QuoteToASCII`.
pub(crate) fn quoted_ascii(bytes: &[u8]) -> String {
    quote_with(bytes, '"', true)
}

/// `strconv.QuoteRune` and `strconv.QuoteRuneToASCII`.
pub(crate) fn quoted_rune(c: char, ascii: bool) -> String {
    quote_with(c.encode_utf8(&mut [0; 4]).as_bytes(), '\'', ascii)
}

/// `strconv.CanBackquote`.
pub(crate) fn can_backquote(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| {
        text.chars().all(|c| c == '\t' || (c >= ' ' && !matches!(c, '`' | '\u{7f}' | '\u{feff}')))
    })
}

fn quote_with(bytes: &[u8], quote: char, ascii: bool) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push(quote);
    for (c, raw) in runes(bytes) {
        if c == char::REPLACEMENT_CHARACTER && raw.len() == 1 {
            out.push_str(&format!("\\x{:02x}", raw[0]));
        } else {
            escape(&mut out, c, quote, ascii);
        }
    }
    out.push(quote);
    out
}

fn escape(out: &mut String, c: char, quote: char, ascii: bool) {
    if c == quote || c == '\\' {
        out.push('\\');
        return out.push(c);
    }
    if (c.is_ascii() || !ascii) && is_printable(c) {
        return out.push(c);
    }
    let short = match c {
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => "",
    };
    let code = u32::from(c);
    match code {
        _ if !short.is_empty() => out.push_str(short),
        ..0x20 | 0x7f => out.push_str(&format!("\\x{code:02x}")),
        ..0x1_0000 => out.push_str(&format!("\\u{code:04x}")),
        _ => out.push_str(&format!("\\U{code:08x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_go_syntax() {
        let cases: [(&[u8], &str); 7] = [
            (b"plain", r#""plain""#),
            (b"a\"b\\c", r#""a\"b\\c""#),
            (b"\n\t\x00\x7f", r#""\n\t\x00\x7f""#),
            ("é☺".as_bytes(), "\"é☺\""),
            ("\u{a0}\u{2028}\u{ad}".as_bytes(), r#""\u00a0\u2028\u00ad""#),
            ("e\u{301}".as_bytes(), "\"e\u{301}\""),
            (b"\xff\xc3", r#""\xff\xc3""#),
        ];
        for (bytes, expected) in cases {
            assert_eq!(quoted(bytes), expected);
        }
        assert_eq!(quoted_ascii("é".as_bytes()), r#""\u00e9""#);
        assert_eq!(quoted_rune('\'', false), r"'\''");
    }
}
