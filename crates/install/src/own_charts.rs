//! The charts that are built in: those of `manifests/charts`.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::component::Component;
use crate::tree::{self, Tree};

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/charts.rs"));
}

/// Charts of components, by their paths in Istio's releases, and those that stand in for them.
const NAMES: [(&str, &str); 5] = [
    ("base", "base"),
    ("istio-control/istio-discovery", "canopusd"),
    ("gateways/istio-ingress", "gateway"),
    ("gateways/istio-egress", "gateway"),
    ("istio-cni", "cni"),
];

/// The files of a chart, by its path in Istio's releases or by its own name; none if it is not built in.
pub(crate) fn files(name: &str) -> BTreeMap<String, Vec<u8>> {
    let own = NAMES.iter().find(|(theirs, _)| *theirs == name).map_or(name, |(_, own)| own);
    let files = embedded::FILES.iter().filter(|(chart, ..)| *chart == own);
    files.map(|(_, path, content)| ((*path).to_owned(), content.to_vec())).collect()
}

/// Values of a gateway as the operator API nests them, and the names that the chart has for them.
const GATEWAY_VALUES: [(&str, &str); 20] = [
    ("name", "name"),
    ("labels", "labels"),
    ("type", "service.type"),
    ("ports", "service.ports"),
    ("serviceAnnotations", "service.annotations"),
    ("loadBalancerIP", "service.loadBalancerIP"),
    ("loadBalancerSourceRanges", "service.loadBalancerSourceRanges"),
    ("externalTrafficPolicy", "service.externalTrafficPolicy"),
    ("externalIPs", "service.externalIPs"),
    ("ipFamilyPolicy", "service.ipFamilyPolicy"),
    ("ipFamilies", "service.ipFamilies"),
    ("autoscaleEnabled", "autoscaling.enabled"),
    ("autoscaleMin", "autoscaling.minReplicas"),
    ("autoscaleMax", "autoscaling.maxReplicas"),
    ("replicaCount", "replicaCount"),
    ("resources", "resources"),
    ("env", "env"),
    ("nodeSelector", "nodeSelector"),
    ("tolerations", "tolerations"),
    ("podAnnotations", "podAnnotations"),
];

/// Values of a component whose chart has its own at the top.
pub(crate) fn flat_values(component: &Component, values: Json) -> Json {
    let Json::Object(mut values) = values else { return json!({}) };
    let mut own = tree::get_map(&values, component.values_root).cloned().unwrap_or_default();
    for shared in ["global", "revision", "profile"] {
        if let Some(value) = values.remove(shared).filter(|value| !value.is_null()) {
            own.entry(shared).or_insert(value);
        }
    }
    Json::Object(own)
}

/// Values of a gateway component as the gateway chart takes them.
pub(crate) fn gateway_values(component: &Component, values: Json) -> Json {
    let Json::Object(values) = values else { return json!({}) };
    let mut own = Tree::new();
    if let Some(revision) = values.get("revision") {
        own.insert("revision".to_owned(), revision.clone());
    }
    for (from, to) in [("imagePullPolicy", "imagePullPolicy"), ("imagePullSecrets", "imagePullSecrets")] {
        let is_set = |value: &&Json| !matches!(value, Json::Null) && value.as_str() != Some("");
        if let Some(value) = tree::get(&values, &format!("global.{from}")).filter(is_set) {
            let value = match value {
                Json::Array(names) => names.iter().map(|name| json!({"name": name})).collect(),
                other => other.clone(),
            };
            own.insert(to.to_owned(), value);
        }
    }
    for (from, to) in GATEWAY_VALUES {
        let Some(value) = tree::get(&values, &format!("{}.{from}", component.values_root)) else { continue };
        if !value.is_null() && value.as_str() != Some("") {
            // The paths of the table lead through maps that this makes.
            let _ = tree::set(&mut own, to, value.clone());
        }
    }
    Json::Object(own)
}
