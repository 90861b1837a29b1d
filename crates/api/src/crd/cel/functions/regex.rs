//! Regular expressions.

use std::borrow::Cow;

use ::regex::Regex;

use super::{Builtin, Cost, global, method, no_overload};
use crate::crd::cel::error::{EvalError, Result};
use crate::crd::cel::meter::Meter;
use crate::crd::cel::value::Value;
use crate::crd::pattern;

/// The functions whose second argument is a regular expression.
pub(super) const NAMES: [&str; 3] = ["matches", "find", "findAll"];

pub(super) const BUILTINS: &[Builtin] = &[
    global("matches", 2..=2, Cost::Regex, matches),
    method("matches", 2..=2, Cost::Regex, matches),
    method("find", 2..=2, Cost::Regex, find),
    method("findAll", 2..=3, Cost::Regex, find_all),
];

/// The text and the expression to run over it.
fn prepared<'v>(args: &'v [Value<'_>]) -> Result<(&'v str, Cow<'v, Regex>)> {
    match (&args[0], &args[1]) {
        (Value::String(text), Value::Pattern(pattern)) => {
            Ok((text, Cow::Borrowed(pattern.regex().map_err(EvalError::new)?)))
        }
        (Value::String(text), Value::String(source)) => {
            Ok((text, Cow::Owned(pattern::compile(source).map_err(EvalError::new)?)))
        }
        _ => no_overload(),
    }
}

fn matches<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let (text, regex) = prepared(&args)?;
    Ok(regex.is_match(text).into())
}

fn find<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let (text, regex) = prepared(&args)?;
    Ok(regex.find(text).map_or_else(String::new, |found| found.as_str().to_owned()).into())
}

fn find_all<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let (text, regex) = prepared(&args)?;
    let limit = match args.get(2) {
        None => usize::MAX,
        Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
        Some(_) => return no_overload(),
    };
    let found = regex.find_iter(text).take(limit).map(|found| Value::from(found.as_str().to_owned()));
    Ok(found.collect::<Vec<_>>().into())
}
