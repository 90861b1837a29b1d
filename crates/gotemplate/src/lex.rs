//! Tokens of a template.
//!
//! Text up to `{{` is one token; inside an action, blanks are tokens too, for they separate arguments. Trim markers are
//! resolved here, so the parser never sees them. An error is a token as well, the last one.

use crate::gofmt::quote;

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
const LEFT_COMMENT: &str = "/*";
const RIGHT_COMMENT: &str = "*/";
/// A trim marker is a minus sign and one blank.
const TRIM_LEN: usize = 2;

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    Error,
    Bool,
    /// A printable character without a meaning of its own, such as the comma.
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Dot,
    Nil,
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Range,
    Template,
    With,
}

impl TokenKind {
    fn keyword(word: &str) -> Option<Self> {
        Some(match word {
            "block" => Self::Block,
            "break" => Self::Break,
            "continue" => Self::Continue,
            "define" => Self::Define,
            "else" => Self::Else,
            "end" => Self::End,
            "if" => Self::If,
            "nil" => Self::Nil,
            "range" => Self::Range,
            "template" => Self::Template,
            "with" => Self::With,
            _ => return None,
        })
    }

    fn is_keyword(self) -> bool {
        matches!(
            self,
            Self::Dot
                | Self::Nil
                | Self::Block
                | Self::Break
                | Self::Continue
                | Self::Define
                | Self::Else
                | Self::End
                | Self::If
                | Self::Range
                | Self::Template
                | Self::With
        )
    }
}

/// A token, where it starts in the text, and on which line.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) pos: usize,
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Token {
    /// The token in the words of an error message.
    pub(crate) fn describe(&self) -> String {
        match self.kind {
            TokenKind::Eof => "EOF".to_owned(),
            TokenKind::Error => self.text.clone(),
            kind if kind.is_keyword() => format!("<{}>", self.text),
            _ if self.text.len() > 10 => {
                let head: String = self.text.chars().take(10).collect();
                format!("{}...", quote::quoted(head.as_bytes()))
            }
            _ => quote::quoted(self.text.as_bytes()),
        }
    }
}

