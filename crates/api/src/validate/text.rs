//! Values in messages, as Go prints them.

use std::fmt::Write;

/// A text in quotes, as Go's `%q` has it.
pub(super) fn quoted(text: &str) -> String {
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
}
