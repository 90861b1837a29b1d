//! A reader of Go's regular-expression grammar that keeps of each sub-expression only what its limits need.

use super::unicode::is_class_name;
use super::{RegexError, RegexErrorKind as Kind};

/// The highest repeat count, nested counts multiplied.
const MAX_REPEAT: u32 = 1000;
/// The deepest nesting.
const MAX_HEIGHT: u32 = 1000;
/// The largest compiled size, in instructions.
const MAX_SIZE: u64 = (128 << 20) / 40;

const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

type Result<T> = std::result::Result<T, RegexError>;

/// What the limits look at in a sub-expression.
#[derive(Clone, Copy)]
struct Shape {
    /// Levels, itself included.
    height: u32,
    /// The most copies that repetitions inside make of anything.
    copies: u32,
    /// Instructions it compiles to.
    size: u64,
}

impl Shape {
    const LEAF: Self = Self { height: 1, copies: 1, size: 1 };

    fn wrapped(self, extra_size: u64) -> Self {
        Self { height: self.height + 1, size: self.size.saturating_add(extra_size), ..self }
    }

    /// One expression made of several side by side.
    fn join(parts: impl ExactSizeIterator<Item = Self>, separators: u64) -> Self {
        let several = parts.len() > 1;
        let empty = Self { height: 0, copies: 1, size: 0 };
        let joined = parts.fold(empty, |whole, part| Self {
            height: whole.height.max(part.height),
            copies: whole.copies.max(part.copies),
            size: whole.size.saturating_add(part.size),
        });
        Self {
            height: joined.height.max(u32::from(!several)) + u32::from(several),
            copies: joined.copies,
            size: joined.size.saturating_add(separators).max(1),
        }
    }
}

/// An open group, or the whole expression.
#[derive(Default)]
struct Group {
    captures: bool,
    /// Finished alternatives.
    alternatives: Vec<Shape>,
    /// The alternative being read.
    sequence: Vec<Shape>,
}

impl Group {
    fn end_alternative(&mut self) {
        let sequence = Shape::join(self.sequence.drain(..), 0);
        self.alternatives.push(sequence);
    }

    fn finish(mut self) -> Shape {
        self.end_alternative();
        let separators = self.alternatives.len() as u64 - 1;
        let whole = Shape::join(self.alternatives.into_iter(), separators);
        if self.captures { whole.wrapped(2) } else { whole }
    }
}

pub(super) struct Checker<'a> {
    pattern: &'a str,
    rest: &'a str,
    /// Where the last repetition operator starts, if nothing came after it.
    last_repeat: Option<&'a str>,
    /// Groups around the innermost one.
    outer: Vec<Group>,
    group: Group,
}

impl<'a> Checker<'a> {
    pub(super) fn new(pattern: &'a str) -> Self {
        Self { pattern, rest: pattern, last_repeat: None, outer: Vec::new(), group: Group::default() }
    }

    pub(super) fn run(mut self) -> Result<()> {
        while let Some(first) = self.rest.chars().next() {
            let before = self.rest;
            let repeated = self.step(first)?;
            self.last_repeat = repeated.then_some(before);
        }
        if !self.outer.is_empty() {
            return Err(error(Kind::MissingParen, self.pattern));
        }
        let whole = std::mem::take(&mut self.group).finish();
        self.check_limits(whole)
    }

