//! Regular expressions of Go, run by a Rust engine.

use std::fmt::Write;

use canopus_base::regex as go;
use regex::{Regex, RegexBuilder};

/// What one compiled expression may cost in memory.
const SIZE_LIMIT: usize = 1 << 20;

/// A regular expression as the API server understands it. Matching takes time linear in the text.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    source: Box<str>,
    compiled: Result<Regex, Box<str>>,
}

impl Pattern {
    pub(super) fn new(source: &str) -> Self {
        Self { source: source.into(), compiled: compile(source).map_err(Into::into) }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The expression ready to match, or why it is none.
    pub(super) fn regex(&self) -> Result<&Regex, &str> {
        self.compiled.as_ref().map_err(|error| &**error)
    }
}

/// Compiles an expression in Go's syntax.
pub(super) fn compile(source: &str) -> Result<Regex, String> {
    go::check(source).map_err(|error| error.to_string())?;
    RegexBuilder::new(&translate(source))
        .size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| error.to_string().replace('\n', " "))
}

/// The same expression in the syntax of the Rust engine: ASCII classes, no nested classes, no `\Q…\E`.
fn translate(source: &str) -> String {
    let mut translator = Translator { rest: source, out: String::with_capacity(source.len() + 16) };
    while let Some(c) = translator.take() {
        match c {
            '\\' => translator.escape(EscapeContext::Outside),
            '[' => translator.class(),
            // Go takes a count without a minimum as text.
            '{' if translator.rest.starts_with(',') => translator.out.push_str("\\{"),
            _ => translator.out.push(c),
        }
    }
    translator.out
}

struct Translator<'a> {
    rest: &'a str,
    out: String,
}

#[derive(Clone, Copy, PartialEq)]
enum EscapeContext {
    Outside,
    InClass,
}

impl Translator<'_> {
    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// What follows a backslash.
    fn escape(&mut self, place: EscapeContext) {
        let Some(c) = self.take() else { return };
        let class = match c {
            'd' => Some(("0-9", false)),
            'D' => Some(("0-9", true)),
            'w' => Some(("0-9A-Za-z_", false)),
            'W' => Some(("0-9A-Za-z_", true)),
            's' => Some((r"\t\n\f\r ", false)),
            'S' => Some((r"\t\n\f\r ", true)),
            _ => None,
        };
        match (c, class) {
            (_, Some((members, true))) => self.write(format_args!("[^{members}]")),
            (_, Some((members, false))) if place == EscapeContext::InClass => self.out.push_str(members),
            (_, Some((members, false))) => self.write(format_args!("[{members}]")),
            ('b' | 'B', _) => self.write(format_args!("(?-u:\\{c})")),
            ('Q', _) => self.quotation(),
            ('0'..='7', _) => self.octal(c),
            ('C', _) => self.out.push_str("(?s:.)"),
            _ => self.out.extend(['\\', c]),
        }
    }

    /// The text up to `\E`, which stands for itself.
    fn quotation(&mut self) {
        let (text, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
        self.out.push_str(&regex::escape(text));
        self.rest = rest;
    }

    fn octal(&mut self, first: char) {
        let mut code = first.to_digit(8).unwrap_or_default();
        for _ in 0..2 {
            let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
            code = code * 8 + digit;
            self.take();
        }
        self.write(format_args!("\\x{{{code:x}}}"));
    }

    /// A class in brackets; the opening one is taken already.
    fn class(&mut self) {
        self.out.push('[');
        if self.rest.starts_with('^') {
            self.take();
            self.out.push('^');
        }
        let mut first = true;
        while let Some(c) = self.take() {
            match c {
                ']' if !first => {
                    self.out.push(']');
                    return;
                }
                '[' if self.rest.starts_with(':') && self.rest.contains(":]") => self.named_class(),
                _ => self.range(c),
            }
            first = false;
        }
    }

    /// One member of a class, or a range of them.
    fn range(&mut self, first: char) {
        self.member(first);
        if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
            self.take();
            self.out.push('-');
            if let Some(last) = self.take() {
                self.member(last);
            }
        }
    }

    fn member(&mut self, c: char) {
        match c {
            '\\' => self.escape(EscapeContext::InClass),
            // These have a meaning within a class in the other engine only, or only in some places.
            '[' | ']' | '&' | '~' | '-' | '^' => self.out.extend(['\\', c]),
            _ => self.out.push(c),
        }
    }

    /// `[:alpha:]` and the like; the opening bracket is taken already.
    fn named_class(&mut self) {
        let end = self.rest.find(":]").map_or(self.rest.len(), |at| at + 2);
        self.out.push('[');
        self.out.push_str(&self.rest[..end]);
        self.rest = &self.rest[end..];
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.out.write_fmt(arguments).expect("writing to a String cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, text: &str, expected: bool) {
        let regex = compile(pattern).unwrap();
        assert_eq!(regex.is_match(text), expected, "{pattern} on {text:?}");
    }

    #[test]
    fn classes_are_those_of_ascii() {
        check(r"^\d+$", "19", true);
        check(r"^\d+$", "١٩", false);
        check(r"^\w+$", "é", false);
        check(r"^[\w-]+$", "a-b", true);
        check(r"^[^\d]$", "١", true);
        check(r"\bé", "é", false);
        check(r"^\S+$", "a\u{a0}b", true);
    }

    #[test]
    fn characters_are_counted_as_code_points() {
        check("^.{3}$", "äöü", true);
        check("^[^a]{2}$", "日本", true);
    }

    #[test]
    fn what_go_reads_differently_is_translated() {
        check(r"^\Qa.b\E+$", "a.bb", true);
        check(r"^\Qa.b", "axb", false);
        check("^a{,2}$", "a{,2}", true);
        check("^[[a]]$", "[]", true);
        check("^[a&&b]+$", "a&b", true);
        check("^[]a]+$", "]a", true);
        check("^[+--]$", ",", true);
        check("^[--/]$", ".", true);
        check("^[a-]$", "-", true);
        check("^[[:alpha:]]+$", "ab", true);
        check(r"^\101$", "A", true);
        check("a$", "a\n", false);
    }

    #[test]
    fn expression_that_go_refuses_is_refused_in_its_words() {
        assert_eq!(
            compile("a(?=b)").unwrap_err(),
            "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"
        );
        assert!(compile("((((a{100}){100}){100})").is_err());
    }
}
