//! From RE2's syntax to that of the `regex` crate.
//!
//! The two agree but for a few things: RE2's `\d`, `\w`, `\s` and `\b` know ASCII only, `\Q…\E` quotes, and `[`, `&&`, `--`
//! and `~~` mean nothing inside a class. The expression is known to be valid.

pub(super) fn translate(pattern: &str) -> String {
    let mut translator = Translator { rest: pattern, out: String::with_capacity(pattern.len() + 8) };
    translator.run();
    translator.out
}

struct Translator<'a> {
    rest: &'a str,
    out: String,
}

impl Translator<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn run(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '\\' => self.escape(false),
                '[' => self.class(),
                // Without a proper count after it, a brace is a plain character.
                '{' if !self.starts_count() => self.out.push_str(r"\{"),
                '}' if !self.closes_count() => self.out.push_str(r"\}"),
                _ => self.out.push(c),
            }
        }
    }

    fn starts_count(&self) -> bool {
        let Some((count, _)) = self.rest.split_once('}') else { return false };
        let (low, high) = count.split_once(',').unwrap_or((count, ""));
        !low.is_empty() && low.bytes().chain(high.bytes()).all(|byte| byte.is_ascii_digit())
    }

    /// Whether what was written ends in an open count.
    fn closes_count(&self) -> bool {
        let open = self.out.trim_end_matches(|c: char| c.is_ascii_digit() || c == ',');
        open.len() < self.out.len() && open.ends_with('{') && !open.ends_with(r"\{")
    }

    fn escape(&mut self, in_class: bool) {
        let Some(c) = self.next() else { return self.out.push_str(r"\\") };
        match c {
            'd' => self.set("0-9", false, in_class),
            'D' => self.set("0-9", true, in_class),
            'w' => self.set("0-9A-Za-z_", false, in_class),
            'W' => self.set("0-9A-Za-z_", true, in_class),
            's' => self.set(r"\t\n\f\r ", false, in_class),
            'S' => self.set(r"\t\n\f\r ", true, in_class),
            'b' | 'B' if !in_class => self.out.push_str(&format!(r"(?-u:\{c})")),
            'Q' => self.quoted(),
            '0'..='7' => self.octal(c),
            'C' => self.out.push_str("(?s-u:.)"),
            // RE2 takes any escaped punctuation for itself; the crate knows only what has a meaning.
            _ if c.is_ascii_punctuation() || c == ' ' => self.literal(c),
            _ => {
                self.out.push('\\');
                self.out.push(c);
            }
        }
    }

    fn set(&mut self, chars: &str, negated: bool, in_class: bool) {
        match (negated, in_class) {
            (false, true) => self.out.push_str(chars),
            (false, false) => self.out.push_str(&format!("[{chars}]")),
            (true, _) => self.out.push_str(&format!("[^{chars}]")),
        }
    }

    fn literal(&mut self, c: char) {
        self.out.push_str(&format!(r"\x{{{:x}}}", u32::from(c)));
    }

    /// `\Q…\E`, or to the end.
    fn quoted(&mut self) {
        let (text, rest) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
        for c in text.chars() {
            self.literal(c);
        }
        self.rest = rest;
    }

    fn octal(&mut self, first: char) {
        let mut code = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
            code = code * 8 + digit;
            self.next();
        }
        self.out.push_str(&format!(r"\x{{{code:x}}}"));
    }

    fn class(&mut self) {
        self.out.push('[');
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            self.out.push('^');
        }
        let mut first = true;
        while let Some(c) = self.next() {
            match c {
                ']' if !first => return self.out.push(']'),
                '[' if self.rest.starts_with(':') => match self.rest.find(":]") {
                    Some(end) => {
                        self.out.push('[');
                        self.out.push_str(&self.rest[..end + 2]);
                        self.rest = &self.rest[end + 2..];
                    }
                    None => self.out.push_str(r"\["),
                },
                '\\' => self.escape(true),
                '[' | ']' | '&' | '~' => {
                    self.out.push('\\');
                    self.out.push(c);
                }
                // A minus at an edge is itself; elsewhere it makes a range.
                '-' if first || self.rest.starts_with(']') => self.out.push_str(r"\-"),
                _ => self.out.push(c),
            }
            first = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expression_is_rewritten_where_the_dialects_differ() {
        let cases = [
            (r"^\d+$", "^[0-9]+$"),
            (r"[\w.-]", r"[0-9A-Za-z_.\-]"),
            (r"\bx", r"(?-u:\b)x"),
            (r"\Qa.b\E+", r"\x{61}\x{2e}\x{62}+"),
            (r"[[a&&b]", r"[\[a\&\&b]"),
            (r"[[:alpha:]_]", r"[[:alpha:]_]"),
            (r"[]a]", r"[\]a]"),
            (r"a{2,3}{x", r"a{2,3}\{x"),
            (r"\_\/", r"\x{5f}\x{2f}"),
        ];
        for (pattern, expected) in cases {
            let translated = translate(pattern);
            assert_eq!(translated, expected);
            assert!(regex::bytes::Regex::new(&translated).is_ok(), "{translated}");
        }
    }
}
