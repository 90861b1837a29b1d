//! The labels and annotations of everything that is deployed for a gateway.

use std::collections::BTreeMap;

use canopus_api::gateway_api::Gateway;
use canopus_api::labels;
use canopus_base::labels::Labels;
use canopus_runtime::flags::{
    Flags, PILOT_ENABLE_AMBIENT_WAYPOINTS, PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS,
};

/// Names with this prefix are Gateway API's, and set by templates alone.
const RESERVED: &str = "gateway.networking.k8s.io/";

/// Labels and annotations for what is deployed.
#[derive(Debug, PartialEq)]
pub(super) struct Marks {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Marks {
    /// Labels and annotations of `spec.infrastructure`; without them, those of the Gateway itself.
    pub(super) fn new(gateway: &Gateway, flags: &Flags, network: &str) -> Self {
        let copy = flags.get(PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS);
        let infrastructure = gateway.spec.infrastructure.as_ref();
        let choose = |asked: Option<&Labels>, own: &Labels| -> BTreeMap<String, String> {
            let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
            match asked.filter(|asked| !asked.is_empty()) {
                Some(asked) => {
                    asked.iter().filter(|(key, _)| !key.starts_with(RESERVED)).map(owned).collect()
                }
                None if copy => own.iter().map(owned).collect(),
                None => BTreeMap::new(),
            }
        };
        let mut labels =
            choose(infrastructure.map(|infrastructure| &infrastructure.labels), &gateway.meta.labels);
        add_defaults(&mut labels, gateway, flags, network);
        let annotations = choose(
            infrastructure.map(|infrastructure| &infrastructure.annotations),
            &gateway.meta.annotations,
        );
        Self { labels, annotations }
    }
}

/// Adds what gateways need in an ambient mesh: those at the edge stay out of it, those inside say their network.
fn add_defaults(labels: &mut BTreeMap<String, String>, gateway: &Gateway, flags: &Flags, network: &str) {
    let class = &*gateway.spec.gateway_class_name;
    let is_inside = class.contains("waypoint") || class.contains("east-west");
    let mode = labels::DATAPLANE_MODE.name;
    let is_mode_set = gateway.meta.label(mode).is_some() || labels.contains_key(mode);
    if flags.get(PILOT_ENABLE_AMBIENT_WAYPOINTS) && !is_inside && !is_mode_set {
        labels.insert(mode.to_owned(), "none".to_owned());
    }
    let topology = labels::TOPOLOGY_NETWORK.name;
    if is_inside && !network.is_empty() && gateway.meta.label(topology).is_none() {
        labels.insert(topology.to_owned(), network.to_owned());
    }
}
