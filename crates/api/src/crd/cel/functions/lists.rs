//! Lists, and what they have in common with texts.

use std::cmp::Ordering;

use super::operators::sum_of;
use super::{Builtin, Cost, global, method, no_overload};
use crate::crd::cel::error::{EvalError, Result};
use crate::crd::cel::meter::Meter;
use crate::crd::cel::value::{List, Value};

pub(super) const BUILTINS: &[Builtin] = &[
    method("isSorted", 1..=1, Cost::Items, is_sorted),
    method("sum", 1..=1, Cost::Items, sum),
    method("min", 1..=1, Cost::Items, |_, args| extreme(&args[0], "min", Ordering::is_lt)),
    method("max", 1..=1, Cost::Items, |_, args| extreme(&args[0], "max", Ordering::is_gt)),
    global("sets.contains", 2..=2, Cost::Own, |meter, args| {
        Ok(has_all(list(&args[0])?, list(&args[1])?, meter)?.into())
    }),
    global("sets.equivalent", 2..=2, Cost::Own, |meter, args| {
        let (a, b) = (list(&args[0])?, list(&args[1])?);
        Ok((has_all(a, b, meter)? && has_all(b, a, meter)?).into())
    }),
    global("sets.intersects", 2..=2, Cost::Own, |meter, args| {
        let (a, b) = (list(&args[0])?, list(&args[1])?);
        for item in b.values() {
            if has(a, &item?, meter)? {
                return Ok(true.into());
            }
        }
        Ok(false.into())
    }),
];

fn list<'v, 'a>(value: &'v Value<'a>) -> Result<&'v List<'a>> {
    match value {
        Value::List(list) => Ok(list),
        _ => no_overload(),
    }
}

fn has<'a>(list: &List<'a>, wanted: &Value<'a>, meter: &mut Meter) -> Result<bool> {
    for item in list.values() {
        meter.charge(1)?;
        if item?.equals(wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_all<'a>(list: &List<'a>, wanted: &List<'a>, meter: &mut Meter) -> Result<bool> {
    for item in wanted.values() {
        if !has(list, &item?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_sorted<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let items = list(&args[0])?.values().collect::<Result<Vec<_>>>()?;
    for pair in items.windows(2) {
        if pair[0].compare(&pair[1])? == Some(Ordering::Greater) {
            return Ok(false.into());
        }
    }
    Ok(true.into())
}

fn sum<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let mut items = list(&args[0])?.values();
    let Some(first) = items.next() else { return Ok(0.into()) };
    items.try_fold(first?, |sum, item| sum_of(meter, sum, item?))
}

fn extreme<'a>(value: &Value<'a>, name: &str, better: fn(Ordering) -> bool) -> Result<Value<'a>> {
    let mut best: Option<Value<'a>> = None;
    for item in list(value)?.values() {
        let item = item?;
        best = match best {
            Some(best) if !item.compare(&best)?.is_some_and(better) => Some(best),
            _ => Some(item),
        };
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

/// The first place of a text in a text, or of an item in a list, after where it starts to look; -1 if there is none.
pub(super) fn index_of<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    place(meter, &args, |places, from| {
        places.iter().copied().find(|place| from.is_none_or(|from| *place >= from))
    })
}

/// As [`index_of`], the last place before where it ends to look.
pub(super) fn last_index_of<'a>(meter: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    place(meter, &args, |places, until| {
        places.iter().copied().rev().find(|place| until.is_none_or(|until| *place <= until))
    })
}

fn place<'a>(
    meter: &mut Meter,
    args: &[Value<'a>],
    choose: fn(&[usize], Option<usize>) -> Option<usize>,
) -> Result<Value<'a>> {
    let (places, length) = match (&args[0], &args[1]) {
        (Value::String(text), Value::String(part)) => {
            meter.charge_search(text.len(), part.len())?;
            (places_in_text(text, part), text.chars().count())
        }
        (Value::List(list), wanted) if args.len() == 2 => (places_in_list(list, wanted, meter)?, list.len()),
        _ => return no_overload(),
    };
    let bound = match args.get(2) {
        None => None,
        Some(Value::Int(bound)) => match usize::try_from(*bound) {
            Ok(at) if at <= length => Some(at),
            _ => return Err(EvalError::new(format!("index out of range: {bound}"))),
        },
        Some(_) => return no_overload(),
    };
    Ok(choose(&places, bound).map_or(Value::Int(-1), Value::count))
}

/// Where a text occurs in another, in characters.
fn places_in_text(text: &str, part: &str) -> Vec<usize> {
    let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]).enumerate();
    starts.filter(|(_, at)| text[*at..].starts_with(part)).map(|(place, _)| place).collect()
}

fn places_in_list<'a>(list: &List<'a>, wanted: &Value<'a>, meter: &mut Meter) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    for (place, item) in list.values().enumerate() {
        meter.charge(1)?;
        if item?.equals(wanted, meter)? {
            places.push(place);
        }
    }
    Ok(places)
}
