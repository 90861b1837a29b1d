//! The text form of selectors.

use super::{Operator, Requirement, SelectorError, validate_selector_key};

/// Reads a comma-separated list of requirements.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut tokens = Tokens { rest: text };
    let mut requirements = Vec::new();
    while tokens.peek() != Token::End {
        if !tokens.peek().starts_requirement() {
            return Err(tokens.next().unexpected("!, identifier, or 'end of string'"));
        }
        let requirement =
            requirement(&mut tokens).map_err(|error| SelectorError::Requirement(Box::new(error)))?;
        requirements.push(requirement);
        match tokens.next() {
            Token::End => break,
            Token::Symbol(",") if tokens.peek().starts_requirement() => {}
            Token::Symbol(",") => return Err(tokens.next().unexpected("identifier after ','")),
            other => return Err(other.unexpected("',' or 'end of string'")),
        }
    }
    Ok(requirements)
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, SelectorError> {
    let mut first = tokens.next();
    let negated = first == Token::Symbol("!");
    if negated {
        first = tokens.next();
    }
    let Token::Word(key) = first else {
        return Err(first.unexpected("identifier"));
    };
    validate_selector_key(key)?;
    if negated {
        return Requirement::new(key, Operator::DoesNotExist, Vec::new());
    }
    if tokens.peek().ends_requirement() {
        return Requirement::new(key, Operator::Exists, Vec::new());
    }
    let operator = operator(tokens)?;
    let values = match operator {
        Operator::In | Operator::NotIn => value_set(tokens)?,
        _ => vec![exact_value(tokens)?.into()],
    };
    Requirement::new(key, operator, values)
}

fn operator(tokens: &mut Tokens<'_>) -> Result<Operator, SelectorError> {
    match tokens.next() {
        Token::Word("in") => Ok(Operator::In),
        Token::Word("notin") => Ok(Operator::NotIn),
        Token::Symbol("=") => Ok(Operator::Equals),
        Token::Symbol("==") => Ok(Operator::DoubleEquals),
        Token::Symbol("!=") => Ok(Operator::NotEquals),
        Token::Symbol(">") => Ok(Operator::GreaterThan),
        Token::Symbol("<") => Ok(Operator::LessThan),
        other => Err(other.unexpected("in, notin, =, ==, !=, gt, lt")),
    }
}

/// The value after `=` and the like; nothing there means the empty value.
fn exact_value<'a>(tokens: &mut Tokens<'a>) -> Result<&'a str, SelectorError> {
    if tokens.peek().ends_requirement() {
        return Ok("");
    }
    match tokens.next() {
        Token::Word(value) => Ok(value),
        other => Err(other.unexpected("identifier")),
    }
}

/// A parenthesised list of values, any of which may be empty: `(a,,b)`, `()`.
fn value_set(tokens: &mut Tokens<'_>) -> Result<Vec<Box<str>>, SelectorError> {
    let open = tokens.next();
    if open != Token::Symbol("(") {
        return Err(open.unexpected("'('"));
    }
    let mut values = Vec::new();
    loop {
        let value = match tokens.peek() {
            Token::Word(word) => {
                tokens.next();
                word
            }
            _ => "",
        };
        values.push(value.into());
        match tokens.next() {
            Token::Symbol(")") => return Ok(values),
            Token::Symbol(",") => {}
            other => return Err(other.unexpected("',' or ')'")),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Token<'a> {
    /// A key, a value, or one of the words `in` and `notin`.
    Word(&'a str),
    /// An operator, bracket or comma, or a run of such that is none.
    Symbol(&'a str),
    End,
}

impl Token<'_> {
    fn starts_requirement(self) -> bool {
        matches!(self, Self::Word(_) | Self::Symbol("!"))
    }

    fn ends_requirement(self) -> bool {
        matches!(self, Self::End | Self::Symbol(","))
    }

    fn unexpected(self, expected: &'static str) -> SelectorError {
        let found = match self {
            Self::Word(text) | Self::Symbol(text) => text,
            Self::End => "",
        };
        SelectorError::Unexpected { found: found.into(), expected }
    }
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Token<'a> {
        Self { rest: self.rest }.next()
    }

    fn next(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = self.rest.chars().next() else {
            return Token::End;
        };
        if !is_symbol(first) {
            let end = self.rest.find(|c| is_symbol(c) || is_blank(c)).unwrap_or(self.rest.len());
            return Token::Word(self.take(end));
        }
        let length =
            ["==", "!="].iter().find(|symbol| self.rest.starts_with(**symbol)).map_or(1, |s| s.len());
        Token::Symbol(self.take(length))
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}
