//! Texts. Places in them are counted in characters.

use super::{Builtin, Cost, method, no_overload, text_of};
use crate::crd::cel::error::{EvalError, Result};
use crate::crd::cel::meter::Meter;
use crate::crd::cel::value::Value;

pub(super) const BUILTINS: &[Builtin] = &[
    method("contains", 2..=2, Cost::Search, |_, args| both(&args, |text, part| text.contains(part))),
    method("startsWith", 2..=2, Cost::Read, |_, args| both(&args, |text, part| text.starts_with(part))),
    method("endsWith", 2..=2, Cost::Read, |_, args| both(&args, |text, part| text.ends_with(part))),
    method("charAt", 2..=2, Cost::Read, char_at),
    method("indexOf", 2..=3, Cost::Own, super::lists::index_of),
    method("lastIndexOf", 2..=3, Cost::Own, super::lists::last_index_of),
    method("lowerAscii", 1..=1, Cost::Read, |_, args| Ok(text(&args[0])?.to_ascii_lowercase().into())),
    method("upperAscii", 1..=1, Cost::Read, |_, args| Ok(text(&args[0])?.to_ascii_uppercase().into())),
    method("replace", 3..=4, Cost::ReadAndWrite, replace),
    method("split", 2..=3, Cost::ReadAndWrite, split),
    method("join", 1..=2, Cost::Own, join),
    method("substring", 2..=3, Cost::Read, substring),
    method("trim", 1..=1, Cost::Read, |_, args| Ok(text(&args[0])?.trim().to_owned().into())),
    method("format", 2..=2, Cost::ReadAndWrite, format),
];

fn text<'v>(value: &'v Value<'_>) -> Result<&'v str> {
    match value {
        Value::String(text) => Ok(text),
        _ => no_overload(),
    }
}

fn both<'a>(args: &[Value<'_>], holds: fn(&str, &str) -> bool) -> Result<Value<'a>> {
    Ok(holds(text(&args[0])?, text(&args[1])?).into())
}

/// The number in an argument that may be left out.
fn int(args: &[Value<'_>], index: usize) -> Result<Option<i64>> {
    match args.get(index) {
        None => Ok(None),
        Some(Value::Int(int)) => Ok(Some(*int)),
        Some(_) => no_overload(),
    }
}

fn out_of_range<T>(index: i64) -> Result<T> {
    Err(EvalError::new(format!("index out of range: {index}")))
}

fn char_at<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let text = text(&args[0])?;
    let Some(at) = int(&args, 1)? else { return no_overload() };
    let count = text.chars().count();
    match usize::try_from(at) {
        Ok(place) if place <= count => {
            Ok(text.chars().nth(place).map_or_else(String::new, String::from).into())
        }
        _ => out_of_range(at),
    }
}

fn substring<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let text = text(&args[0])?;
    let count = text.chars().count();
    let Some(start) = int(&args, 1)? else { return no_overload() };
    let end = int(&args, 2)?;
    let place = |at: i64| match usize::try_from(at) {
        Ok(place) if place <= count => Ok(place),
        _ => out_of_range(at),
    };
    let (from, to) = (place(start)?, end.map_or(Ok(count), place)?);
    if from > to {
        let end = end.unwrap_or_default();
        return Err(EvalError::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    Ok(text.chars().skip(from).take(to - from).collect::<String>().into())
}

fn replace<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let (text, old, new) = (text(&args[0])?, text(&args[1])?, text(&args[2])?);
    let limit = match int(&args, 3)? {
        Some(limit) if limit >= 0 => usize::try_from(limit).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    // The result may be far longer than what went in.
    let times = text.matches(old).take(limit).count();
    meter.charge_text(times.saturating_mul(new.len()))?;
    Ok(text.replacen(old, new, limit).into())
}

fn split<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let (text, separator) = (text(&args[0])?, text(&args[1])?);
    let limit = int(&args, 2)?;
    meter.charge_text(text.len())?;
    let parts = match limit {
        Some(0) => Vec::new(),
        Some(limit) if limit > 0 => pieces(text, separator, usize::try_from(limit).unwrap_or(usize::MAX)),
        _ => pieces(text, separator, usize::MAX),
    };
    Ok(parts.into_iter().map(|part| Value::from(part.to_owned())).collect::<Vec<_>>().into())
}

/// At most so many pieces of a text; without a separator, its characters.
fn pieces<'t>(text: &'t str, separator: &str, limit: usize) -> Vec<&'t str> {
    if !separator.is_empty() {
        return text.splitn(limit, separator).collect();
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if pieces.len() + 1 == limit {
            break;
        }
        let (first, others) = rest.split_at(c.len_utf8());
        pieces.push(first);
        rest = others;
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

fn join<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let Value::List(list) = &args[0] else { return no_overload() };
    let separator = args.get(1).map_or(Ok(""), text)?;
    let mut out = String::new();
    for (index, item) in list.values().enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        let before = out.len();
        out.push_str(text(&item?)?);
        meter.charge_text((out.len() - before).saturating_add(separator.len()).saturating_mul(2))?;
    }
    Ok(out.into())
}

/// Fills the values of a list into a text with `%s`, `%d` and the like.
fn format<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let template = text(&args[0])?;
    let Value::List(list) = &args[1] else { return no_overload() };
    let mut values = list.values();
    let mut out = String::with_capacity(template.len());
    let mut rest = template.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let before = out.len();
        match rest.next() {
            Some('%') => out.push('%'),
            Some(verb) => {
                let value = values
                    .next()
                    .ok_or_else(|| EvalError::new("index out of range in format arguments"))??;
                out.push_str(&formatted(verb, &value)?);
            }
            None => return Err(EvalError::new("unexpected end of string")),
        }
        meter.charge_text(out.len() - before)?;
    }
    Ok(out.into())
}

fn formatted(verb: char, value: &Value<'_>) -> Result<String> {
    match (verb, value) {
        ('s', Value::List(list)) => {
            let items = list.values().map(|item| formatted('s', &item?)).collect::<Result<Vec<_>>>()?;
            Ok(format!("[{}]", items.join(", ")))
        }
        ('s', Value::Null) => Ok("null".to_owned()),
        ('s', Value::Type(name)) => Ok((*name).to_owned()),
        ('s', _) => Ok(text_of(value)?.to_string()),
        ('d', Value::Int(_) | Value::UInt(_)) => Ok(text_of(value)?.to_string()),
        ('f', Value::Double(double)) => Ok(format!("{double:.6}")),
        ('x', Value::Int(int)) => Ok(format!("{int:x}")),
        ('X', Value::Int(int)) => Ok(format!("{int:X}")),
        ('b', Value::Int(int)) => Ok(format!("{int:b}")),
        ('o', Value::Int(int)) => Ok(format!("{int:o}")),
        _ => Err(EvalError::new(format!(
            "error during formatting: %{verb} does not take a {}",
            value.type_name()
        ))),
    }
}
