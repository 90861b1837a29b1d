//! Which replica holds which lock.

use canopus_engine::QueryError;
use serde_json::json;

use super::{Answer, Debug, Question};

impl Debug {
    /// The locks this process takes part in, with their holders.
    pub(super) fn leaders(&self, question: &Question) -> Result<Answer, QueryError> {
        Ok(Answer::json(question, &json!({"locks": self.leaders.all()})))
    }
}
