//! What changed between two moments, for `canopus diff`.

use std::time::{Duration, SystemTime};

use axum::http::StatusCode;
use canopus_base::duration::Duration as GoDuration;
use canopus_engine::{Batch, QueryError};
use canopus_mesh::world::Objects;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::pushes::name_of;
use super::{Answer, Debug, Question};
use crate::impact::Worlds;
use crate::object_history::{At, Moment, ObjectDifference, Value as Kept};

/// Objects that are shown with both values; of more, only the names are.
const MAX_SHOWN: usize = 500;

impl Debug {
    /// The objects that changed between `from` and `to` (now, if not given) with both values; with `proxies`, also what that
    /// changed at the proxies that are connected. A moment is a time (RFC 3339), a span before now (`5m`), or a revision.
    pub(super) fn changes(&self, question: &Question) -> Result<Answer, QueryError> {
        let moment = |key: &str| question.parameters.get(key).filter(|text| !text.is_empty());
        let Some(from) = moment("from") else {
            let text = "from is missing: a time such as 2026-01-31T12:00:00Z, a span before now such as 5m, or a revision\n";
            return Ok(Answer::text(StatusCode::BAD_REQUEST, text));
        };
        let (from, to) = match (read(from), read(moment("to").unwrap_or("now"))) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(problem), _) | (_, Err(problem)) => {
                return Ok(Answer::text(StatusCode::BAD_REQUEST, problem + "\n"));
            }
        };
        let found = self.history.between(from, to);
        let objects: Vec<Value> =
            found.iter().enumerate().map(|(index, one)| object_json(one, index < MAX_SHOWN)).collect();
        let begins = self.history.begins();
        let is_whole = begins.is_none_or(|begins| !precedes(from, begins));
        let mut answer = json!({
            "from": at_json(from),
            "to": at_json(to),
            "isWhole": is_whole,
            "historyBegins": begins.map(moment_json),
            "objects": objects,
        });
        if question.parameters.has("proxies") {
            let worlds = Worlds::between(
                &self.dispatcher,
                batch(&found, |one| &one.before),
                batch(&found, |one| &one.after),
            );
            answer["impact"] = serde_json::to_value(worlds.impact(&self.clients())?).unwrap_or_default();
        }
        Ok(Answer::json(question, &answer))
    }
}

/// Reads a moment.
fn read(text: &str) -> Result<At, String> {
    if let Ok(revision) = text.parse() {
        return Ok(At::Revision(revision));
    }
    if text == "now" {
        return Ok(At::Time(SystemTime::now()));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(At::Time(time.into()));
    }
    let span = text.parse::<GoDuration>().ok().and_then(GoDuration::to_std);
    let time = span.and_then(|span: Duration| SystemTime::now().checked_sub(span));
    time.map(At::Time).ok_or_else(|| {
        format!(
            "{text:?} is no moment: expected a time such as 2026-01-31T12:00:00Z, a span before now such as 5m, or a revision"
        )
    })
}

/// Whether a moment is before the history begins.
fn precedes(at: At, begins: Moment) -> bool {
    match at {
        At::Revision(revision) => revision < begins.revision,
        At::Time(time) => time < begins.time,
    }
}

/// The objects at one of the moments.
fn batch(found: &[ObjectDifference], value: impl Fn(&ObjectDifference) -> &Kept) -> Batch {
    let mut batch = Batch::new();
    for one in found {
        match value(one) {
            Kept::Known(object) => {
                batch.set_shared::<Objects>(one.origin.clone(), std::sync::Arc::clone(object));
            }
            Kept::Absent => {
                batch.remove::<Objects>(&one.origin);
            }
            Kept::NotKept => {}
        }
    }
    batch
}

fn object_json(one: &ObjectDifference, with_values: bool) -> Value {
    let value = |kept: &Kept| match kept {
        Kept::Known(object) if with_values => object.to_node().to_json(),
        _ => Value::Null,
    };
    let change = match (&one.before, &one.after) {
        (Kept::Absent, Kept::Absent) => "created and deleted",
        (Kept::Absent, _) => "created",
        (_, Kept::Absent) => "deleted",
        (Kept::Known(before), Kept::Known(after)) if before == after => "changed and changed back",
        _ => "changed",
    };
    json!({
        "object": name_of(&one.origin),
        "cluster": &*one.origin.cluster,
        "change": change,
        "times": one.times,
        "last": moment_json(one.last),
        "hasValues": !matches!((&one.before, &one.after), (Kept::NotKept, _) | (_, Kept::NotKept)),
        "before": value(&one.before),
        "after": value(&one.after),
    })
}

fn moment_json(moment: Moment) -> Value {
    json!({"revision": moment.revision, "time": time_json(moment.time)})
}

fn at_json(at: At) -> Value {
    match at {
        At::Revision(revision) => json!({"revision": revision}),
        At::Time(time) => json!({"time": time_json(time)}),
    }
}

fn time_json(time: SystemTime) -> Value {
    Timestamp::try_from(time).map_or(Value::Null, |time| Value::from(time.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_spans_and_revisions() {
        assert_eq!(read("7").unwrap(), At::Revision(7));
        let At::Time(time) = read("2026-01-31T12:00:00Z").unwrap() else { panic!("it is a time") };
        assert_eq!(Timestamp::try_from(time).unwrap().to_string(), "2026-01-31T12:00:00Z");
        assert!(matches!(read("5m").unwrap(), At::Time(_)));
        for wrong in ["yesterday", "-5m", "2026-01-31"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
