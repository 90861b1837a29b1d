//! Answers for programs.

use canopus_base::tree::Node;
use canopus_base::yaml;
use clap::ValueEnum;
use serde_json::Value;

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
    Yaml,
}

impl Output {
    /// The answer as chosen; `text` makes the form for people.
    pub(crate) fn render(self, answer: &Value, text: impl FnOnce(&Value) -> String) -> String {
        match self {
            Self::Text => text(answer),
            Self::Json => format!("{answer:#}\n"),
            Self::Yaml => yaml::node_to_string(&Node::from(answer.clone())),
        }
    }
}
