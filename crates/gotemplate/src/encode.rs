//! Values as text: what Go, JSON and YAML make of them. Above [`crate::value`], because the encoders are functions of templates too.

use crate::error::CallError;
use crate::limits::{Budget, LimitError};
use crate::value::{Str, Value};
use crate::{gofmt, helm, sprig};

impl Value {
    /// The text that `fmt.Sprint` gives.
    pub fn print(&self, budget: &Budget) -> Result<Str, LimitError> {
        Ok(gofmt::text(budget, self)?.into())
    }

    /// The JSON that Go's `encoding/json` gives.
    pub fn to_json(&self, budget: &Budget) -> Result<Vec<u8>, CallError> {
        sprig::json::encode(budget, self, true)
    }

    /// The YAML that Kubernetes' Go library gives, without the line break at the end.
    pub fn to_yaml(&self, budget: &Budget) -> Result<Vec<u8>, CallError> {
        helm::yaml::encode(budget, self)
    }

    /// A copy that shares no map with this value.
    pub fn deep_copy(&self, budget: &Budget) -> Result<Self, CallError> {
        sprig::deep_copy(budget, self, 0)
    }
}
