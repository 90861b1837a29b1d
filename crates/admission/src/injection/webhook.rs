//! The webhook that injects pods: `/inject`, with parameters in its path.
//!
//! [`answer`] is pure: it has the configuration and what is known of the cluster handed in, so it answers the same while the
//! API server is away or the rest of the world is still loading.

use std::collections::BTreeMap;

use canopus_api::mesh_config::ProxyTarget;
use canopus_base::labels::Labels;
use canopus_proto::istio::mesh::v1alpha1::{MeshConfig, ProxyConfig};
use serde_json::{Value as Json, json};

use super::{Injector, Owner, Subject, openshift, path_parameters, pod};
use crate::http;
pub use crate::http::{MAX_BODY, Request};
use crate::review::{self, Reply, Review, ReviewError};

/// Where the webhook is served, with everything below it.
const PATH: &str = "/inject";

/// What is known of the cluster that a pod is created in. A cluster is named as the path or the values name it, or `Kubernetes`.
pub trait Surroundings {
    /// The settings of a proxy, from the mesh's, its annotation and ProxyConfig objects; none if there are only the mesh's.
    fn proxy_config(&self, mesh: &MeshConfig, target: ProxyTarget<'_>) -> Option<ProxyConfig>;

    /// Whether pods of a cluster may have native sidecars: on the node the pod is bound to, or on all of them. Not in a
    /// cluster that nothing is known of.
    fn native_sidecars(&self, cluster: &str, node: &str) -> bool;

    /// Annotations of a namespace, on platforms that give user IDs there.
    fn namespace_annotations(&self, cluster: &str, namespace: &str) -> Option<BTreeMap<String, String>>;
}

/// The minor version of Kubernetes from which native sidecars can be relied on.
const NATIVE_SINCE: u32 = 33;

/// Whether a kubelet of this version runs native sidecars. One whose version cannot be read does not.
pub fn supports_native_sidecars(kubelet: &str) -> bool {
    let mut numbers = kubelet.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    let major = numbers.next().and_then(|major| major.parse::<u32>().ok());
    let minor = numbers.next().and_then(|minor| minor.parse::<u32>().ok());
    // Parity: the major version does not matter.
    major.is_some() && minor.is_some_and(|minor| minor >= NATIVE_SINCE)
}

/// What the client receives.
pub type Answer = http::Answer<Outcome>;

/// What an answer amounts to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The pod, as far as it was read: `namespace/name`.
    pub pod: String,
    /// Why the pod was not injected though it should be.
    pub failure: Option<String>,
    /// Whether the pod is not to be injected.
    pub skipped: bool,
    /// Whether a review was answered, if only with a refusal.
    ///
    /// Parity: that is what Istio counts as success.
    pub answered: bool,
}

/// Answers a request.
pub fn answer(request: &Request<'_>, injector: &Injector, surroundings: &dyn Surroundings) -> Answer {
    if let Some((status, message)) = http::refuse(request, PATH) {
        return error(status, &message, status != 404);
    }
    let review = match PodReview::read(request.body) {
        Ok(review) => review,
        Err(ReviewError::NoRequest) => return error(400, "the admission review has no request", true),
        Err(ReviewError::Undecodable(why)) => {
            let body = review::respond(None, &Reply { refusal: Some(&why), ..Reply::default() });
            return success(body, Outcome { failure: Some(why), ..Outcome::default() });
        }
    };
    let mut outcome = Outcome::default();
    let path = http::path_only(request.path);
    let patch = inject(&review, path, injector, surroundings, &mut outcome);
    let reply = match &patch {
        Ok(Some(patch)) => Reply { patch: Some(patch), ..Reply::default() },
        Ok(None) => Reply::default(),
        Err(why) => Reply { refusal: Some(why), ..Reply::default() },
    };
    let body = review::respond(Some((review.version, &review.uid)), &reply);
    outcome.failure = patch.err();
    success(body, outcome)
}

/// What is to be answered while there is no configuration to inject with.
pub fn unavailable() -> Answer {
    let text = "sidecar injection is not configured yet: the ConfigMap istio-sidecar-injector was not read";
    error(503, text, true)
}

fn success(body: Vec<u8>, outcome: Outcome) -> Answer {
    Answer::review(body, Outcome { answered: true, ..outcome })
}

fn error(status: u16, message: &str, counted: bool) -> Answer {
    let outcome = Outcome { failure: counted.then(|| message.to_owned()), ..Outcome::default() };
    Answer::error(status, message, outcome)
}

