//! What happens now, for `canopus top`, and what changes of objects have cost.

use std::time::Duration;

use canopus_engine::QueryError;
use canopus_mesh::world::Origin;
use canopus_runtime::version::BuildInfo;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::clients::stamp;
use super::pushes::name_of;
use super::{Answer, Debug, Question};
use crate::push::{Connection, Cost, Push, Stamp};

/// Objects, proxies and pushes that are listed if the question does not say how many.
const LISTED: usize = 10;

/// The times that pushes are added up over.
const WINDOWS: [Duration; 3] = [Duration::from_secs(10), Duration::from_mins(1), Duration::from_mins(10)];

impl Debug {
    /// Pushes of the last seconds and minutes, how long they took to converge, proxies that are behind or reject something, and
    /// the costliest objects; `limit` says how many of each are listed.
    pub(super) fn activity(&self, question: &Question) -> Result<Answer, QueryError> {
        let limit = limit(question, LISTED);
        let (pushes, has_forgotten) = (self.ledger.pushes(), self.ledger.has_forgotten());
        let clients = self.clients();
        let types: Map<String, Value> = clients.iter().fold(Map::new(), |mut types, client| {
            let count = types.entry(client.proxy.id.kind.as_str().to_owned()).or_insert(json!(0));
            *count = json!(count.as_u64().unwrap_or_default() + 1);
            types
        });
        let mut behind: Vec<Value> = Vec::new();
        let (mut are_behind, mut reject) = (0, 0);
        for client in &clients {
            let state = lag(client, &pushes);
            are_behind += usize::from(state.behind);
            reject += usize::from(state.rejects.is_some());
            if (state.behind || state.rejects.is_some()) && behind.len() < limit {
                behind.push(json!({
                    "connection": client.name(),
                    "pushes": client.outstanding().len(),
                    "seconds": state.since.map(|since| since.as_secs_f64()),
                    "rejects": state.rejects,
                }));
            }
        }
        let windows: Vec<Value> =
            WINDOWS.iter().map(|window| window_json(*window, &pushes, has_forgotten)).collect();
        let costs = self.ledger.costs();
        let objects: Vec<Value> =
            costs.iter().take(limit).map(|(origin, cost)| cost_json(origin, cost)).collect();
        let latest: Vec<Value> = pushes.iter().take(limit).map(push_json).collect();
        let answer = json!({
            "time": Timestamp::now().to_string(),
            "version": BuildInfo::current().version,
            "revision": self.engine().revision().number(),
            "proxies": {
                "connected": clients.len(),
                "types": types,
                "behind": are_behind,
                "rejecting": reject,
            },
            "quarantined": self.quarantine.holds().len(),
            "windows": windows,
            "proxiesBehind": behind,
            "objects": objects,
            "pushes": latest,
        });
        Ok(Answer::json(question, &answer))
    }

    /// What changes of each object have cost since the process started, the costliest first; `limit` says how many.
    pub(super) fn costs(&self, question: &Question) -> Result<Answer, QueryError> {
        let costs = self.ledger.costs();
        let limit = limit(question, usize::MAX);
        let objects: Vec<Value> =
            costs.iter().take(limit).map(|(origin, cost)| cost_json(origin, cost)).collect();
        Ok(Answer::json(question, &json!({"objects": objects})))
    }
}

fn limit(question: &Question, usual: usize) -> usize {
    question.parameters.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usual)
}

/// How far a proxy is behind.
struct Lag {
    behind: bool,
    /// Since when the oldest push that it has not answered waits; `None` if that is not kept any more.
    since: Option<Duration>,
    rejects: Option<String>,
}

fn lag(client: &Connection, pushes: &[Push]) -> Lag {
    let oldest = client.outstanding().first().copied();
    let since = oldest.and_then(|oldest| pushes.iter().find(|push| push.revision == oldest));
    let rejects = client.types().into_values().find_map(|status| status.rejected);
    Lag {
        behind: oldest.is_some(),
        since: since.map(|push| push.applied.elapsed()),
        rejects: rejects.map(|rejection| rejection.message.to_string()),
    }
}

fn window_json(window: Duration, pushes: &[Push], has_forgotten: bool) -> Value {
    let is_whole = !has_forgotten || pushes.last().is_none_or(|oldest| oldest.applied.elapsed() > window);
    let recent: Vec<&Push> = pushes.iter().filter(|push| push.applied.elapsed() <= window).collect();
    let mut total = Cost::default();
    for push in &recent {
        let cost = push.cost();
        total.messages += cost.messages;
        total.bytes += cost.bytes;
        total.recipients += cost.recipients;
    }
    let mut took: Vec<Duration> = recent.iter().filter_map(|push| push.change_to_ack()).collect();
    took.sort_unstable();
    let quantile = |part: usize| {
        let at = (took.len() * part / 100).min(took.len().saturating_sub(1));
        took.get(at).map(Duration::as_secs_f64)
    };
    json!({
        "seconds": window.as_secs(),
        // Older pushes may have been forgotten; what is told is then of fewer seconds.
        "isWhole": is_whole,
        "pushes": recent.len(),
        "open": recent.iter().filter(|push| push.pending > 0).count(),
        "recipients": total.recipients,
        "messages": total.messages,
        "bytes": total.bytes,
        "changeToAckSeconds": {"p50": quantile(50), "p99": quantile(99), "max": took.last().map(Duration::as_secs_f64)},
    })
}

fn push_json(push: &Push) -> Value {
    let cost = push.cost();
    let objects: Vec<String> = push.cause.objects.iter().take(LISTED).map(name_of).collect();
    let reasons: Vec<&str> = push.cause.reasons.keys().map(|reason| reason.label()).collect();
    json!({
        "revision": push.revision,
        "applied": stamp(push.applied),
        "secondsAgo": Stamp::now().since(push.applied).as_secs_f64(),
        "objects": objects,
        "objectCount": push.cause.objects.len(),
        "reasons": reasons,
        "recipients": push.woken,
        "pending": push.pending,
        "rejected": push.rejected,
        "messages": cost.messages,
        "bytes": cost.bytes,
        "changeToAckSeconds": push.change_to_ack().map(|took| took.as_secs_f64()),
    })
}

fn cost_json(origin: &Origin, cost: &Cost) -> Value {
    json!({
        "object": name_of(origin),
        "cluster": &*origin.cluster,
        "pushes": cost.pushes,
        "recipients": cost.recipients,
        "messages": cost.messages,
        "bytes": cost.bytes,
    })
}
