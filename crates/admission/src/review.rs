//! Admission reviews: what they ask, and how they are answered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canopus_base::tree::{Limits, Node, ReadErrorKind};
use canopus_base::{json, yaml};
use serde::Serialize;

use crate::http::MAX_BODY;

/// The resource that was about to be stored, as the API server names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The group: `networking.istio.io`.
    pub group: String,
    /// The version: `v1`.
    pub version: String,
    /// The plural: `virtualservices`.
    pub resource: String,
}

const KIND: &str = "AdmissionReview";
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

/// A review that asks something.
pub(crate) struct Review {
    /// The version it is written in, and will be answered in.
    version: &'static str,
    pub(crate) request: Request,
}

/// What a review asks.
pub(crate) struct Request {
    uid: String,
    resource: Resource,
    /// The kind of the object, as the API server names it.
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) operation: String,
    pub(crate) object: Node,
    pub(crate) dry_run: bool,
}

/// Why a body is not a review that asks something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReviewError {
    /// Not a review; in words.
    Undecodable(String),
    /// A review with nothing in it.
    NoRequest,
}

impl Review {
    /// What its answer has to name.
    pub(crate) fn address(&self) -> (&'static str, &str) {
        (self.version, &self.request.uid)
    }

    pub(crate) fn read(body: &[u8]) -> Result<Self, ReviewError> {
        let mut document = parse(body).map_err(|error| unversioned(&error))?;
        let version = version(&document, body)?;
        let request = document.get_mut("request").map(std::mem::take).unwrap_or_default();
        if request.is_null() {
            return Err(ReviewError::NoRequest);
        }
        let request = Request::read(request).map_err(ReviewError::Undecodable)?;
        Ok(Self { version, request })
    }
}

pub(crate) fn unversioned(error: &str) -> ReviewError {
    ReviewError::Undecodable(format!("couldn't get version/kind; json parse error: {error}"))
}

/// The version of a review.
fn version(document: &Node, body: &[u8]) -> Result<&'static str, ReviewError> {
    if document.as_map().is_none() {
        return Err(unversioned(&format!("expected an object, found a {}", document.kind_name())));
    }
    let text = |field| match document.get(field) {
        None => Ok(""),
        Some(value) if value.is_null() => Ok(""),
        Some(value) => value.as_str().ok_or_else(|| {
            unversioned(&format!("{field}: expected a string, found a {}", value.kind_name()))
        }),
    };
    known_version(text("kind")?, text("apiVersion")?, body)
}

/// The version of reviews that a kind and an API version name.
pub(crate) fn known_version(kind: &str, version: &str, body: &[u8]) -> Result<&'static str, ReviewError> {
    let missing = |what: &str| {
        let body = String::from_utf8_lossy(body);
        ReviewError::Undecodable(format!("Object '{what}' is missing in '{body}'"))
    };
    if kind.is_empty() {
        return Err(missing("Kind"));
    }
    if version.is_empty() {
        return Err(missing("apiVersion"));
    }
    let known = VERSIONS.into_iter().find(|known| *known == version && kind == KIND);
    known.ok_or_else(|| {
        let message = format!("no kind {kind:?} is registered for version {version:?}");
        ReviewError::Undecodable(message)
    })
}

/// Reads JSON; of a key that occurs twice the last one counts. What is no JSON may be YAML.
fn parse(body: &[u8]) -> Result<Node, String> {
    let limits = Limits { max_bytes: MAX_BODY, ..Limits::default() };
    let error = match json::parse(body, &limits) {
        Ok(document) => return Ok(document),
        Err(error) => error,
    };
    match error.kind {
        ReadErrorKind::DuplicateKey { .. } => {
            let value = serde_json::from_slice::<serde_json::Value>(body);
            value.map(Node::from).map_err(|error| error.to_string())
        }
        ReadErrorKind::Syntax(_) => yaml::parse_one(body, &limits).map_err(|_| error.kind.to_string()),
        kind => Err(kind.to_string()),
    }
}

impl Request {
    fn read(mut request: Node) -> Result<Self, String> {
        let object = request.get_mut("object").map(std::mem::take).unwrap_or_default();
        if request.as_map().is_none() {
            return Err(format!("request: expected an object, found a {}", request.kind_name()));
        }
        let text = |path: &str| match request.pointer(path).filter(|value| !value.is_null()) {
            None => Ok(String::new()),
            Some(value) => value.as_str().map(str::to_owned).ok_or_else(|| {
                let path = path.replace('/', ".");
                format!("request{path}: expected a string, found a {}", value.kind_name())
            }),
        };
        Ok(Self {
            uid: text("/uid")?,
            resource: Resource {
                group: text("/resource/group")?,
                version: text("/resource/version")?,
                resource: text("/resource/resource")?,
            },
            kind: text("/kind/kind")?,
            namespace: text("/namespace")?,
            operation: text("/operation")?,
            dry_run: request.get("dryRun").and_then(Node::as_bool).unwrap_or_default(),
            object,
        })
    }

    /// The resource the API server is about to store.
    pub(crate) fn resource(&self) -> Resource {
        self.resource.clone()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'a str>,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Status<'a> {
    metadata: Empty,
    message: &'a str,
}

#[derive(Serialize)]
struct Empty {}

/// What a review is answered with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply<'a> {
    /// Why the object may not be stored.
    pub(crate) refusal: Option<&'a str>,
    /// Warnings that are returned with an admitted object.
    pub(crate) warnings: &'a [String],
    /// How the object is changed first, as a JSON patch.
    pub(crate) patch: Option<&'a [u8]>,
}

/// The answer to a review of a version and a UID, or to what is none.
pub(crate) fn respond(review: Option<(&'static str, &str)>, reply: &Reply<'_>) -> Vec<u8> {
    let status = reply.refusal.map(|message| Status { metadata: Empty {}, message });
    let answered = Answered {
        kind: review.map(|_| KIND),
        api_version: review.map(|(version, _)| version),
        response: Response {
            uid: review.map_or("", |(_, uid)| uid),
            allowed: status.is_none(),
            status,
            patch: reply.patch.map(|patch| STANDARD.encode(patch)),
            patch_type: reply.patch.map(|_| "JSONPatch"),
            warnings: reply.warnings,
        },
    };
    serde_json::to_vec(&answered).expect("texts and truths can always be written")
}
