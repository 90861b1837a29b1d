//! What endpoints there are.

use std::fmt::Write as _;

use canopus_engine::QueryError;
use serde_json::Value;

use super::{Answer, Debug, Question};

/// What the page looks like.
const STYLE: &str = "body{font:14px sans-serif;margin:2em}td{padding:.3em 1.5em .3em 0;vertical-align:top}";

impl Debug {
    /// A page with a link to every endpoint.
    pub fn index(&self) -> Answer {
        let mut rows = String::new();
        let mut row = |path: &str, help: &str| {
            let _ = writeln!(
                rows,
                "<tr><td><a href=\"/debug/{path}\">/debug/{path}</a></td><td>{help}</td></tr>"
            );
        };
        for endpoint in self.endpoints() {
            row(endpoint.name, endpoint.help);
            for (parameters, help) in endpoint.variants {
                row(&format!("{}?{parameters}", endpoint.name), help);
            }
        }
        Answer::page(format!(
            "<!doctype html>\n<html><head><title>Canopus: debug</title><style>{STYLE}</style></head><body>\n\
             <p>Add <code>?pretty</code> to any address for JSON in lines.</p>\n\
             <table>\n{rows}</table>\n</body></html>\n"
        ))
    }

    /// The names Istio has, which tools complete from; what is our own is in the index.
    pub(super) fn list(&self, question: &Question) -> Result<Answer, QueryError> {
        let mut names = Vec::new();
        for endpoint in self.endpoints().filter(|endpoint| endpoint.istio && endpoint.name != "list") {
            names.push(endpoint.name.to_owned());
            names.extend(endpoint.variants.iter().map(|(given, _)| format!("{}?{given}", endpoint.name)));
        }
        Ok(Answer::json(question, &Value::from(names)))
    }
}