    /// Reads one item; says whether it was a repetition operator.
    fn step(&mut self, first: char) -> Result<bool> {
        match first {
            '(' if self.rest.starts_with("(?") => self.special_group()?,
            '(' => {
                self.skip(1);
                self.open(true);
            }
            ')' => self.close()?,
            '|' => {
                self.skip(1);
                self.group.end_alternative();
            }
            '[' => self.class()?,
            '*' | '+' | '?' => {
                let size = if first == '*' { 2 } else { 1 };
                let before = self.rest;
                self.skip(1);
                self.repeat(before, |shape| shape.wrapped(size))?;
                return Ok(true);
            }
            '{' => return self.counted_repeat(),
            '\\' => self.escape()?,
            _ => {
                self.skip(first.len_utf8());
                self.push(Shape::LEAF)?;
            }
        }
        Ok(false)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// What has been read since `before`.
    fn since(&self, before: &'a str) -> &'a str {
        &before[..before.len() - self.rest.len()]
    }

    fn push(&mut self, shape: Shape) -> Result<()> {
        self.check_limits(shape)?;
        self.group.sequence.push(shape);
        Ok(())
    }

    fn check_limits(&self, shape: Shape) -> Result<()> {
        if shape.size > MAX_SIZE {
            return Err(error(Kind::Large, self.pattern));
        }
        if shape.height > MAX_HEIGHT {
            return Err(error(Kind::NestingDepth, self.pattern));
        }
        Ok(())
    }

    fn open(&mut self, captures: bool) {
        let group = Group { captures, ..Group::default() };
        self.outer.push(std::mem::replace(&mut self.group, group));
    }

    fn close(&mut self) -> Result<()> {
        let Some(outer) = self.outer.pop() else { return Err(error(Kind::UnexpectedParen, self.pattern)) };
        self.skip(1);
        let shape = std::mem::replace(&mut self.group, outer).finish();
        self.push(shape)
    }

    /// `(?…`: a named capture, a plain group, or flags.
    fn special_group(&mut self) -> Result<()> {
        let before = self.rest;
        let named = before.strip_prefix("(?P<").filter(|rest| !rest.is_empty());
        let named = named.or_else(|| before.strip_prefix("(?<").filter(|rest| !rest.is_empty()));
        if let Some(rest) = named {
            let Some((name, rest)) = rest.split_once('>') else {
                return Err(error(Kind::NamedCapture, before));
            };
            self.rest = rest;
            if name.is_empty() || !name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()) {
                return Err(error(Kind::NamedCapture, self.since(before)));
            }
            self.open(true);
            return Ok(());
        }
        self.skip(2);
        self.flags(before)
    }

    /// The flags of `(?flags)` and `(?flags:…)`, such as `i` and `s-m`.
    fn flags(&mut self, before: &'a str) -> Result<()> {
        let (mut negated, mut any) = (false, false);
        while let Some(flag) = self.rest.chars().next() {
            self.skip(flag.len_utf8());
            match flag {
                'i' | 'm' | 's' | 'U' => any = true,
                '-' if !negated => (negated, any) = (true, false),
                ':' | ')' if !negated || any => {
                    if flag == ':' {
                        self.open(false);
                    }
                    return Ok(());
                }
                _ => break,
            }
        }
        Err(error(Kind::PerlOp, self.since(before)))
    }

    /// Applies a repetition, whose operator started at `before`, to the last item.
    fn repeat(&mut self, before: &'a str, apply: impl FnOnce(Shape) -> Shape) -> Result<()> {
        if let Some(rest) = self.rest.strip_prefix('?') {
            self.rest = rest;
        }
        if let Some(last) = self.last_repeat {
            return Err(error(Kind::RepeatOp, self.since(last)));
        }
        let Some(item) = self.group.sequence.pop() else {
            return Err(error(Kind::MissingRepeatArgument, self.since(before)));
        };
        self.push(apply(item))
    }

    /// `{n}`, `{n,}` or `{n,m}`; anything else behind the brace makes it a literal.
    fn counted_repeat(&mut self) -> Result<bool> {
        let before = self.rest;
        let Some((min, max, rest)) = read_counts(before) else {
            self.skip(1);
            self.push(Shape::LEAF)?;
            return Ok(false);
        };
        self.rest = rest;
        let limit = max.unwrap_or(min).max(min);
        if limit > MAX_REPEAT || max.is_some_and(|max| min > max) {
            return Err(error(Kind::RepeatSize, self.since(before)));
        }
        let mut copies = 1;
        self.repeat(before, |item| {
            let repeated = item.repeated(min, max);
            copies = repeated.copies;
            repeated
        })?;
        if limit >= 2 && copies > MAX_REPEAT {
            return Err(error(Kind::RepeatSize, self.since(before)));
        }
        Ok(true)
    }

    /// A backslash outside brackets.
    fn escape(&mut self) -> Result<()> {
        let before = self.rest;
        if let Some(quoted) = before.strip_prefix("\\Q") {
            let (literal, rest) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            self.rest = rest;
            return literal.chars().try_for_each(|_| self.push(Shape::LEAF));
        }
        match before.as_bytes().get(1) {
            Some(b'A' | b'b' | b'B' | b'z') => self.skip(2),
            Some(b'C') => return Err(error(Kind::Escape, "\\C")),
            _ => {
                if !self.class_escape()? {
                    self.character_escape()?;
                }
            }
        }
        self.push(Shape::LEAF)
    }

    /// `\d` and the like, or `\pN`, `\p{Greek}`; says whether there was one.
    fn class_escape(&mut self) -> Result<bool> {
        match self.rest.as_bytes() {
            [b'\\', b'd' | b'D' | b's' | b'S' | b'w' | b'W', ..] => {
                self.skip(2);
                Ok(true)
            }
            [b'\\', b'p' | b'P', ..] => self.unicode_class().map(|()| true),
            _ => Ok(false),
        }
    }

    fn unicode_class(&mut self) -> Result<()> {
        let before = self.rest;
        let after = &before[2..];
        let name = match after.strip_prefix('{') {
            Some(braced) => {
                let Some((name, rest)) = braced.split_once('}') else {
                    return Err(error(Kind::CharRange, before));
                };
                self.rest = rest;
                name
            }
            None => {
                let length = after.chars().next().map_or(0, char::len_utf8);
                let (name, rest) = after.split_at(length);
                self.rest = rest;
                name
            }
        };
        if !is_class_name(name.strip_prefix('^').unwrap_or(name)) {
            return Err(error(Kind::CharRange, self.since(before)));
        }
        Ok(())
    }

    /// An escaped character, in brackets or outside.
    fn character_escape(&mut self) -> Result<char> {
        let before = self.rest;
        self.skip(1);
        let Some(letter) = self.rest.chars().next() else { return Err(error(Kind::TrailingBackslash, "")) };
        self.skip(letter.len_utf8());
        let character = match letter {
            '0' => Some(self.octal(letter)),
            '1'..='7' if self.rest.starts_with(|c| ('0'..='7').contains(&c)) => Some(self.octal(letter)),
            'x' => self.hexadecimal(),
            'a' => Some('\x07'),
            'f' => Some('\x0c'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\x0b'),
            _ if letter.is_ascii() && !letter.is_ascii_alphanumeric() => Some(letter),
            _ => None,
        };
        character.ok_or_else(|| error(Kind::Escape, self.since(before)))
    }

    /// Up to two octal digits more.
    fn octal(&mut self, first: char) -> char {
        let mut value = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
            self.skip(1);
            value = value * 8 + digit;
        }
        char::from_u32(value).unwrap_or('\0')
    }

    /// Two hexadecimal digits, or any number in braces.
    fn hexadecimal(&mut self) -> Option<char> {
        let mut next = || {
            let c = self.rest.chars().next()?;
            self.rest = &self.rest[c.len_utf8()..];
            Some(c)
        };
        let first = next()?;
        if first != '{' {
            let (high, low) = (first.to_digit(16), next().and_then(|c| c.to_digit(16)));
            return char::from_u32(high? * 16 + low?);
        }
        let (mut value, mut digits) = (0, 0);
        loop {
            match next()? {
                '}' => break,
                c => value = value * 16 + c.to_digit(16)?,
            }
            digits += 1;
            if value > u32::from(char::MAX) {
                return None;
            }
        }
        // A surrogate is a code point to Go; what character stands for it matters only to ranges.
        (digits > 0).then(|| char::from_u32(value).unwrap_or('\u{d7ff}'))
    }

    /// A bracketed class.
    fn class(&mut self) -> Result<()> {
        let before = self.rest;
        self.skip(1);
        if self.rest.starts_with('^') {
            self.skip(1);
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            first = false;
            if self.posix_class()? || self.class_escape()? {
                continue;
            }
            self.class_range(before)?;
        }
        self.skip(1);
        self.push(Shape::LEAF)
    }

    /// `[:alpha:]`; says whether there was one.
    fn posix_class(&mut self) -> Result<bool> {
        let Some((name, rest)) = self.rest.strip_prefix("[:").and_then(|rest| rest.split_once(":]")) else {
            return Ok(false);
        };
        if !POSIX_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(error(Kind::CharRange, &self.rest[..self.rest.len() - rest.len()]));
        }
        self.rest = rest;
        Ok(true)
    }