/// Reads the tokens of one text.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    /// Where the next character is.
    pos: usize,
    /// Where the present token starts.
    start: usize,
    line: usize,
    start_line: usize,
    paren_depth: usize,
    in_action: bool,
    /// Whether `break` and `continue` are keywords; a function of that name takes precedence.
    loop_keywords: bool,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str, loop_keywords: bool) -> Self {
        Self {
            text,
            pos: 0,
            start: 0,
            line: 1,
            start_line: 1,
            paren_depth: 0,
            in_action: false,
            loop_keywords,
        }
    }

    pub(crate) fn next_token(&mut self) -> Token {
        if self.in_action { self.action_token() } else { self.text_token() }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        self.line += usize::from(c == '\n');
        Some(c)
    }

    /// Skips bytes, counting their lines.
    fn advance(&mut self, bytes: usize) {
        let end = (self.pos + bytes).min(self.text.len());
        self.line += count_lines(&self.text[self.pos..end]);
        self.pos = end;
    }

    /// Drops what was read since the token's start.
    fn ignore(&mut self) {
        self.start = self.pos;
        self.start_line = self.line;
    }

    fn emit(&mut self, kind: TokenKind) -> Token {
        let text = self.text[self.start..self.pos].to_owned();
        let token = Token { kind, pos: self.start, text, line: self.start_line };
        self.ignore();
        token
    }

    /// Ends the stream with an error.
    fn fail(&mut self, message: impl Into<String>) -> Token {
        let token =
            Token { kind: TokenKind::Error, pos: self.start, text: message.into(), line: self.start_line };
        self.text = "";
        self.pos = 0;
        self.start = 0;
        self.in_action = false;
        token
    }

    fn text_token(&mut self) -> Token {
        loop {
            let Some(found) = self.rest().find(LEFT) else {
                self.advance(self.rest().len());
                let kind = if self.pos > self.start { TokenKind::Text } else { TokenKind::Eof };
                return self.emit(kind);
            };
            if let Some(token) = self.text_before(found) {
                return token;
            }
            if let Some(token) = self.left_delim() {
                return token;
            }
        }
    }

    /// The text before an action, trimmed if the action asks for it; nothing if none is left.
    fn text_before(&mut self, length: usize) -> Option<Token> {
        let text = &self.rest()[..length];
        let trims = has_left_trim(&self.rest()[length + LEFT.len()..]);
        let kept = if trims { text.trim_end_matches(is_space).len() } else { length };
        self.advance(kept);
        let token = (kept > 0).then(|| self.emit(TokenKind::Text));
        self.advance(length - kept);
        self.ignore();
        token
    }

    /// The start of an action; nothing for a comment, which is skipped whole.
    fn left_delim(&mut self) -> Option<Token> {
        self.advance(LEFT.len());
        let marker = if has_left_trim(self.rest()) { TRIM_LEN } else { 0 };
        if self.rest()[marker..].starts_with(LEFT_COMMENT) {
            self.advance(marker);
            self.ignore();
            return self.comment();
        }
        let token = self.emit(TokenKind::LeftDelim);
        self.in_action = true;
        self.paren_depth = 0;
        self.advance(marker);
        self.ignore();
        Some(token)
    }

    fn comment(&mut self) -> Option<Token> {
        let body = &self.rest()[LEFT_COMMENT.len()..];
        let Some(end) = body.find(RIGHT_COMMENT) else { return Some(self.fail("unclosed comment")) };
        let skipped = LEFT_COMMENT.len() + end + RIGHT_COMMENT.len();
        let Some(trims) = right_delim(&self.rest()[skipped..]) else {
            return Some(self.fail("comment ends before closing delimiter"));
        };
        self.advance(skipped);
        self.skip_right_delim(trims);
        self.ignore();
        None
    }

    /// Passes the end of an action and the blanks it trims.
    fn skip_right_delim(&mut self, trims: bool) {
        self.advance(if trims { TRIM_LEN } else { 0 } + RIGHT.len());
        if trims {
            let rest = self.rest();
            self.advance(rest.len() - rest.trim_start_matches(is_space).len());
        }
    }

    fn right_delim_token(&mut self, trims: bool) -> Token {
        if trims {
            self.advance(TRIM_LEN);
            self.ignore();
        }
        self.advance(RIGHT.len());
        let token = self.emit(TokenKind::RightDelim);
        if trims {
            let rest = self.rest();
            self.advance(rest.len() - rest.trim_start_matches(is_space).len());
            self.ignore();
        }
        self.in_action = false;
        token
    }

    fn action_token(&mut self) -> Token {
        if let Some(trims) = right_delim(self.rest()) {
            if self.paren_depth == 0 {
                return self.right_delim_token(trims);
            }
            return self.fail("unclosed left paren");
        }
        let Some(c) = self.peek() else { return self.fail("unclosed action") };
        if is_space(c) {
            return self.space();
        }
        let digit_follows = self.rest()[c.len_utf8()..].starts_with(|next: char| next.is_ascii_digit());
        match c {
            '"' => self.quoted('"', TokenKind::String, "unterminated quoted string"),
            '\'' => self.quoted('\'', TokenKind::CharConstant, "unterminated character constant"),
            '`' => self.raw_string(),
            '.' if !digit_follows && self.rest().len() > 1 => self.name(TokenKind::Field),
            '$' => self.name(TokenKind::Variable),
            '.' | '+' | '-' | '0'..='9' => self.number(),
            _ if is_alphanumeric(c) => self.identifier(),
            _ => self.punctuation(c),
        }
    }

    fn punctuation(&mut self, c: char) -> Token {
        self.bump();
        match c {
            '=' => self.emit(TokenKind::Assign),
            ':' if self.bump() == Some('=') => self.emit(TokenKind::Declare),
            ':' => self.fail("expected :="),
            '|' => self.emit(TokenKind::Pipe),
            '(' => {
                self.paren_depth += 1;
                self.emit(TokenKind::LeftParen)
            }
            ')' if self.paren_depth == 0 => self.fail("unexpected right paren"),
            ')' => {
                self.paren_depth -= 1;
                self.emit(TokenKind::RightParen)
            }
            ' '..='~' => self.emit(TokenKind::Char),
            _ => self.fail(format!("unrecognized character in action: {}", unicode_name(c))),
        }
    }

    /// A run of blanks, except one that belongs to a trim marker.
    fn space(&mut self) -> Token {
        while self.peek().is_some_and(is_space) {
            // The blank of ` -}}` is a part of the delimiter.
            if right_delim(self.rest()).is_some() && self.pos > self.start {
                break;
            }
            self.bump();
        }
        self.emit(TokenKind::Space)
    }

    fn identifier(&mut self) -> Token {
        while self.peek().is_some_and(is_alphanumeric) {
            self.bump();
        }
        if !self.at_terminator() {
            return self.bad_character();
        }
        let word = &self.text[self.start..self.pos];
        let kind = match TokenKind::keyword(word) {
            Some(TokenKind::Break | TokenKind::Continue) if !self.loop_keywords => TokenKind::Identifier,
            Some(keyword) => keyword,
            None if matches!(word, "true" | "false") => TokenKind::Bool,
            None => TokenKind::Identifier,
        };
        self.emit(kind)
    }

    /// `.Name`, `$name`, or the bare `.` and `$`.
    fn name(&mut self, kind: TokenKind) -> Token {
        self.bump();
        if self.at_terminator() {
            return self.emit(if kind == TokenKind::Field { TokenKind::Dot } else { kind });
        }
        while self.peek().is_some_and(is_alphanumeric) {
            self.bump();
        }
        if self.at_terminator() { self.emit(kind) } else { self.bad_character() }
    }

    fn bad_character(&mut self) -> Token {
        let c = self.peek().unwrap_or(char::REPLACEMENT_CHARACTER);
        self.fail(format!("bad character {}", unicode_name(c)))
    }

    /// Whether a name may end here.
    fn at_terminator(&self) -> bool {
        match self.peek() {
            None => true,
            Some(c) if is_space(c) => true,
            Some('.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(_) => self.rest().starts_with(RIGHT),
        }
    }

    fn quoted(&mut self, quote: char, kind: TokenKind, unterminated: &str) -> Token {
        self.bump();
        loop {
            match self.bump() {
                Some('\\') => {
                    if matches!(self.bump(), None | Some('\n')) {
                        return self.fail(unterminated);
                    }
                }
                None | Some('\n') => return self.fail(unterminated),
                Some(c) if c == quote => return self.emit(kind),
                Some(_) => {}
            }
        }
    }

    fn raw_string(&mut self) -> Token {
        self.bump();
        loop {
            match self.bump() {
                None => return self.fail("unterminated raw quoted string"),
                Some('`') => return self.emit(TokenKind::RawString),
                Some(_) => {}
            }
        }
    }

    fn number(&mut self) -> Token {
        if !self.scan_number() {
            return self.bad_number();
        }
        if !self.rest().starts_with(['+', '-']) {
            return self.emit(TokenKind::Number);
        }
        // A complex number: `1+2i`, without blanks.
        if self.scan_number() && self.text[..self.pos].ends_with('i') {
            return self.emit(TokenKind::Complex);
        }
        self.bad_number()
    }

    fn bad_number(&mut self) -> Token {
        let text = quote::quoted(&self.text.as_bytes()[self.start..self.pos]);
        self.fail(format!("bad number syntax: {text}"))
    }

    /// Reads what may be a number; whether it is one is seen when its value is taken.
    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let mut digits = "0123456789_";
        if self.accept("0") {
            if self.accept("xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        let exponent = match digits.len() {
            11 => "eE",
            23 => "pP",
            _ => "",
        };
        if self.accept(exponent) {
            self.accept("+-");
            self.accept_run("0123456789_");
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.bump();
            return false;
        }
        true
    }

    fn accept(&mut self, set: &str) -> bool {
        let fits = self.peek().is_some_and(|c| set.contains(c));
        if fits {
            self.bump();
        }
        fits
    }

    fn accept_run(&mut self, set: &str) {
        while self.accept(set) {}
    }
}

/// Whether an action ends here, and if so, whether it trims what follows.
fn right_delim(rest: &str) -> Option<bool> {
    let trimming =
        rest.starts_with(is_space) && rest[1..].starts_with('-') && rest[TRIM_LEN..].starts_with(RIGHT);
    if trimming {
        return Some(true);
    }
    rest.starts_with(RIGHT).then_some(false)
}

fn has_left_trim(rest: &str) -> bool {
    rest.starts_with('-') && rest[1..].starts_with(is_space)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn count_lines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// A character as `%#U` prints it: `U+0041 'A'`.
fn unicode_name(c: char) -> String {
    let code = format!("U+{:04X}", u32::from(c));
    if quote::is_printable(c) { format!("{code} '{c}'") } else { code }
}
