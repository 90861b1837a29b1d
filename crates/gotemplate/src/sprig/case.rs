//! Upper and lower case, and names in the styles of programming languages.

use crate::value::{Functions, Str};

pub(super) fn add_to(functions: &mut Functions) {
    functions
        .add("upper", |text: Str| map_chars(&text, upper))
        .add("lower", |text: Str| map_chars(&text, lower))
        .add("title", |text: Str| title(&text))
        .add("untitle", |text: Str| untitle(&text))
        .add("swapcase", |text: Str| swap_case(&text))
        .add("snakecase", |text: Str| words::joined(&chars(&text), '_'))
        .add("kebabcase", |text: Str| words::joined(&chars(&text), '-'))
        .add("camelcase", |text: Str| pascal(&chars(&text)));
}

fn chars(text: &Str) -> Vec<char> {
    text.runes().map(|(c, _)| c).collect()
}

/// Go maps characters one to one; those that would become several stay.
fn upper(c: char) -> char {
    let mut mapped = c.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(upper), None) => upper,
        _ => c,
    }
}

fn lower(c: char) -> char {
    let mut mapped = c.to_lowercase();
    match (mapped.next(), mapped.next()) {
        (Some(lower), None) => lower,
        // The only one of these, whose simple mapping is the plain letter.
        _ => 'i',
    }
}

fn map_chars(text: &Str, map: fn(char) -> char) -> String {
    text.runes().map(|(c, _)| map(c)).collect()
}

/// Upper case for each letter that follows something that is no letter, digit or underscore.
fn title(text: &Str) -> String {
    let mut before = ' ';
    let mut out = String::new();
    for (c, _) in text.runes() {
        out.push(if is_separator(before) { upper(c) } else { c });
        before = c;
    }
    out
}

fn is_separator(c: char) -> bool {
    if c.is_ascii() {
        return !(c.is_ascii_alphanumeric() || c == '_');
    }
    !c.is_alphanumeric() && c.is_whitespace()
}

fn untitle(text: &Str) -> String {
    let mut first = true;
    let mut out = String::new();
    for (c, _) in text.runes() {
        if c.is_whitespace() {
            first = true;
            out.push(c);
        } else {
            out.push(if std::mem::take(&mut first) { lower(c) } else { c });
        }
    }
    out
}

fn swap_case(text: &Str) -> String {
    let swap = |(c, _): (char, &[u8])| {
        if c.is_uppercase() {
            lower(c)
        } else if c.is_lowercase() {
            upper(c)
        } else {
            c
        }
    };
    text.runes().map(swap).collect()
}

fn is_connector(c: char) -> bool {
    c == '-' || c == '_' || c.is_whitespace()
}

/// `some_name` to `SomeName`. Connectors at the start, and all but one of a run, stay.
fn pascal(text: &[char]) -> String {
    let mut out = String::new();
    let start = text.iter().position(|c| !is_connector(*c)).unwrap_or(text.len());
    out.extend(&text[..start]);
    let Some((&first, rest)) = text[start..].split_first() else {
        // Parity: of connectors alone, the last one comes out twice.
        out.extend(text.last());
        return out;
    };
    // Whether the word so far is all capitals, which then become small: `HTTP_STATUS` is `HttpStatus`.
    let mut capitals = first.is_uppercase();
    let mut before = upper(first);
    for &c in rest {
        let mut current = c;
        if is_connector(c) && is_connector(before) {
            out.push(before);
        } else if is_connector(before) {
            capitals = c.is_uppercase();
            current = upper(c);
        } else {
            if capitals && c.is_uppercase() {
                current = lower(c);
            } else {
                capitals = false;
            }
            out.push(before);
        }
        before = current;
    }
    out.push(before);
    out
}

/// `SomeName` to `some_name`: words end where the kind of characters changes.
mod words {
    use super::{is_connector, lower};

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Kind {
        None,
        Number,
        Upper,
        Alphabet,
        Connector,
        Punctuation,
        Other,
    }

