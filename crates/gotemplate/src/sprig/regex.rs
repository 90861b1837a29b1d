//! Regular expressions with RE2's meaning.

mod translate;

use regex::bytes::{NoExpand, Regex, RegexBuilder};

use crate::error::CallError;
use crate::limits::Budget;
use crate::value::{Elem, Functions, List, Str, Value};

/// Bytes that a compiled expression may take.
const MAX_PROGRAM: usize = 4 << 20;

pub(super) fn add_to(functions: &mut Functions) {
    functions.add("regexMatch", |pattern: String, text: Str| {
        compile(&pattern).is_ok_and(|regex| regex.is_match(text.as_bytes()))
    });
    functions.add("mustRegexMatch", |pattern: String, text: Str| {
        compile(&pattern).map(|regex| regex.is_match(text.as_bytes()))
    });
    for name in ["regexFind", "mustRegexFind"] {
        functions.add(name, move |pattern: String, text: Str| {
            let regex = panicking(&pattern, name)?;
            let found =
                regex.find(text.as_bytes()).map_or_else(|| Str::from(""), |found| found.as_bytes().into());
            Ok::<_, CallError>(found)
        });
    }
    for name in ["regexFindAll", "mustRegexFindAll"] {
        functions.add(name, move |pattern: String, text: Str, count: i64| {
            let regex = panicking(&pattern, name)?;
            let limit = usize::try_from(count).unwrap_or(usize::MAX);
            let found = regex.find_iter(text.as_bytes()).take(limit).map(|found| Str::from(found.as_bytes()));
            Ok::<_, CallError>(nil_if_empty(found.collect()))
        });
    }
    for name in ["regexReplaceAll", "mustRegexReplaceAll"] {
        functions.add(name, move |budget: &Budget, pattern: String, text: Str, replacement: Str| {
            let regex = panicking(&pattern, name)?;
            charge(budget, &regex, &text, &replacement)?;
            Ok::<_, CallError>(regex.replace_all(text.as_bytes(), replacement.as_bytes()).into_owned())
        });
    }
    for name in ["regexReplaceAllLiteral", "mustRegexReplaceAllLiteral"] {
        functions.add(name, move |budget: &Budget, pattern: String, text: Str, replacement: Str| {
            let regex = panicking(&pattern, name)?;
            charge(budget, &regex, &text, &replacement)?;
            Ok::<_, CallError>(
                regex.replace_all(text.as_bytes(), NoExpand(replacement.as_bytes())).into_owned(),
            )
        });
    }
    for name in ["regexSplit", "mustRegexSplit"] {
        functions.add(name, move |pattern: String, text: Str, count: i64| {
            let regex = panicking(&pattern, name)?;
            Ok::<_, CallError>(split(&regex, pattern.is_empty(), &text, count))
        });
    }
    functions.add("regexQuoteMeta", |text: Str| {
        let special = |byte: &u8| br"\.+*?()|[]{}^$".contains(byte);
        let escaped = text.as_bytes().iter().flat_map(|byte| {
            let escape = if special(byte) { Some(b'\\') } else { None };
            escape.into_iter().chain([*byte])
        });
        escaped.collect::<Vec<u8>>()
    });
}

fn compile(pattern: &str) -> Result<Regex, CallError> {
    canopus_base::regex::check(pattern).map_err(|error| CallError::from(error.to_string()))?;
    RegexBuilder::new(&translate::translate(pattern))
        .size_limit(MAX_PROGRAM)
        .build()
        .map_err(|error| format!("error parsing regexp: {error}: `{pattern}`").into())
}

/// Compiles for a function; those that do not start with `must` panic in Go, with a word more.
fn panicking(pattern: &str, name: &str) -> Result<Regex, CallError> {
    compile(pattern).map_err(|error| {
        if name.starts_with("must") {
            return error;
        }
        let shown = if pattern.contains('`') { format!("{pattern:?}") } else { format!("`{pattern}`") };
        format!("regexp: Compile({shown}): {error}").into()
    })
}

/// Accounts for what a replacement may add. An expansion is at most the text for each of its groups.
fn charge(budget: &Budget, regex: &Regex, text: &Str, replacement: &Str) -> Result<(), CallError> {
    let dollars = replacement.as_bytes().iter().filter(|byte| **byte == b'$').count();
    let mut added = 0usize;
    for found in regex.find_iter(text.as_bytes()) {
        added = added.saturating_add(replacement.len() + found.len().saturating_mul(dollars));
        budget.charge_steps(1)?;
    }
    Ok(budget.charge_bytes(text.len().saturating_add(added))?)
}

fn nil_if_empty(found: Vec<Str>) -> Value {
    if found.is_empty() { Value::List(List::nil(Elem::String)) } else { found.into() }
}

fn split(regex: &Regex, matches_nothing: bool, text: &Str, count: i64) -> Value {
    if count == 0 {
        return nil_if_empty(Vec::new());
    }
    let bytes = text.as_bytes();
    if !matches_nothing && bytes.is_empty() {
        return vec![Str::from("")].into();
    }
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let (mut start, mut end) = (0, 0);
    for found in regex.find_iter(bytes).take(limit) {
        if parts.len() + 1 == limit {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(Str::from(&bytes[start..end]));
        }
        start = found.end();
    }
    if end != bytes.len() {
        parts.push(Str::from(&bytes[start..]));
    }
    nil_if_empty(parts)
}
