//! What a running webhook answered to recorded requests, and what became of webhook configurations.

mod inject;
mod server;
mod webhook_config;

use anyhow::{Context, bail};
use canopus_admission::validation::{self, Answer, Request};
use canopus_base::tree::{Map, Node, Value};

use super::{NO_ADAPTER, Suite};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;
use crate::record;

pub(super) struct LiveAdmission;

impl Suite for LiveAdmission {
    fn name(&self) -> &str {
        "live-admission"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        if case.file.starts_with("inject") {
            return inject::replay(case).into();
        }
        if case.file.starts_with("webhook-config") {
            return webhook_config::replay(case).into();
        }
        if !case.file.starts_with("validate") {
            return Outcome::Skipped(NO_ADAPTER);
        }
        replay(case).into()
    }
}

/// Asks a recorded request again.
fn replay(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let recorded = record::read(&case.corpus, &case.path(&case.file))?;
    let request = recorded.get("request").context("no request")?;
    let path = request.get("path").and_then(Node::as_str).context("no path")?;
    let response = recorded.get("response").context("no response")?;
    if !path.starts_with("/validate") {
        // The same server answers probes.
        return Ok(difference(response, &server::ask(path)?));
    }
    let body = request_body(request)?;
    let content_type = request.pointer("/headers/Content-Type").and_then(Node::as_str);
    let answer = validation::answer(&Request { path, content_type, body: body.as_bytes() });
    // The same request was answered in other ways too, where the order of errors came from a map of Go's.
    let others = response.get("alsoSeen").and_then(Node::as_list).unwrap_or_default();
    let seen = others.iter().any(|response| difference(response, &answer).is_empty());
    Ok(if seen { Vec::new() } else { difference(response, &answer) })
}

fn request_body(request: &Node) -> anyhow::Result<String> {
    match (request.get("bodyText").and_then(Node::as_str), request.get("body")) {
        (Some(text), _) => Ok(text.to_owned()),
        (None, Some(tree)) => Ok(tree.to_json().to_string()),
        (None, None) => bail!("the request has no body"),
    }
}

/// Where an answer differs from a recorded response.
fn difference(response: &Node, answer: &Answer) -> Vec<Difference> {
    let mut found = Vec::new();
    if response.get("connectionClosedWithoutResponse").and_then(Node::as_bool) == Some(true) {
        // The recorded server crashed on this: any refusal will do.
        if answer.status < 400 && !is_refusal(&answer.body) {
            found.push(Difference::new("/status", "an error", answer.status));
        }
        return found;
    }
    let status = response.get("status").and_then(Node::as_i64);
    if status != Some(answer.status.into()) {
        let expected = status.map_or_else(String::new, |status| status.to_string());
        found.push(Difference::new("/status", expected, answer.status));
    }
    found.extend(headers(response, answer));
    let got = String::from_utf8_lossy(&answer.body);
    if let Some(text) = response.get("bodyText").and_then(Node::as_str) {
        if text != got {
            found.push(Difference::new("/body", text, got));
        }
    } else if let Some(tree) = response.get("body") {
        found.extend(body(tree, &got));
    }
    found
}

fn is_refusal(body: &[u8]) -> bool {
    let body = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
    body["response"]["allowed"] == false
}

fn headers(response: &Node, answer: &Answer) -> Vec<Difference> {
    let got = answer.headers.iter().map(|(name, value)| (*name, Node::from(Value::from(*value))));
    let got = Node::from(Value::Map(got.collect::<Map>()));
    tree::difference(&response.get("headers").cloned().unwrap_or_default(), &got, &Rules::default())
}

fn body(expected: &Node, got: &str) -> Vec<Difference> {
    match serde_json::from_str::<serde_json::Value>(got) {
        Ok(got) => {
            let got = without_go_words(expected, got.into());
            tree::difference(expected, &got, &Rules::default())
        }
        Err(_) => vec![Difference::new("/body", expected.to_json(), got)],
    }
}

/// Where a message begins to name types or files that only Go has.
const GO_WORDS: [&str; 2] = ["json: cannot unmarshal ", " in scheme \"pkg/"];

/// What was answered, with the expected message in the place of its own if the two agree up to Go's own words.
fn without_go_words(expected: &Node, mut got: Node) -> Node {
    const MESSAGE: &str = "/response/status/message";
    let wanted = expected.pointer(MESSAGE).and_then(Node::as_str);
    let common = wanted.and_then(|wanted| {
        let end = GO_WORDS.iter().filter_map(|words| wanted.find(words)).min()?;
        Some(&wanted[..end])
    });
    let agrees =
        |message: &Node| common.is_some_and(|common| message.as_str().is_some_and(|m| m.starts_with(common)));
    let message = ["response", "status", "message"].iter().try_fold(&mut got, |node, key| node.get_mut(key));
    if let (Some(message), Some(wanted)) = (message.filter(|message| agrees(message)), wanted) {
        *message = Value::from(wanted).into();
    }
    got
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(message: &str) -> Answer {
        let body = json!({"response": {"uid": "", "allowed": false, "status": {"metadata": {}, "message": message}}});
        Answer {
            status: 200,
            headers: &[("content-type", "text/plain; charset=utf-8")],
            body: body.to_string().into_bytes(),
            outcome: validation::Outcome::default(),
        }
    }

    fn recorded(message: &str) -> Node {
        let body = json!({"response": {"uid": "", "allowed": false, "status": {"metadata": {}, "message": message}}});
        json!({"status": 200, "headers": {"content-type": "text/plain; charset=utf-8"}, "body": body}).into()
    }

    #[test]
    fn messages_are_compared_to_the_letter_but_for_the_words_of_go() {
        let differs = |expected: &str, got: &str| !difference(&recorded(expected), &answer(got)).is_empty();
        assert!(!differs("a: b", "a: b"));
        assert!(differs("a: b", "a: c"));
        assert!(!differs("a: json: cannot unmarshal string into Go value of type x.Y", "a: other words"));
        assert!(differs("a: json: cannot unmarshal string into Go value of type x.Y", "b: other words"));
    }

    #[test]
    fn status_headers_and_text_are_compared() {
        let response: Node = json!({"status": 404, "headers": {}, "bodyText": "no"}).into();
        assert_eq!(difference(&response, &answer("")).len(), 3);
    }

    #[test]
    fn any_refusal_will_do_where_the_recorded_server_crashed() {
        let response: Node = json!({"connectionClosedWithoutResponse": true}).into();
        assert!(difference(&response, &answer("")).is_empty());
        let allowed =
            Answer { body: json!({"response": {"allowed": true}}).to_string().into(), ..answer("") };
        assert_eq!(difference(&response, &allowed).len(), 1);
    }
}
