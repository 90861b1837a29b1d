//! When certificates expire, and how far the rotation of the root is.

use canopus_engine::QueryError;
use canopus_identity::forecast::Entry;
use canopus_mesh::diagnostic::Diagnostic;
use rustls::pki_types::UnixTime;
use serde_json::{Value, json};

use super::{Answer, Debug, Question};
use crate::day::day;

impl Debug {
    /// Every certificate the mesh relies on, the first to expire first; `role` shows those of one role alone.
    pub(super) fn certificates(&self, question: &Question) -> Result<Answer, QueryError> {
        let Some(forecast) = &self.forecast else {
            return Ok(Answer::json(question, &json!({"certificates": []})));
        };
        let now = UnixTime::now();
        let wanted = question.parameters.get("role").filter(|role| !role.is_empty());
        let entries = forecast.entries(now);
        let shown = entries.iter().filter(|entry| wanted.is_none_or(|role| role == entry.role.label()));
        let all = json!({
            "now": now.as_secs(),
            "rotation": forecast.rotation(),
            "certificates": shown.map(entry_json).collect::<Vec<Value>>(),
        });
        Ok(Answer::json(question, &all))
    }

    /// Certificates that are about to expire.
    pub(super) fn expiring(&self) -> Vec<Diagnostic> {
        self.forecast.as_ref().map(|forecast| forecast.diagnostics(UnixTime::now())).unwrap_or_default()
    }
}

fn entry_json(entry: &Entry) -> Value {
    json!({
        "role": entry.role,
        "holder": entry.holder,
        "expires": entry.expires,
        "expiresOn": day(entry.expires),
        "verdict": entry.verdict,
        "then": entry.role.consequence(),
    })
}