/// A review of a pod. Pods can be large and every one is read, so this goes straight to JSON.
struct PodReview {
    version: &'static str,
    uid: String,
    namespace: String,
    object: Json,
}

impl PodReview {
    fn read(body: &[u8]) -> Result<Self, ReviewError> {
        let mut document: Json = match serde_json::from_slice(body) {
            Ok(document) => document,
            // YAML is accepted too, and errors have the words of the other webhook.
            Err(_) => {
                let review = Review::read(body)?;
                let (version, uid) = review.address();
                return Ok(Self {
                    version,
                    uid: uid.to_owned(),
                    namespace: review.request.namespace.clone(),
                    object: review.request.object.to_json(),
                });
            }
        };
        if !document.is_object() {
            return Err(review::unversioned("expected an object"));
        }
        let text = |json: &Json, field: &str| match json.get(field) {
            None | Some(Json::Null) => Ok(String::new()),
            Some(Json::String(text)) => Ok(text.clone()),
            Some(_) => Err(review::unversioned(&format!("{field}: expected a string"))),
        };
        let version =
            review::known_version(&text(&document, "kind")?, &text(&document, "apiVersion")?, body)?;
        let mut request = document.get_mut("request").map(Json::take).unwrap_or_default();
        if request.is_null() {
            return Err(ReviewError::NoRequest);
        }
        if !request.is_object() {
            return Err(ReviewError::Undecodable("request: expected an object".to_owned()));
        }
        Ok(Self {
            version,
            uid: text(&request, "uid")?,
            namespace: text(&request, "namespace")?,
            object: request.get_mut("object").map(Json::take).unwrap_or_default(),
        })
    }
}

/// The patch for a pod, none if it is to be left alone, or why it cannot be injected.
fn inject(
    review: &PodReview,
    path: &str,
    injector: &Injector,
    surroundings: &dyn Surroundings,
    outcome: &mut Outcome,
) -> Result<Option<Vec<u8>>, String> {
    let raw = &review.object;
    if raw.is_null() {
        return Err("unexpected end of JSON input".to_owned());
    }
    if !raw.is_object() {
        let found = if raw.is_string() {
            "string"
        } else if raw.is_array() {
            "array"
        } else {
            "value"
        };
        return Err(format!("json: cannot unmarshal {found} into Go value of type v1.Pod"));
    }
    let mut subject_pod = raw.clone();
    let metadata = pod::object_mut(&mut subject_pod, "metadata");
    metadata.remove("managedFields");
    if metadata.get("namespace").and_then(Json::as_str).unwrap_or_default().is_empty() {
        metadata.insert("namespace".to_owned(), json!(review.namespace));
    }
    let namespace = pod::namespace(&subject_pod).to_owned();
    outcome.pod = format!("{namespace}/{}", pod::display_name(&subject_pod));
    if !injector.config.is_required(&subject_pod) {
        outcome.skipped = true;
        return Ok(None);
    }
    let environment = path_parameters::proxy_environment(path);
    let cluster = environment.get("ISTIO_META_CLUSTER_ID").filter(|cluster| !cluster.is_empty());
    let cluster = cluster.unwrap_or(&injector.values.cluster_name).clone();
    let cluster = if cluster.is_empty() { "Kubernetes" } else { &cluster };
    let namespace_annotations = surroundings.namespace_annotations(cluster, &namespace);
    if namespace_annotations.is_some() {
        openshift::reset_assigned_user(&mut subject_pod);
    }
    let labels: Labels = pod::metadata_map(&subject_pod, "labels").collect();
    let target = ProxyTarget {
        namespace: &namespace,
        labels: &labels,
        annotation: pod::annotation(&subject_pod, "proxy.istio.io/config"),
    };
    let node = subject_pod.get("spec").and_then(|spec| spec.get("nodeName")?.as_str()).unwrap_or_default();
    let subject = Subject {
        owner: Owner::find(&subject_pod),
        proxy_config: surroundings.proxy_config(injector.mesh(), target),
        namespace_annotations: namespace_annotations.as_ref(),
        native_sidecars: surroundings.native_sidecars(cluster, node),
        environment,
        pod: &subject_pod,
    };
    let operations = injector.patch(raw, subject).map_err(|error| error.to_string())?;
    serde_json::to_vec(&operations).map(Some).map_err(|error| error.to_string())
}
