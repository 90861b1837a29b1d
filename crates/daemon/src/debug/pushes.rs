//! What was pushed, why, to whom, and what became of it.

use axum::http::StatusCode;
use canopus_api::ObjectKey;
use canopus_engine::QueryError;
use canopus_envoy::patch_report::{Outcome, Report};
use canopus_mesh::world::{Objects, Origin};
use serde_json::{Map, Value, json};

use super::clients::stamp;
use super::what_if::key_of;
use super::{Answer, Debug, Question};
use crate::push::{ConnectionId, Fate, ObjectState, Push, Recipient};

/// Pushes that are shown if the question does not say how many.
const SHOWN: usize = 50;

impl Debug {
    /// The latest pushes, the newest first; `limit` says how many, `object` (`Kind/namespace/name`) of which object.
    pub(super) fn ledger(&self, question: &Question) -> Result<Answer, QueryError> {
        let limit = question.parameters.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(SHOWN);
        let object = question.parameters.get("object");
        let of_object = |push: &Push| {
            object.is_none_or(|object| push.cause.objects.iter().any(|origin| name_of(origin) == object))
        };
        let pushes = self.ledger.pushes();
        let shown = pushes.iter().filter(|push| of_object(push)).take(limit);
        let shown: Vec<Value> = shown.map(|push| self.push_json(push)).collect();
        let revision = self.engine().revision().number();
        Ok(Answer::json(question, &json!({"revision": revision, "pushes": shown})))
    }

    /// The objects whose last change some client does not have yet, with those clients; with `object`
    /// (`Kind/namespace/name`) only that one, and what is known of it.
    pub(super) fn convergence(&self, question: &Question) -> Result<Answer, QueryError> {
        if let Some(name) = question.parameters.get("object").filter(|name| !name.is_empty()) {
            return Ok(match key_of(name) {
                Ok(key) => Answer::json(question, &self.convergence_of(&key)),
                Err(problem) => Answer::text(StatusCode::BAD_REQUEST, problem + "\n"),
            });
        }
        let open: Vec<Value> = self.ledger.unconverged().iter().map(|state| self.state_json(state)).collect();
        let clients: Vec<Value> = self
            .clients()
            .iter()
            .map(|client| {
                let types = client.types().into_iter();
                let versions: Map<String, Value> = types
                    .filter_map(|(type_url, status)| {
                        Some((type_url.to_string(), status.version?.to_string().into()))
                    })
                    .collect();
                json!({
                    "connection": client.name(),
                    "settled": client.settled(),
                    "outstanding": client.outstanding(),
                    "versions": versions,
                })
            })
            .collect();
        let held = self.quarantine.holds();
        let all = json!({
            "revision": self.engine().revision().number(),
            "converged": open.is_empty() && held.is_empty(),
            "objects": open,
            "quarantined": held.iter().map(|(origin, _)| name_of(origin)).collect::<Vec<_>>(),
            "clients": clients,
        });
        Ok(Answer::json(question, &all))
    }

    /// How far the last change of an object has come, in each cluster that has it.
    fn convergence_of(&self, key: &ObjectKey) -> Value {
        let origins = self.origins(key);
        let known: Vec<Value> = origins
            .iter()
            .filter_map(|origin| {
                let object = self.engine().read::<Objects>(origin)?;
                let version = object.meta().resource_version.to_string();
                Some(json!({"cluster": &*origin.cluster, "resourceVersion": version}))
            })
            .collect();
        // The engine knows of a change a moment before the ledger does, and must not be taken for having told everybody.
        self.dispatcher.settle();
        let states: Vec<ObjectState> =
            self.ledger.unconverged().into_iter().filter(|state| state.object.key == *key).collect();
        let states: Vec<Value> = states.iter().map(|state| self.state_json(state)).collect();
        json!({
            "revision": self.engine().revision().number(),
            "known": known,
            "objects": states,
            "connected": self.dispatcher.connections().len(),
        })
    }