    /// A character, or two with a hyphen between.
    fn class_range(&mut self, class: &'a str) -> Result<()> {
        let before = self.rest;
        let low = self.class_character(class)?;
        let ranged = self.rest.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with(']'));
        let Some(rest) = ranged else { return Ok(()) };
        self.rest = rest;
        let high = self.class_character(class)?;
        if high < low {
            return Err(error(Kind::CharRange, self.since(before)));
        }
        Ok(())
    }

    fn class_character(&mut self, class: &'a str) -> Result<char> {
        match self.rest.chars().next() {
            None => Err(error(Kind::MissingBracket, class)),
            Some('\\') => self.character_escape(),
            Some(c) => {
                self.skip(c.len_utf8());
                Ok(c)
            }
        }
    }
}

impl Shape {
    /// Repeated at least `min` and at most `max` times, without end if there is no maximum.
    fn repeated(self, min: u32, max: Option<u32>) -> Self {
        let copies = match max {
            Some(0) => 1,
            _ => max.unwrap_or(min).max(1).saturating_mul(self.copies),
        };
        let size = match max {
            None if min == 0 => self.size.saturating_add(2),
            None => self.size.saturating_mul(min.into()).saturating_add(1),
            Some(max) => self.size.saturating_mul(max.into()).saturating_add((max - min).into()),
        };
        Self { height: self.height + 1, copies, size: size.max(1) }
    }
}

/// Reads `{n}`, `{n,}` or `{n,m}`: minimum, maximum if there is one, and what follows.
fn read_counts(text: &str) -> Option<(u32, Option<u32>, &str)> {
    let (min, rest) = read_count(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => {
            let (max, rest) = read_count(rest)?;
            (Some(max), rest)
        }
    };
    Some((min, max, rest.strip_prefix('}')?))
}

/// Reads digits without a leading zero; a number too large to read is as good as any above the limit.
fn read_count(text: &str) -> Option<(u32, &str)> {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}

fn error(kind: Kind, fragment: &str) -> RegexError {
    RegexError { kind, fragment: fragment.into() }
}
