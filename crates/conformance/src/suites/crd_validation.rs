//! Objects that a cluster's own definitions of Istio's kinds take or refuse, and the webhook with them.
//!
//! A document is judged by our definitions and by those Istio ships. Where the webhook has to be of the same opinion, it is
//! asked as the API server would ask it, but for documents of which it is known that it cannot be.

use std::sync::OnceLock;

use anyhow::{Context, ensure};
use canopus_admission::validation::{self, Request};
use canopus_api::crd::{Admission, Crd, ErrorKind, own};
use canopus_base::tree::Node;
use serde_json::json;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::corpus::Corpus;
use crate::dump::Dump;

const SHIPPED: &str = "crd-validation/crds/crd-all.gen.yaml";

#[derive(Default)]
pub(super) struct CrdValidation {
    definitions: OnceLock<Result<[Vec<Crd>; 2], String>>,
}

impl Suite for CrdValidation {
    fn name(&self) -> &str {
        "crd-validation"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        let definitions =
            self.definitions.get_or_init(|| definitions(&case.corpus).map_err(|error| format!("{error:#}")));
        match definitions {
            Ok(definitions) => judge(case, definitions).into(),
            Err(problem) => Outcome::error(problem),
        }
    }
}

/// Our definitions, and those of the corpus.
fn definitions(corpus: &Corpus) -> anyhow::Result<[Vec<Crd>; 2]> {
    let parse = |documents: Vec<Node>| {
        let documents = documents.iter().filter(|document| !document.is_null());
        documents.map(Crd::parse).collect::<Result<Vec<_>, _>>()
    };
    let ours = parse(own::definitions()).context("our own definitions")?;
    let shipped = parse(corpus.documents(SHIPPED.as_ref())?).context(SHIPPED)?;
    Ok([ours, shipped])
}

fn judge(case: &Case, definitions: &[Vec<Crd>; 2]) -> anyhow::Result<Vec<Difference>> {
    let document = document(case)?;
    let [ours, shipped] = definitions;
    let verdict = Verdict::reach(&document, ours)?;
    let mut found = compare(case, "/crd/own", &verdict)?;
    found.extend(compare(case, "/crd/shipped", &Verdict::reach(&document, shipped)?)?);
    if case.id.starts_with("webhook-parity/") {
        found.extend(disagreement(&verdict, &document));
    }
    Ok(found)
}

/// The document of a case, without what the corpus has written into it.
fn document(case: &Case) -> anyhow::Result<Node> {
    let file = case.text("file").context("no file")?;
    let index = case.entry.get("doc").and_then(Node::as_i64).context("no doc")?;
    let mut documents = case.corpus.documents(&case.path(file))?;
    let index = usize::try_from(index)?;
    ensure!(index < documents.len(), "{file} has {} documents", documents.len());
    let mut document = documents.swap_remove(index);
    document.as_map_mut().context("not an object")?.remove("_err");
    let kind = document.get("kind").and_then(Node::as_str);
    ensure!(kind == case.text("kind"), "document {index} of {file} is of another kind");
    Ok(document)
}

/// What a cluster makes of a document.
struct Verdict(Admission);

