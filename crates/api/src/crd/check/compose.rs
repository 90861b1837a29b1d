//! `allOf`, `anyOf`, `oneOf` and `not`.

use super::{Outcome, Subject, value};
use crate::crd::schema::Schema;
use crate::text::quoted;

pub(super) fn check(schema: &Schema, subject: Subject<'_>, outcome: &mut Outcome) {
    let attempt = |alternative: &Schema| value(alternative, subject.node, subject.path);
    let place = || quoted(&subject.path.to_string());

    if !schema.any_of.is_empty() {
        match any(schema.any_of.iter().map(attempt)) {
            Ok(passed) => outcome.merge(passed),
            Err(best) => {
                outcome.add(subject.plain(format!("{} must validate at least one schema (anyOf)", place())));
                outcome.merge(best);
            }
        }
    }
    if !schema.one_of.is_empty() {
        match one(schema.one_of.iter().map(attempt)) {
            Ok(passed) => outcome.merge(passed),
            Err((found, best)) => {
                let words = "must validate one and only one schema (oneOf)";
                outcome.add(subject.plain(format!("{} {words}. {found}", place())));
                outcome.merge(best);
            }
        }
    }
    if !schema.all_of.is_empty() {
        let results: Vec<_> = schema.all_of.iter().map(attempt).collect();
        let valid = results.iter().filter(|result| result.is_valid()).count();
        let all = results.len();
        results.into_iter().for_each(|result| outcome.merge(result));
        if valid < all {
            let none = if valid == 0 { ". None validated" } else { "" };
            outcome.add(subject.plain(format!("{} must validate all the schemas (allOf){none}", place())));
        }
    }
    if schema.not.as_deref().is_some_and(|not| attempt(not).is_valid()) {
        outcome.add(subject.plain(format!("{} must not validate the schema (not)", place())));
    }
    outcome.passed += 1;
}

/// The first that passes, else the one that fails least.
fn any(attempts: impl Iterator<Item = Outcome>) -> Result<Outcome, Outcome> {
    let mut best: Option<Outcome> = None;
    for attempt in attempts {
        if attempt.is_valid() {
            return Ok(attempt);
        }
        best = better(best, attempt);
    }
    Err(best.unwrap_or_default())
}

/// The only one that passes, else how many do; if none, also the one that fails least.
fn one(attempts: impl Iterator<Item = Outcome>) -> Result<Outcome, (String, Outcome)> {
    let mut passed = Vec::new();
    let mut best = None;
    for attempt in attempts {
        if attempt.is_valid() {
            passed.push(attempt);
        } else {
            best = better(best, attempt);
        }
    }
    match passed.len() {
        0 => Err(("Found none valid".to_owned(), best.unwrap_or_default())),
        1 => Ok(passed.remove(0)),
        several => Err((format!("Found {several} valid alternatives"), Outcome::default())),
    }
}

fn better(best: Option<Outcome>, attempt: Outcome) -> Option<Outcome> {
    match best {
        Some(best) if best.passed >= attempt.passed => Some(best),
        _ => Some(attempt),
    }
}
