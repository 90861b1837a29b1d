//! Whether an object may be stored.

use canopus_api::registry::Category;
use canopus_api::validate::{self, reader};
use canopus_api::{DecodeError, Kind, Object, Options};
use canopus_base::tree::Node;

use super::Reason;
use crate::review::Request;

/// The keys an object may have at its top.
const KEYS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// What becomes of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Why it was not validated, or not found valid.
    pub(super) reason: Option<Reason>,
    /// Why it is refused.
    pub(super) refusal: Option<String>,
    /// What the user is told though it is stored.
    pub(super) warnings: Vec<String>,
}

impl Verdict {
    pub(super) fn denied(reason: Reason, refusal: String) -> Self {
        Self { reason: Some(reason), refusal: Some(refusal), warnings: Vec::new() }
    }
}

/// Decides about an object that is about to be stored.
pub(super) fn admit(request: &Request) -> Verdict {
    if !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return Verdict { reason: Some(Reason::UnsupportedOperation), ..Verdict::default() };
    }
    checked(request).unwrap_or_else(|(reason, refusal)| Verdict::denied(reason, refusal))
}

type Refused = (Reason, String);

fn checked(request: &Request) -> Result<Verdict, Refused> {
    let document = &request.object;
    let kind = kind(document)?;
    let object = decode(kind, document)
        .map_err(|why| (Reason::ConversionError, format!("error decoding configuration: {why}")))?;
    let report = validate::validate_document(&object, document);
    if let Some(errors) = report.error_text() {
        return Err((Reason::Invalid, format!("configuration is invalid: {errors}")));
    }
    // Parity: only here, so that an object with a misspelt key is first refused for what it lacks.
    if let Some(key) = unknown_key(document) {
        let (kind, namespace, name) = (&request.kind, &request.namespace, &object.meta().name);
        let message = format!("unknown field {key:?} on {kind} resource {namespace}/{name}");
        return Err((Reason::Invalid, message));
    }
    Ok(Verdict { warnings: report.warning_texts().map(str::to_owned).collect(), ..Verdict::default() })
}

/// The kind of an object, in whatever version: they all have the same schema.
fn kind(document: &Node) -> Result<Kind, Refused> {
    let undecodable = |why: &str| (Reason::Undecodable, format!("cannot decode configuration: {why}"));
    if document.is_null() {
        return Err(undecodable("unexpected end of JSON input"));
    }
    if document.as_map().is_none() {
        return Err(undecodable(&format!("expected an object, found a {}", document.kind_name())));
    }
    let text = |field: &str| match document.get(field).filter(|value| !value.is_null()) {
        None => Ok(""),
        Some(value) => value.as_str().ok_or_else(|| {
            undecodable(&format!("{field}: expected a string, found a {}", value.kind_name()))
        }),
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let (group, version) = match api_version.split_once('/') {
        None => ("", api_version),
        Some((_, rest)) if rest.contains('/') => ("", ""),
        Some(parts) => parts,
    };
    Kind::in_group(group, kind)
        .filter(|kind| is_reviewed(*kind))
        .ok_or_else(|| (Reason::UnknownType, format!("unrecognized type {group}/{version}, Kind={kind}")))
}

/// Whether objects of a kind are the webhook's business.
fn is_reviewed(kind: Kind) -> bool {
    matches!(kind.info().category, Category::Istio | Category::GatewayApi)
}

/// Reads an object as Istio reads it: fields nobody knows are left out, enum names nobody knows are refused.
fn decode(kind: Kind, document: &Node) -> Result<Object, String> {
    let decoded = Object::decode_as(kind, document, Options::lenient());
    if decoded.as_ref().is_ok_and(|decoded| decoded.ignored.is_empty()) {
        return decoded.map(|decoded| decoded.value).map_err(|error| error.to_string());
    }
    let spec = document.get("spec").cloned().unwrap_or_default();
    match (reader::read_spec(kind, &spec), decoded) {
        (Err(refusal), _) => Err(refusal),
        (Ok(_), Ok(decoded)) => Ok(decoded.value),
        (Ok(_), Err(error)) => Err(problems(&error)),
    }
}

/// What is wrong with an object, without saying again which one it is.
fn problems(error: &DecodeError) -> String {
    error.problems().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn unknown_key(document: &Node) -> Option<&str> {
    let mut keys = document.as_map()?.iter().map(|entry| &*entry.key);
    keys.find(|key| !KEYS.contains(key))
}
