//! Strings.

use super::{encode, text_of};
use crate::error::CallError;
use crate::gofmt::{self, quote};
use crate::limits::{Budget, LimitError};
use crate::value::{Functions, Map, MapKind, Str, Value, Variadic, runes};

type Text = Result<Vec<u8>, LimitError>;

pub(super) fn add_to(functions: &mut Functions) {
    functions
        .add("hello", || "Hello!")
        .add("trim", |text: Str| text.to_text().trim().to_owned())
        .add("trimAll", |cut: Str, text: Str| trim_all(&cut, &text))
        .add("trimall", |cut: Str, text: Str| trim_all(&cut, &text))
        .add("trimSuffix", |cut: Str, text: Str| {
            Str::from(text.as_bytes().strip_suffix(cut.as_bytes()).unwrap_or(text.as_bytes()))
        })
        .add("trimPrefix", |cut: Str, text: Str| {
            Str::from(text.as_bytes().strip_prefix(cut.as_bytes()).unwrap_or(text.as_bytes()))
        })
        .add("nospace", |text: Str| no_space(&text))
        .add("repeat", repeat)
        .add("substr", substr)
        .add("trunc", trunc)
        .add("abbrev", |width: i64, text: Str| if width < 4 { text } else { abbreviate(&text, 0, width) })
        .add("abbrevboth", |offset: i64, width: i64, text: Str| {
            if width < 4 || (offset > 0 && width < 7) { text } else { abbreviate(&text, offset, width) }
        })
        .add("initials", |text: Str| initials(&text))
        .add("wrap", |budget: &Budget, width: i64, text: Str| wrap(budget, &text, width, b"\n", false))
        .add("wrapWith", |budget: &Budget, width: i64, line: Str, text: Str| {
            let line = if line.is_empty() { Str::from("\n") } else { line };
            wrap(budget, &text, width, line.as_bytes(), true)
        })
        .add("contains", |part: Str, text: Str| find(text.as_bytes(), part.as_bytes()).is_some())
        .add("hasPrefix", |part: Str, text: Str| text.as_bytes().starts_with(part.as_bytes()))
        .add("hasSuffix", |part: Str, text: Str| text.as_bytes().ends_with(part.as_bytes()))
        .add("quote", quote_all)
        .add("squote", squote_all)
        .add("cat", cat)
        .add("indent", |budget: &Budget, width: i64, text: Str| indent(budget, width, &text))
        .add("nindent", |budget: &Budget, width: i64, text: Str| {
            let mut out = b"\n".to_vec();
            out.extend(indent(budget, width, &text)?);
            Ok::<_, CallError>(out)
        })
        .add("replace", |budget: &Budget, old: Str, new: Str, text: Str| {
            replace(budget, text.as_bytes(), old.as_bytes(), new.as_bytes())
        })
        .add("plural", |one: Str, many: Str, count: i64| if count == 1 { one } else { many })
        .add("toString", |budget: &Budget, value: Value| text_of(budget, &value))
        .add("split", |separator: Str, text: Str| numbered(split(text.as_bytes(), separator.as_bytes(), -1)))
        .add("splitn", |separator: Str, count: i64, text: Str| {
            numbered(split(text.as_bytes(), separator.as_bytes(), count))
        })
        .add("splitList", |separator: Str, text: Str| split(text.as_bytes(), separator.as_bytes(), -1))
        .add("toStrings", |budget: &Budget, value: Value| strings(budget, &value))
        .add("join", |budget: &Budget, separator: Str, value: Value| {
            join(budget, &strings(budget, &value)?, separator.as_bytes())
        })
        .add("sortAlpha", |budget: &Budget, value: Value| {
            let mut items = if value.is_nil() { vec![Str::from("<nil>")] } else { strings(budget, &value)? };
            items.sort();
            Ok::<_, LimitError>(items)
        });
    encode::add_hashes(functions);
}

/// Where a part starts in a text.
pub(super) fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window == part)
}

fn trim_all(cut: &Str, text: &Str) -> Str {
    let set: Vec<char> = cut.runes().map(|(c, _)| c).collect();
    let runes: Vec<(char, &[u8])> = text.runes().collect();
    let kept = |(c, _): &(char, &[u8])| !set.contains(c);
    let Some(start) = runes.iter().position(kept) else { return Str::from("") };
    let end = runes.iter().rposition(kept).unwrap_or(start);
    runes[start..=end].iter().flat_map(|(_, raw)| raw.iter().copied()).collect::<Vec<u8>>().into()
}

