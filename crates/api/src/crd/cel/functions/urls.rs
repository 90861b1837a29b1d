//! URLs.

use std::sync::Arc;

use super::{Builtin, Cost, global, method, no_overload};
use crate::crd::cel::error::{EvalError, Result};
use crate::crd::cel::meter::Meter;
use crate::crd::cel::url::Url;
use crate::crd::cel::value::Value;

pub(super) const BUILTINS: &[Builtin] = &[
    global("url", 1..=1, Cost::Read, url),
    global("isURL", 1..=1, Cost::Read, is_url),
    method("getScheme", 1..=1, Cost::One, |_, args| part(&args[0], |url| url.scheme.clone())),
    method("getHost", 1..=1, Cost::One, |_, args| part(&args[0], Url::host)),
    method("getHostname", 1..=1, Cost::One, |_, args| part(&args[0], |url| url.host_name.clone())),
    method("getPort", 1..=1, Cost::One, |_, args| part(&args[0], |url| url.port.clone())),
    method("getEscapedPath", 1..=1, Cost::One, |_, args| part(&args[0], Url::escaped_path)),
    method("getQuery", 1..=1, Cost::One, query),
];

fn url<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let Value::String(text) = &args[0] else { return no_overload() };
    match Url::parse(text) {
        Ok(url) => Ok(Value::Url(Arc::new(url))),
        Err(error) => Err(EvalError::new(format!("URL parse error during conversion from string: {error}"))),
    }
}

fn is_url<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let Value::String(text) = &args[0] else { return no_overload() };
    Ok(Url::parse(text).is_ok().into())
}

fn part<'a>(value: &Value<'_>, part: fn(&Url) -> String) -> Result<Value<'a>> {
    match value {
        Value::Url(url) => Ok(part(url).into()),
        _ => no_overload(),
    }
}

fn query<'a>(_: &mut Meter, args: Vec<Value<'a>>) -> Result<Value<'a>> {
    let Value::Url(url) = &args[0] else { return no_overload() };
    let texts = |values: Vec<String>| Value::from(values.into_iter().map(Value::from).collect::<Vec<_>>());
    let entries = url.query_parameters().into_iter().map(|(key, values)| (Value::from(key), texts(values)));
    Ok(entries.collect::<Vec<_>>().into())
}