impl Verdict {
    fn reach(document: &Node, definitions: &[Crd]) -> anyhow::Result<Self> {
        let text = |key| document.get(key).and_then(Node::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let version = definitions.iter().find_map(|crd| crd.serving(api_version, kind));
        let version = version.with_context(|| format!("nobody defines {api_version} {kind}"))?;
        Ok(Self(version.review(document)))
    }

    fn is_valid(&self) -> bool {
        self.0.errors.is_empty() && self.0.unknown.is_empty()
    }

    /// Everything wrong, as one text.
    fn text(&self) -> String {
        let errors = self.0.errors.iter().map(ToString::to_string);
        let unknown = self.0.unknown.iter().map(|path| format!("unknown field {path:?}"));
        errors.chain(unknown).collect::<Vec<_>>().join(", ")
    }
}

fn compare(case: &Case, path: &str, verdict: &Verdict) -> anyhow::Result<Vec<Difference>> {
    let valid = case.entry.get("valid").and_then(Node::as_bool).context("no verdict")?;
    let words = case.text("errorContains").unwrap_or_default();
    let text = verdict.text();
    Ok(if verdict.is_valid() != valid {
        let shown = if text.is_empty() { "accepted" } else { &text };
        vec![Difference::new(path, if valid { "accepted" } else { words }, shown)]
    } else if !text.contains(words) {
        vec![Difference::new(path, words, text)]
    } else {
        Vec::new()
    })
}

/// Whether the webhook says something else than the cluster, and could have known.
fn disagreement(verdict: &Verdict, document: &Node) -> Option<Difference> {
    let refusal = refusal(document);
    let agrees = refusal.is_none() == verdict.is_valid();
    if agrees || only_the_cluster_can_tell(verdict, document) || only_the_webhook_can_tell(refusal.as_deref())
    {
        return None;
    }
    let shown = |text: Option<String>| text.unwrap_or_else(|| "accepted".to_owned());
    let cluster = (!verdict.is_valid()).then(|| verdict.text());
    Some(Difference::new("/webhook", shown(cluster), shown(refusal)))
}

/// Faults that are gone once an object has been read, or that no webhook of Istio's looks for.
fn only_the_cluster_can_tell(verdict: &Verdict, document: &Node) -> bool {
    let text = verdict.text();
    let is_null = text.contains("in body must be of type") && text.contains("\"null\"");
    let is_empty_text = text.contains("should be at least 1 chars long");
    let is_number_for_name = text.contains("in body must be of type string: \"integer\"")
        && verdict.0.errors.iter().any(|error| error.kind == ErrorKind::Unsupported);
    let has_unknown_fields = !verdict.0.unknown.is_empty();
    let is_filter = document.get("kind").and_then(Node::as_str) == Some("EnvoyFilter");
    is_null || is_empty_text || is_number_for_name || has_unknown_fields || is_filter
}

/// Keys are not parsed by any rule of a cluster.
fn only_the_webhook_can_tell(refusal: Option<&str>) -> bool {
    refusal.is_some_and(|refusal| refusal.contains("jwks parse error"))
}

/// Why the webhook refuses to have a document stored.
fn refusal(document: &Node) -> Option<String> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"kind": document.get("kind").map(Node::to_json)},
            "operation": "CREATE",
            "object": document.to_json(),
        },
    });
    let body = review.to_string();
    let request =
        Request { path: "/validate", content_type: Some("application/json"), body: body.as_bytes() };
    let answer = validation::answer(&request);
    let response: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    match &response["response"]["allowed"] {
        serde_json::Value::Bool(true) => None,
        _ => {
            Some(answer.outcome.refusal.unwrap_or_else(|| String::from_utf8_lossy(&answer.body).into_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(document: &Node) -> Verdict {
        let ours: Vec<_> = own::definitions().iter().map(|document| Crd::parse(document).unwrap()).collect();
        Verdict::reach(document, &ours).unwrap()
    }

    fn peer_authentication(spec: serde_json::Value) -> Node {
        let (version, metadata) = ("security.istio.io/v1", json!({"name": "a", "namespace": "b"}));
        let document =
            json!({"apiVersion": version, "kind": "PeerAuthentication", "metadata": metadata, "spec": spec});
        document.into()
    }

    #[test]
    fn webhook_and_cluster_agree_on_what_both_can_know() {
        for spec in [json!({"mtls": {"mode": "STRICT"}}), json!({"portLevelMtls": {"80": {}}})] {
            let document = peer_authentication(spec);
            assert_eq!(disagreement(&verdict(&document), &document), None);
        }
    }

    #[test]
    fn webhook_is_not_blamed_for_what_only_the_cluster_sees() {
        let document = peer_authentication(json!({"mtls": {"mode": 1}}));
        let verdict = verdict(&document);
        assert!(!verdict.is_valid());
        assert_eq!(refusal(&document), None);
        assert_eq!(disagreement(&verdict, &document), None);
    }

    #[test]
    fn webhook_is_blamed_for_what_it_lets_pass() {
        let strange = peer_authentication(json!({"portLevelMtls": {"80": {}}}));
        let plain = peer_authentication(json!({}));
        assert!(disagreement(&verdict(&strange), &plain).is_some());
    }
}