    /// What became of each patch of the EnvoyFilters of a proxy, or of all proxies. One that applied to nothing is probably
    /// a mistake.
    pub(super) fn envoyfilterz(&self, question: &Question) -> Result<Answer, QueryError> {
        let clients = match self.optional_client(question) {
            Ok(Some(client)) => vec![client],
            Ok(None) => self.clients(),
            Err(answer) => return Ok(answer),
        };
        let mut all = Map::new();
        for client in clients {
            let report = self.engine().get::<Report>(&client.proxy)?;
            let patches = report.iter().map(|one| {
                let reason = match &one.outcome {
                    Outcome::Unreadable(reason) => Some(reason),
                    _ => None,
                };
                json!({
                    "namespace": one.patch.filter.namespace(),
                    "name": one.patch.filter.name(),
                    "patch": one.patch.index,
                    "applyTo": one.apply_to,
                    "operation": one.operation,
                    "outcome": one.outcome.name(),
                    "reason": reason,
                    "remedy": one.outcome.remedy(),
                    "matched": one.count.applied,
                    "unmatched": one.count.passed_over,
                    "refused": one.count.refused,
                })
            });
            all.insert(client.proxy.id.id.clone(), patches.collect());
        }
        Ok(Answer::json(question, &Value::Object(all)))
    }

    fn push_json(&self, push: &Push) -> Value {
        let types: Map<String, Value> = push
            .types
            .iter()
            .map(|(type_url, total)| {
                let total = json!({
                    "messages": total.messages,
                    "resources": total.resources,
                    "removed": total.removed,
                    "bytes": total.bytes,
                });
                (type_url.to_string(), total)
            })
            .collect();
        let reasons: Map<String, Value> = push
            .cause
            .reasons
            .iter()
            .map(|(reason, times)| (reason.label().to_owned(), Value::from(*times)))
            .collect();
        let recipients: Vec<Value> =
            push.recipients.iter().map(|(id, recipient)| self.recipient_json(*id, recipient)).collect();
        json!({
            "revision": push.revision,
            "reasons": reasons,
            "objects": push.cause.objects.iter().map(name_of).collect::<Vec<_>>(),
            "seen": stamp(push.cause.seen),
            "applied": stamp(push.applied),
            "engineSeconds": push.took.as_secs_f64(),
            "changedResults": push.roots,
            "types": types,
            "woken": push.woken,
            "pending": push.pending,
            "rejected": push.rejected,
            "firstSent": push.first_sent.map(stamp),
            "converged": push.converged.map(stamp),
            "changeToAckSeconds": push.change_to_ack().map(|took| took.as_secs_f64()),
            "recipients": recipients,
        })
    }

    fn recipient_json(&self, id: ConnectionId, recipient: &Recipient) -> Value {
        let (fate, time) = match recipient.fate {
            Fate::Pending => ("pending", None),
            Fate::Settled(time) => ("settled", Some(time)),
            Fate::Rejected(time) => ("rejected", Some(time)),
            Fate::Gone(time) => ("gone", Some(time)),
        };
        json!({
            "connection": self.connection_name(id),
            "messages": recipient.messages,
            "bytes": recipient.bytes,
            "sent": recipient.sent.map(stamp),
            "fate": fate,
            "decided": time.map(stamp),
        })
    }

    fn state_json(&self, state: &ObjectState) -> Value {
        let names =
            |ids: &[ConnectionId]| -> Value { ids.iter().map(|id| self.connection_name(*id)).collect() };
        json!({
            "object": name_of(&state.object),
            "cluster": &*state.object.cluster,
            "revision": state.revision,
            "pending": names(&state.pending),
            "rejected": names(&state.rejected),
        })
    }

    /// The name of a client, or its number if it has left.
    fn connection_name(&self, id: ConnectionId) -> String {
        let client = self.dispatcher.connections().get(id);
        client.map_or_else(|| id.to_string(), |client| client.name())
    }
}

/// An object as people name it: kind, namespace, name.
pub(super) fn name_of(origin: &Origin) -> String {
    let kind = origin.key.kind.info().kind;
    match origin.namespace() {
        "" => format!("{kind}/{}", origin.name()),
        namespace => format!("{kind}/{namespace}/{}", origin.name()),
    }
}