    type Word<'a> = (Kind, &'a [char]);

    pub(super) fn joined(text: &[char], connector: char) -> String {
        let mut out = String::new();
        let mut rest = text;
        let mut word = next(&mut rest);
        while !rest.is_empty() {
            let (before, last) = word;
            if before != Kind::Connector {
                write(&mut out, word, connector);
            }
            word = next(&mut rest);
            match before {
                Kind::Number => {
                    word = write_run(&mut out, word, &mut rest, connector);
                    separate(&mut out, word.0, connector);
                }
                Kind::Connector => write(&mut out, (before, last), connector),
                Kind::Punctuation => {}
                _ if word.0 != Kind::Number => separate(&mut out, word.0, connector),
                _ if rest.is_empty() => {}
                _ => {
                    let number = word;
                    word = next(&mut rest);
                    // A number belongs to the word before it, unless small letters follow.
                    if word.0 == Kind::Alphabet {
                        out.push(connector);
                        write(&mut out, number, connector);
                        word = write_run(&mut out, word, &mut rest, connector);
                    } else {
                        write(&mut out, number, connector);
                    }
                    separate(&mut out, word.0, connector);
                }
            }
        }
        write(&mut out, word, connector);
        out
    }

    /// Writes words of small letters and numbers as long as they follow each other, and gives the next one.
    fn write_run<'a>(
        out: &mut String,
        mut word: Word<'a>,
        rest: &mut &'a [char],
        connector: char,
    ) -> Word<'a> {
        while matches!(word.0, Kind::Alphabet | Kind::Number) {
            write(out, word, connector);
            word = next(rest);
        }
        word
    }

    fn separate(out: &mut String, next: Kind, connector: char) {
        if !matches!(next, Kind::None | Kind::Connector | Kind::Punctuation) {
            out.push(connector);
        }
    }

    fn write(out: &mut String, (kind, word): Word<'_>, connector: char) {
        for &c in word {
            out.push(match kind {
                Kind::Upper | Kind::Connector if is_connector(c) => connector,
                Kind::Upper | Kind::Connector if c.is_uppercase() => lower(c),
                _ => c,
            });
        }
    }

    fn is_alphabet(c: char) -> bool {
        c.is_alphabetic()
    }

    fn is_small(c: char) -> bool {
        is_alphabet(c) && !c.is_uppercase()
    }

    fn is_punctuation(c: char) -> bool {
        if c.is_ascii() {
            return c.is_ascii_punctuation()
                && !matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~');
        }
        matches!(c, '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{3001}'..='\u{3003}' | '¡' | '§' | '«' | '¶' | '·' | '»' | '¿')
    }

    fn kind(c: char) -> Kind {
        match c {
            _ if is_connector(c) => Kind::Connector,
            _ if is_punctuation(c) => Kind::Punctuation,
            _ if c.is_uppercase() => Kind::Upper,
            _ if is_alphabet(c) => Kind::Alphabet,
            _ if c.is_numeric() => Kind::Number,
            _ => Kind::Other,
        }
    }

    fn next<'a>(rest: &mut &'a [char]) -> Word<'a> {
        let Some(&first) = rest.first() else { return (Kind::None, &[]) };
        let kind = kind(first);
        let run = |from: usize, holds: &dyn Fn(char) -> bool| {
            from + rest[from..].iter().take_while(|c| holds(**c)).count()
        };
        let length = match kind {
            Kind::Connector => run(1, &is_connector),
            Kind::Punctuation => run(1, &is_punctuation),
            Kind::Number => run(1, &char::is_numeric),
            Kind::Alphabet => run(1, &is_small),
            Kind::Upper => match rest.get(1) {
                Some(second) if second.is_uppercase() => {
                    let end = run(1, &char::is_uppercase);
                    // The last capital starts the next word: `HTTPStatus` is `HTTP` and `Status`.
                    if rest.get(end).is_some_and(|c| is_alphabet(*c)) { end - 1 } else { end }
                }
                _ => run(1, &is_small),
            },
            Kind::None | Kind::Other => {
                run(1, &|c| !is_connector(c) && !is_alphabet(c) && !c.is_numeric() && !is_punctuation(c))
            }
        };
        let (word, tail) = rest.split_at(length);
        *rest = tail;
        (kind, word)
    }
}