/// Parity: takes bytes for characters, so text beyond ASCII is garbled as soon as a blank is removed.
fn no_space(text: &Str) -> Str {
    let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ' | 0x85 | 0xa0);
    if !text.as_bytes().iter().any(is_space) {
        return text.clone();
    }
    text.as_bytes()
        .iter()
        .filter(|byte| !is_space(byte))
        .map(|byte| char::from(*byte))
        .collect::<String>()
        .into()
}

fn initials(text: &Str) -> String {
    let mut out = String::new();
    let mut after_gap = true;
    for &byte in text.as_bytes() {
        let c = char::from(byte);
        if c.is_whitespace() {
            after_gap = true;
        } else if std::mem::take(&mut after_gap) {
            out.push(c);
        }
    }
    out
}

fn repeat(budget: &Budget, count: i64, text: Str) -> Result<Vec<u8>, CallError> {
    let Ok(count) = usize::try_from(count) else { return Err("strings: negative Repeat count".into()) };
    budget.charge_bytes(text.len().saturating_mul(count))?;
    Ok(text.as_bytes().repeat(count))
}

fn substr(start: i64, end: i64, text: Str) -> Result<Str, CallError> {
    let length = text.len();
    let bytes = text.as_bytes();
    let cut = |range: Option<&[u8]>, shown: String| {
        range.map(Str::from).ok_or_else(|| format!("runtime error: slice bounds out of range {shown}").into())
    };
    match (usize::try_from(start), usize::try_from(end)) {
        (Err(_), Ok(end)) => cut(bytes.get(..end), format!("[:{end}] with length {length}")),
        (Err(_), Err(_)) => cut(None, format!("[:{end}]")),
        (Ok(start), Ok(end)) if end <= length => cut(bytes.get(start..end), format!("[{start}:{end}]")),
        (Ok(start), _) => cut(bytes.get(start..), format!("[{start}:{length}]")),
    }
}

fn trunc(count: i64, text: Str) -> Str {
    let bytes = text.as_bytes();
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if size >= bytes.len() {
        return text;
    }
    Str::from(if count < 0 { &bytes[bytes.len() - size..] } else { &bytes[..size] })
}

fn abbreviate(text: &Str, offset: i64, width: i64) -> Str {
    let bytes = text.as_bytes();
    let (Ok(width), length) = (usize::try_from(width), bytes.len()) else { return text.clone() };
    if length <= width {
        return text.clone();
    }
    let kept = width - 3;
    let mut offset = usize::try_from(offset).unwrap_or(0).min(length);
    if length - offset < kept {
        offset = length - kept;
    }
    if offset <= 4 {
        return [&bytes[..kept], b"..."].concat().into();
    }
    if width < 7 {
        return Str::from("");
    }
    if offset + kept < length {
        let inner = abbreviate(&Str::from(&bytes[offset..]), 0, i64::try_from(kept).unwrap_or(i64::MAX));
        return [b"...", inner.as_bytes()].concat().into();
    }
    [b"...", &bytes[length - kept..]].concat().into()
}

fn wrap(budget: &Budget, text: &Str, width: i64, line: &[u8], break_words: bool) -> Text {
    let text = text.as_bytes();
    let width = usize::try_from(width).unwrap_or(1).max(1);
    let mut out = Vec::new();
    let mut at = 0;
    while text.len().saturating_sub(at) > width {
        budget.charge_steps(1)?;
        budget.charge_bytes(line.len())?;
        if text[at] == b' ' {
            at += 1;
            continue;
        }
        let last_space = text[at..=at + width].iter().rposition(|byte| *byte == b' ');
        if let Some(space) = last_space {
            out.extend_from_slice(&text[at..at + space]);
            out.extend_from_slice(line);
            at += space + 1;
        } else if break_words {
            out.extend_from_slice(&text[at..at + width]);
            out.extend_from_slice(line);
            at += width;
        } else if let Some(space) = text[at + width..].iter().position(|byte| *byte == b' ') {
            out.extend_from_slice(&text[at..at + width + space]);
            out.extend_from_slice(line);
            at += width + space + 1;
        } else {
            out.extend_from_slice(&text[at..]);
            at = text.len();
        }
    }
    out.extend_from_slice(&text[at.min(text.len())..]);
    Ok(out)
}

