//! Strings: which of the five notations suits one, and writing it in that.

use super::{Emitter, INDENT, NodePosition, WIDTH};
use crate::yaml::resolve::{self, Resolved};
use crate::yaml::timestamp::is_timestamp;

/// How a string is written.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// What a string is made of, as far as the choice of style goes.
#[derive(Default)]
struct Traits {
    /// The text has a character that YAML would take for syntax.
    indicators: bool,
    /// The text has a character that must be escaped.
    special: bool,
    breaks: bool,
    /// Starts or ends with a blank.
    bare_edge: bool,
    trailing_space: bool,
    /// The text has a blank before a line break.
    space_break: bool,
}

/// Whether a character ends a line in YAML 1.1; a key with one does not stand on the line of its colon.
pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether a character may stand unescaped.
///
/// Parity: those beyond the first plane may not. The two separators may not either, because readers disagree on whether
/// they end a line.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

impl Emitter {
    pub(super) fn string(&mut self, text: &str, place: NodePosition) {
        let style = style_of(text, place);
        // Continuation lines are indented further than what they belong to.
        let outer = self.indent;
        self.indent = Some(outer.map_or(INDENT, |indent| indent + INDENT));
        let foldable = place != NodePosition::SimpleKey;
        match style {
            Style::Plain => self.plain(text, foldable),
            Style::Single => self.single_quoted(text, foldable),
            Style::Double => self.double_quoted(text, foldable),
            Style::Literal => self.literal(text),
        }
        self.indent = outer;
    }

    fn plain(&mut self, text: &str, foldable: bool) {
        if !self.whitespace {
            self.put(' ');
        }
        let mut after_space = false;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let folds =
                foldable && c == ' ' && !after_space && self.column > WIDTH && rest.peek() != Some(&' ');
            if folds {
                self.new_line();
            } else {
                self.put(c);
            }
            after_space = c == ' ';
            self.indention &= after_space;
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn single_quoted(&mut self, text: &str, foldable: bool) {
        self.indicator("'", true);
        let mut after_space = false;
        let mut rest = text.char_indices().peekable();
        while let Some((at, c)) = rest.next() {
            let inside = at > 0 && at + 1 < text.len();
            let next_is_space = rest.peek().is_some_and(|(_, next)| *next == ' ');
            if foldable && c == ' ' && !after_space && self.column > WIDTH && inside && !next_is_space {
                self.new_line();
            } else {
                self.put(c);
            }
            if c == '\'' {
                self.put(c);
            }
            after_space = c == ' ';
        }
        self.indicator("'", false);
    }

    fn double_quoted(&mut self, text: &str, foldable: bool) {
        self.indicator("\"", true);
        let mut after_space = false;
        let mut rest = text.char_indices().peekable();
        while let Some((at, c)) = rest.next() {
            if !is_printable(c) || matches!(c, '\n' | '"' | '\\') {
                self.escape(c);
                after_space = false;
            } else if c == ' ' {
                let inside = at > 0 && at + 1 < text.len();
                if foldable && !after_space && self.column > WIDTH && inside {
                    self.new_line();
                    if rest.peek().is_some_and(|(_, next)| *next == ' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(c);
                }
                after_space = true;
            } else {
                self.put(c);
                after_space = false;
            }
        }
        self.indicator("\"", false);
    }

    fn escape(&mut self, c: char) {
        let short = match c {
            '\0' => "\\0",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\t' => "\\t",
            '\n' => "\\n",
            '\u{b}' => "\\v",
            '\u{c}' => "\\f",
            '\r' => "\\r",
            '\u{1b}' => "\\e",
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{85}' => "\\N",
            '\u{2028}' => "\\L",
            '\u{2029}' => "\\P",
            _ => "",
        };
        if !short.is_empty() {
            return self.put_all(short);
        }
        let code = u32::from(c);
        self.put_all(&match code {
            0..=0xff => format!("\\x{code:02X}"),
            0x100..=0xffff => format!("\\u{code:04X}"),
            _ => format!("\\U{code:08X}"),
        });
    }

    fn literal(&mut self, text: &str) {
        self.indicator("|", true);
        if text.starts_with([' ', '\n']) {
            self.indicator(&INDENT.to_string(), false);
        }
        match text.trim_end_matches('\n').len().abs_diff(text.len()) {
            0 => self.indicator("-", false),
            1 if text.len() > 1 => {}
            _ => self.indicator("+", false),
        }
        self.line_break();
        self.indention = true;
        self.whitespace = true;
        for line in text.split_inclusive('\n') {
            let content = line.trim_end_matches('\n');
            if !content.is_empty() {
                self.new_line();
                self.put_all(content);
                self.indention = false;
            }
            if line.len() > content.len() {
                self.line_break();
                self.indention = true;
            }
        }
    }
}

fn style_of(text: &str, place: NodePosition) -> Style {
    let simple_key = place == NodePosition::SimpleKey;
    let merge_key = text == "<<" && matches!(place, NodePosition::SimpleKey | NodePosition::LongKey);
    if text.is_empty() || reads_as_other_type(text) || merge_key {
        // Such texts have neither breaks nor anything that wants another style.
        return Style::Double;
    }
    let traits = Traits::scan(text);
    if traits.breaks {
        let block = !traits.trailing_space && !traits.space_break && !traits.special;
        return if block && !simple_key { Style::Literal } else { Style::Double };
    }
    if traits.special {
        return Style::Double;
    }
    if traits.bare_edge || traits.indicators { Style::Single } else { Style::Plain }
}

/// Whether the bare text would be read as something else than a string.
fn reads_as_other_type(text: &str) -> bool {
    resolve::plain(text) != Resolved::Text || is_timestamp(text) || is_base_60(text)
}

/// Whether a text is a number in base 60, which other readers of YAML 1.1 know: `1:30`, `-12:30:45.5`.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut groups = unsigned.split(':');
    let first = groups.next().unwrap_or_default();
    let first_fits = first.starts_with(|c: char| c.is_ascii_digit())
        && first.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let mut rest: Vec<&str> = groups.collect();
    let Some(last) = rest.pop() else { return false };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    let fraction_fits = fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    first_fits && fraction_fits && rest.into_iter().chain([last]).all(is_sexagesimal)
}

fn is_sexagesimal(group: &str) -> bool {
    matches!(group.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'])
}

impl Traits {
    fn scan(text: &str) -> Self {
        let mut traits =
            Self { indicators: text.starts_with("---") || text.starts_with("..."), ..Self::default() };
        let mut before: Option<char> = None;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let last = rest.peek().is_none();
            let blank_follows = rest.peek().is_none_or(|next| is_blank(*next));
            traits.indicators |= is_indicator(c, before, blank_follows);
            traits.special |= !is_printable(c);
            let edge = before.is_none() || last;
            if c == ' ' {
                traits.bare_edge |= edge;
                traits.trailing_space |= last;
            } else if c == '\n' {
                traits.breaks = true;
                traits.space_break |= before == Some(' ');
            }
            before = Some(c);
        }
        traits
    }
}

/// Whether a character has a meaning of its own in a block context, standing where it does.
fn is_indicator(c: char, before: Option<char>, blank_follows: bool) -> bool {
    match (c, before) {
        (
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`',
            None,
        ) => true,
        ('?' | '-', None) | (':', _) => blank_follows,
        ('#', Some(before)) => is_blank(before) || before == '\n',
        _ => false,
    }
}
