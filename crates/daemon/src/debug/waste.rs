//! How much of the work of generators was for nothing.

use canopus_engine::QueryError;
use canopus_envoy::pool::{self, Counts};
use serde_json::{Value, json};

use super::{Answer, Debug, Question};

impl Debug {
    /// What was generated since the start, family by family: `waste` is 1 where everything was new to everybody.
    pub(super) fn wastez(&self, question: &Question) -> Result<Answer, QueryError> {
        let families: Vec<Value> = pool::counts().into_iter().map(family).collect();
        Ok(Answer::json(question, &json!({ "families": families, "queries": self.engine().evaluations() })))
    }
}

fn family(Counts { family, generated, distinct, held }: Counts) -> Value {
    let waste = if distinct == 0 { 1.0 } else { generated as f64 / distinct as f64 };
    json!({ "family": family, "runs": generated, "distinct": distinct, "held": held, "waste": waste })
}
