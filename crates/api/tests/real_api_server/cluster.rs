//! A cluster with our definitions, and what it and we think of an object.

use canopus_api::Kind;
use canopus_api::crd::{Crd, FieldError, own};
use canopus_base::tree::{Limits, Node};
use canopus_base::{json, yaml};
use canopus_testkit::http::{Method, StatusCode};
use canopus_testkit::{KubeApi, KubeProxy};

pub(crate) struct Cluster {
    _kube: KubeApi,
    proxy: KubeProxy,
    definitions: Vec<Crd>,
}

/// What somebody makes of an object.
#[derive(Debug)]
pub(crate) struct Opinion<E> {
    /// Why it is refused.
    errors: Vec<E>,
    /// Whether it was refused before the rules were tried.
    unruled: bool,
    /// The fields that are dropped, sorted. Of a refused object the server does not say it.
    unknown: Vec<String>,
    /// What is stored of it, but for the metadata.
    stored: Option<Node>,
}

/// Why the server refuses an object.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    field: String,
    message: String,
}

/// The same question, put to both.
pub(crate) struct Opinions {
    pub(crate) server: Opinion<Cause>,
    ours: Opinion<FieldError>,
    document: Node,
}

impl Cluster {
    /// Starts an API server and gives it the definitions.
    pub(crate) async fn start() -> Self {
        let kube = KubeApi::start().await.unwrap();
        let manifests: Vec<String> = own::manifests().into_iter().map(|manifest| manifest.text).collect();
        kube.apply(&manifests.join("---\n")).await.unwrap();
        let definition = |text| Crd::parse(&yaml::parse_one(text, &Limits::default()).unwrap()).unwrap();
        let definitions = manifests.iter().map(definition).collect();
        kube.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"])
            .await
            .unwrap();
        let proxy = kube.proxy().await.unwrap();
        Self { _kube: kube, proxy, definitions }
    }

    /// Asks the server and ourselves about an object that is about to be created.
    pub(crate) async fn ask(&self, document: &Node) -> Opinions {
        let document = with_plain_metadata(document);
        Opinions { server: self.ask_server(&document).await, ours: self.ask_us(&document), document }
    }

    async fn ask_server(&self, document: &Node) -> Opinion<Cause> {
        let (version, kind) = kind(document);
        let (group, _) = version.split_once('/').unwrap();
        let plural = Kind::in_group(group, kind).unwrap().info().plural;
        let path = format!("/apis/{version}/namespaces/default/{plural}?dryRun=All&fieldValidation=Warn");
        let request = self.proxy.request(Method::POST, &path).header("content-type", "application/json");
        let response = request.body(document.to_json().to_string()).send().await.unwrap();
        let body = json::parse(response.body.as_bytes(), &Limits::default()).unwrap();
        if response.status == StatusCode::CREATED {
            let warnings = response.headers.get_all("warning").iter().map(|value| value.to_str().unwrap());
            let unknown = warnings.filter_map(unknown_field).collect();
            return Opinion::accepted(unknown, &body);
        }
        let causes = body.pointer("/details/causes").and_then(Node::as_list).unwrap_or_default();
        assert!(!causes.is_empty(), "{}: {}", response.status, response.body);
        let (unruled, errors): (Vec<_>, Vec<_>) =
            causes.iter().map(Cause::read).partition(|cause| cause.message.ends_with(RULES_NOT_TRIED));
        Opinion::refused(errors, !unruled.is_empty())
    }

    fn ask_us(&self, document: &Node) -> Opinion<FieldError> {
        let (version, kind) = kind(document);
        let version = self.definitions.iter().find_map(|crd| crd.serving(version, kind)).unwrap();
        let admission = version.admit(document, None);
        if admission.errors.is_empty() {
            Opinion::accepted(admission.unknown, &admission.object)
        } else {
            Opinion::refused(admission.errors, !admission.rules_tried)
        }
    }
}

impl<E> Opinion<E> {
    fn accepted(unknown: Vec<String>, object: &Node) -> Self {
        Self { errors: Vec::new(), unruled: false, unknown, stored: Some(without_metadata(object)) }
    }

    fn refused(errors: Vec<E>, unruled: bool) -> Self {
        Self { errors, unruled, unknown: Vec::new(), stored: None }
    }

    pub(crate) fn is_accepted(&self) -> bool {
        self.errors.is_empty()
    }
}

const RULES_NOT_TRIED: &str = "some validation rules were not checked because the object was invalid; correct the \
                               existing errors to complete validation";

impl Cause {
    fn read(node: &Node) -> Self {
        let text = |key| node.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
        Self { field: text("field"), message: text("message") }
    }

    /// Whether we say the same. Which value is shown beside a broken rule depends on the version of Kubernetes; and of
    /// alternatives the server knows the place in words only.
    fn is(&self, error: &FieldError) -> bool {
        let field = self.field == error.path || self.field == "<nil>" && self.message.contains(&error.path);
        field && self.message.starts_with(error.kind.words()) && self.message.ends_with(&error.detail)
    }
}

impl Opinions {
    /// In what the two differ, if they do.
    pub(crate) fn difference(&self) -> Option<String> {
        let (server, ours) = (&self.server, &self.ours);
        let mut rest = server.errors.clone();
        for error in &ours.errors {
            if let Some(same) = rest.iter().position(|cause| cause.is(error)) {
                rest.remove(same);
            }
        }
        let same = rest.is_empty()
            && server.errors.len() == ours.errors.len()
            && server.unruled == ours.unruled
            && server.unknown == ours.unknown
            && server.stored == ours.stored;
        (!same).then(|| format!("{}\n  server: {server:?}\n  we: {ours:?}\n", self.document.to_json()))
    }
}

fn kind(document: &Node) -> (&str, &str) {
    let text = |key| document.get(key).and_then(Node::as_str).unwrap();
    (text("apiVersion"), text("kind"))
}

/// The same object with metadata that nobody can object to: the rest is about schemas.
fn with_plain_metadata(document: &Node) -> Node {
    let mut document = document.clone();
    let metadata = serde_json::json!({"name": "subject"});
    document.as_map_mut().unwrap().insert("metadata", metadata.into());
    document
}

fn without_metadata(object: &Node) -> Node {
    let mut object = object.clone();
    let map = object.as_map_mut().unwrap();
    map.remove("metadata");
    // The server fills in `status` only on its own path, so it drops what a client says there.
    map.remove("status");
    // The order of keys is nobody's business.
    object.to_json().into()
}

/// `299 - "unknown field \"spec.a\""`
fn unknown_field(warning: &str) -> Option<String> {
    let field = warning.split_once("unknown field \\\"")?.1;
    Some(
        field
            .trim_end_matches('"')
            .trim_end_matches('\\')
            .trim_end_matches('"')
            .trim_end_matches('\\')
            .to_owned(),
    )
}
