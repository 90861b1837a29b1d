//! What injected pods are marked with.

use serde::Serialize;
use serde_json::Value as Json;

use super::{Injector, Subject, pod};

pub(super) const STATUS: &str = "sidecar.istio.io/status";

/// The value of the status annotation: the names of all that was injected.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    init_containers: Option<Vec<String>>,
    containers: Option<Vec<String>>,
    volumes: Option<Vec<String>>,
    image_pull_secrets: Option<Vec<String>>,
    revision: String,
}

pub(super) fn write(pod: &mut Json, template: &Json, injector: &Injector, subject: &Subject<'_>) {
    if let Some(network) = subject.environment.get("ISTIO_META_NETWORK") {
        let network = Json::String(network.clone());
        pod::metadata_mut(pod, "labels").insert("topology.istio.io/network".to_owned(), network);
    }
    let names = |list: &str| {
        let items = pod::containers(template, list);
        (!items.is_empty()).then(|| items.iter().map(|item| pod::name(item).to_owned()).collect())
    };
    let revision = if injector.revision.is_empty() { "default" } else { &injector.revision };
    let status = Status {
        init_containers: names(pod::INIT_CONTAINERS),
        containers: names(pod::CONTAINERS),
        volumes: names("volumes"),
        image_pull_secrets: names("imagePullSecrets"),
        revision: revision.to_owned(),
    };
    pod::set_annotation(pod, STATUS, serde_json::to_string(&status).unwrap_or_else(|_| "{}".to_owned()));
    for (key, value) in &injector.config.injected_annotations {
        pod::set_annotation(pod, key, value.clone());
    }
}

/// The names that the status annotation of a pod has under a key. An annotation that cannot be read names nothing.
pub(super) fn injected_names(pod: &Json, list: &str) -> Vec<String> {
    let status = pod::annotation(pod, STATUS).and_then(|text| serde_json::from_str::<Json>(text).ok());
    let names = status.as_ref().and_then(|status| status.get(list)?.as_array());
    names.into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
}