fn quote_all(budget: &Budget, values: Variadic<Value>) -> Text {
    let mut items = Vec::new();
    for value in values.0.iter().filter(|value| !value.is_nil()) {
        items.push(Str::from(quote::quoted(text_of(budget, value)?.as_bytes())));
    }
    join(budget, &items, b" ")
}

fn squote_all(budget: &Budget, values: Variadic<Value>) -> Text {
    let mut items = Vec::new();
    for value in values.0.iter().filter(|value| !value.is_nil()) {
        let text = gofmt::text(budget, value)?;
        items.push(Str::from([b"'", text.as_slice(), b"'"].concat()));
    }
    join(budget, &items, b" ")
}

fn cat(budget: &Budget, values: Variadic<Value>) -> Text {
    let mut items = Vec::new();
    for value in values.0.iter().filter(|value| !value.is_nil()) {
        items.push(Str::from(gofmt::text(budget, value)?));
    }
    join(budget, &items, b" ")
}

fn indent(budget: &Budget, width: i64, text: &Str) -> Result<Vec<u8>, CallError> {
    let Ok(width) = usize::try_from(width) else { return Err("strings: negative Repeat count".into()) };
    budget.charge_bytes(width)?;
    let mut break_and_pad = vec![b' '; width + 1];
    break_and_pad[0] = b'\n';
    let mut out = break_and_pad[1..].to_vec();
    out.extend(replace(budget, text.as_bytes(), b"\n", &break_and_pad)?);
    Ok(out)
}

/// Replaces every occurrence; an empty `old` is found around each character.
pub(super) fn replace(budget: &Budget, text: &[u8], old: &[u8], new: &[u8]) -> Text {
    let mut out = Vec::with_capacity(text.len());
    if old.is_empty() {
        for (_, raw) in runes(text) {
            budget.charge_bytes(new.len() + raw.len())?;
            out.extend_from_slice(new);
            out.extend_from_slice(raw);
        }
        out.extend_from_slice(new);
        return Ok(out);
    }
    let mut rest = text;
    while let Some(at) = find(rest, old) {
        budget.charge_bytes(at + new.len())?;
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(new);
        rest = &rest[at + old.len()..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

/// `strings.SplitN`: at most `count` parts, or all if it is negative.
pub(super) fn split(text: &[u8], separator: &[u8], count: i64) -> Vec<Str> {
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    if limit == 0 {
        return Vec::new();
    }
    if separator.is_empty() {
        let mut parts: Vec<Str> = runes(text).map(|(_, raw)| Str::from(raw)).collect();
        if parts.len() > limit {
            let rest: Vec<u8> = parts.drain(limit - 1..).flat_map(|part| part.as_bytes().to_vec()).collect();
            parts.push(rest.into());
        }
        return parts;
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while parts.len() + 1 < limit
        && let Some(at) = find(rest, separator)
    {
        parts.push(Str::from(&rest[..at]));
        rest = &rest[at + separator.len()..];
    }
    parts.push(Str::from(rest));
    parts
}

/// Parts as `{_0: …, _1: …}`.
fn numbered(parts: Vec<Str>) -> Map {
    let entries = parts.into_iter().enumerate();
    Map::typed(MapKind::String, entries.map(|(at, part)| (format!("_{at}").into(), part.into())).collect())
}

/// The items of a list as strings, without those that are nil; a value that is no list is its only item.
pub(super) fn strings(budget: &Budget, value: &Value) -> Result<Vec<Str>, LimitError> {
    match &*value.underlying() {
        Value::Nil => Ok(Vec::new()),
        Value::List(list) => {
            list.items().iter().filter(|item| !item.is_nil()).map(|item| text_of(budget, item)).collect()
        }
        Value::Bytes(bytes) => Ok(bytes.as_bytes().iter().map(|byte| byte.to_string().into()).collect()),
        other => Ok(vec![text_of(budget, other)?]),
    }
}

fn join(budget: &Budget, items: &[Str], separator: &[u8]) -> Text {
    let length: usize = items.iter().map(|item| item.len() + separator.len()).sum();
    budget.charge_bytes(length)?;
    let mut out = Vec::with_capacity(length);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(item.as_bytes());
    }
    Ok(out)
}
