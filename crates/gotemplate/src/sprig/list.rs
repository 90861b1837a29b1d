//! Lists.

use super::defaults::is_empty;
use super::reflect::deep_equal;
use crate::error::CallError;
use crate::limits::Budget;
use crate::value::{Elem, Functions, List, Str, UintKind, Value, Variadic};

pub(super) fn add_to(functions: &mut Functions) {
    for name in ["list", "tuple"] {
        functions.add(name, |values: Variadic<Value>| values.0);
    }
    for name in ["append", "push", "mustAppend", "mustPush"] {
        functions.add(name, |budget: &Budget, list: Value, value: Value| {
            let mut items = items(budget, &list, "Cannot push on type")?;
            items.push(value);
            Ok::<_, CallError>(items)
        });
    }
    for name in ["prepend", "mustPrepend"] {
        functions.add(name, |budget: &Budget, list: Value, value: Value| {
            let mut items = items(budget, &list, "Cannot prepend on type")?;
            items.insert(0, value);
            Ok::<_, CallError>(items)
        });
    }
    for name in ["first", "mustFirst"] {
        functions.add(name, |budget: &Budget, list: Value| {
            Ok::<_, CallError>(items(budget, &list, "Cannot find first on type")?.into_iter().next())
        });
    }
    for name in ["last", "mustLast"] {
        functions.add(name, |budget: &Budget, list: Value| {
            Ok::<_, CallError>(items(budget, &list, "Cannot find last on type")?.pop())
        });
    }
    for name in ["rest", "mustRest"] {
        functions.add(name, |budget: &Budget, list: Value| {
            let items = items(budget, &list, "Cannot find rest on type")?;
            Ok::<_, CallError>(nil_if_empty(&items, || items.get(1..).unwrap_or_default().to_vec()))
        });
    }
    for name in ["initial", "mustInitial"] {
        functions.add(name, |budget: &Budget, list: Value| {
            let items = items(budget, &list, "Cannot find initial on type")?;
            Ok::<_, CallError>(nil_if_empty(&items, || items[..items.len() - 1].to_vec()))
        });
    }
    for name in ["reverse", "mustReverse"] {
        functions.add(name, |budget: &Budget, list: Value| {
            let mut items = items(budget, &list, "Cannot find reverse on type")?;
            items.reverse();
            Ok::<_, CallError>(items)
        });
    }
    for name in ["compact", "mustCompact"] {
        functions.add(name, |budget: &Budget, list: Value| {
            let mut items = items(budget, &list, "Cannot compact on type")?;
            items.retain(|item| !is_empty(item));
            Ok::<_, CallError>(items)
        });
    }
    for name in ["uniq", "mustUniq"] {
        functions.add(name, unique);
    }
    for name in ["without", "mustWithout"] {
        functions.add(name, without);
    }
    for name in ["has", "mustHas"] {
        functions.add(name, |budget: &Budget, wanted: Value, list: Value| {
            if list.is_nil() {
                return Ok(false);
            }
            contains(budget, &items(budget, &list, "Cannot find has on type")?, &wanted)
        });
    }
    for name in ["slice", "mustSlice"] {
        functions.add(name, slice);
    }
    for name in ["chunk", "mustChunk"] {
        functions.add(name, chunk);
    }
    functions.add("concat", concat);
}

const NIL_POINTER: &str = "runtime error: invalid memory address or nil pointer dereference";

/// The items of a list; `complaint` is what the function says of anything else.
fn items(budget: &Budget, value: &Value, complaint: &str) -> Result<Vec<Value>, CallError> {
    let items = match &*value.underlying() {
        Value::Nil => return Err(NIL_POINTER.into()),
        Value::List(list) => list.items().to_vec(),
        Value::Bytes(bytes) => {
            bytes.as_bytes().iter().map(|byte| Value::Uint((*byte).into(), UintKind::Uint8)).collect()
        }
        other => return Err(format!("{complaint} {}", other.kind().name()).into()),
    };
    charge(budget, items.len())?;
    Ok(items)
}

/// Accounts for a list of this length.
fn charge(budget: &Budget, length: usize) -> Result<(), CallError> {
    budget.charge_steps(u64::try_from(length).unwrap_or(u64::MAX))?;
    Ok(budget.charge_bytes(length.saturating_mul(size_of::<Value>()))?)
}

/// Parity: of an empty list these functions give a nil one.
fn nil_if_empty(items: &[Value], make: impl FnOnce() -> Vec<Value>) -> List {
    if items.is_empty() { List::nil(Elem::Any) } else { List::new(make()) }
}

fn contains(budget: &Budget, items: &[Value], wanted: &Value) -> Result<bool, CallError> {
    for item in items {
        if deep_equal(budget, wanted, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unique(budget: &Budget, list: Value) -> Result<Vec<Value>, CallError> {
    let mut kept = Vec::new();
    for item in items(budget, &list, "Cannot find uniq on type")? {
        if !contains(budget, &kept, &item)? {
            kept.push(item);
        }
    }
    Ok(kept)
}

fn without(budget: &Budget, list: Value, omitted: Variadic<Value>) -> Result<Vec<Value>, CallError> {
    let mut kept = Vec::new();
    for item in items(budget, &list, "Cannot find without on type")? {
        if !contains(budget, &omitted.0, &item)? {
            kept.push(item);
        }
    }
    Ok(kept)
}

fn slice(list: Value, bounds: Variadic<Value>) -> Result<Value, CallError> {
    let list = list.underlying().into_owned();
    let length = match &list {
        Value::Nil => return Err(NIL_POINTER.into()),
        Value::List(list) => list.len(),
        Value::Bytes(bytes) => bytes.len(),
        other => {
            return Err(format!("list should be type of slice or array but {}", other.kind().name()).into());
        }
    };
    if length == 0 {
        return Ok(Value::Nil);
    }
    let bound = |at: usize| bounds.0.get(at).map(super::cast::to_int);
    let (start, end) = (bound(0).unwrap_or(0), bound(1).unwrap_or(i64::try_from(length).unwrap_or(i64::MAX)));
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let range = range.filter(|(start, end)| start <= end && *end <= length);
    let Some((start, end)) = range else {
        return Err("reflect.Value.Slice: slice index out of bounds".into());
    };
    Ok(match list {
        Value::List(list) => Value::List(List::typed(list.elem(), list.items()[start..end].to_vec())),
        Value::Bytes(bytes) => Value::Bytes(Str::from(&bytes.as_bytes()[start..end])),
        other => other,
    })
}

fn chunk(budget: &Budget, size: i64, list: Value) -> Result<List, CallError> {
    let items = items(budget, &list, "Cannot chunk type")?;
    let Some(size) = usize::try_from(size).ok().filter(|size| *size > 0) else {
        return Err("runtime error: makeslice: len out of range".into());
    };
    let chunks = items.chunks(size).map(|chunk| Value::list(chunk.to_vec())).collect();
    Ok(List::typed(Elem::List, chunks))
}

fn concat(budget: &Budget, lists: Variadic<Value>) -> Result<List, CallError> {
    let mut all = Vec::new();
    for list in &lists.0 {
        match &*list.underlying() {
            Value::List(_) | Value::Bytes(_) => all.extend(items(budget, list, "")?),
            Value::Nil => return Err(NIL_POINTER.into()),
            other => return Err(format!("Cannot concat type {} as list", other.kind().name()).into()),
        }
    }
    // Parity: nothing was ever appended to Go's nil slice.
    Ok(if all.is_empty() { List::nil(Elem::Any) } else { List::new(all) })
}
