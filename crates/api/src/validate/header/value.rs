//! Values of headers, in which `%NAME%` and `%NAME(argument)%` stand for something a proxy knows.

use crate::validate::code::{Fault, codes};

codes! {
    CONTROL_CHARACTER: error "header-value-control-character", "remove control characters from the value";
    BAD_VARIABLE: error "header-value-variable-invalid", "close each %VARIABLE%, and write a plain % as %%";
}

/// What the proxy's own parser expects next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Literal,
    Variable,
    Arguments,
    Text,
    InText,
    CommaOrEnd,
    ClosingParenthesis,
    ClosingPercent,
}

/// A value that a proxy accepts. Whether it knows the variables is not looked at.
pub fn value(text: &str) -> Result<(), Fault> {
    if text.bytes().any(|byte| matches!(byte, 0..=0x8 | 0xa..=0x1f | 0x7f)) {
        let message = format!("header value configuration {text} is invalid");
        return Err(CONTROL_CHARACTER.says(message).with_value(text));
    }
    variables(text).map_err(|why| {
        let message = format!("header value configuration: invalid header configuration. {why}");
        BAD_VARIABLE.says(message).with_value(text)
    })
}

fn variables(text: &str) -> Result<(), String> {
    let mut expect = Expect::Literal;
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        expect = match (expect, byte) {
            (Expect::Literal, b'%') => match bytes.peek() {
                None => return Err("Un-escaped %".to_owned()),
                Some(b'%') => {
                    bytes.next();
                    Expect::Literal
                }
                Some(_) => Expect::Variable,
            },
            (Expect::Variable | Expect::ClosingPercent, b'%') => Expect::Literal,
            (Expect::Variable, b'(') => Expect::Arguments,
            (Expect::Arguments, b'[') | (Expect::CommaOrEnd, b',') => Expect::Text,
            (Expect::Text, b'"') => Expect::InText,
            (Expect::InText, b'\\') => {
                if bytes.next().is_none() {
                    return Err("Un-terminated backslash in JSON string".to_owned());
                }
                Expect::InText
            }
            (Expect::InText | Expect::ClosingParenthesis, b')') => Expect::ClosingPercent,
            (Expect::InText, b'"') => Expect::CommaOrEnd,
            (Expect::CommaOrEnd, b']') => Expect::ClosingParenthesis,
            (Expect::Literal | Expect::Variable | Expect::InText, _) | (_, b' ') => expect,
            (Expect::Arguments, _) => Expect::InText,
            (Expect::Text, _) => return Err("Expecting '\"'".to_owned()),
            (Expect::CommaOrEnd, _) => return Err("Expecting ',', ']', or whitespace".to_owned()),
            (Expect::ClosingParenthesis, _) => {
                return Err("Expecting ')' or whitespace after '{}', but found '{}'".to_owned());
            }
            (Expect::ClosingPercent, _) => return Err("Expecting '%' or whitespace after".to_owned()),
        };
    }
    match expect {
        Expect::Literal => Ok(()),
        _ => Err(format!("Un-terminated variable expression '{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_closed_and_plain_percents_doubled() {
        let ok = [
            "",
            "foo",
            "100%%",
            "a %HOSTNAME% b",
            "%REQ(x-a)%",
            "%REQ(a\\)b)%",
            r#"%UPSTREAM_METADATA( ["a" , "b\""] ) %"#,
            "tab\tétoile",
        ];
        for text in ok {
            assert_eq!(value(text), Ok(()), "{text}");
        }
        let bad = [
            ("a\u{1}", "header value configuration a\u{1} is invalid"),
            ("50%", "Un-escaped %"),
            ("%A", "Un-terminated variable expression '%A'"),
            ("%START_TIME%%", "Un-escaped %"),
            ("%A([b])%", "Expecting '\"'"),
            (r#"%A(["b" c])%"#, "Expecting ',', ']', or whitespace"),
            (r#"%A(["b"] c)%"#, "Expecting ')' or whitespace after '{}', but found '{}'"),
            ("%A(b) c%", "Expecting '%' or whitespace after"),
            ("%A(b\\", "Un-terminated backslash in JSON string"),
        ];
        for (text, why) in bad {
            let said = value(text).unwrap_err().to_string();
            assert!(said.ends_with(why), "{text}: {said}");
        }
    }
}
