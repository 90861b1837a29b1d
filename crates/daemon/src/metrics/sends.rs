//! What is counted of each response, by type.

use std::sync::OnceLock;

use canopus_runtime::metrics::catalogue::{
    CANOPUS_PUSH_BYTES_TOTAL, PILOT_XDS_CONFIG_SIZE_BYTES, PILOT_XDS_PUSH_TIME, PILOT_XDS_PUSHES,
};
use canopus_runtime::metrics::{Counter, Family, Histogram, Registry};
use canopus_xds::types;

use super::labels::OTHER;
use crate::family::{self, FAMILIES};
use crate::served_config;

/// The short name a type has in metrics.
pub(super) fn label(type_url: &str) -> &str {
    family::Family::find(type_url).map_or_else(|| known(type_url), |family| family.label)
}

/// A type that is served, by its own name; clients can ask for any other, and those are all one.
fn known(type_url: &str) -> &str {
    let is_named = family::Family::find(type_url).is_some() || type_url == types::HEALTH;
    match type_url {
        debug if debug.starts_with(types::DEBUG) => types::DEBUG,
        own if is_named || served_config::is_served(own) => own,
        _ => OTHER,
    }
}

/// Counts responses. There are very many of them and few types, so what counts those of a type is looked up once.
pub(super) struct Sends {
    pushes: Family<Counter, 1>,
    size: Family<Histogram, 1>,
    bytes: Family<Counter, 1>,
    push_time: Family<Histogram, 1>,
    known: [Known; FAMILIES.len()],
}

#[derive(Default)]
struct Known {
    responses: OnceLock<Responses>,
    pushes: OnceLock<Pushes>,
}

/// What counts responses of a type.
pub(super) struct Responses {
    pub(super) count: Counter,
    pub(super) size: Histogram,
}

/// What counts responses of a type that nobody asked for.
pub(super) struct Pushes {
    pub(super) bytes: Counter,
    pub(super) time: Histogram,
}

impl Sends {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            pushes: registry.family(PILOT_XDS_PUSHES),
            size: registry.family(PILOT_XDS_CONFIG_SIZE_BYTES),
            bytes: registry.family(CANOPUS_PUSH_BYTES_TOTAL),
            push_time: registry.family(PILOT_XDS_PUSH_TIME),
            known: Default::default(),
        }
    }

    /// Has `count` count a response of a type.
    pub(super) fn response(&self, type_url: &str, count: impl FnOnce(&Responses)) {
        let label = label(type_url);
        let look_up =
            || Responses { count: self.pushes.with([label]), size: self.size.with([known(type_url)]) };
        match self.known(type_url) {
            Some(known) => count(known.responses.get_or_init(look_up)),
            None => count(&look_up()),
        }
    }

    /// Has `count` count a response of a type that nobody asked for.
    pub(super) fn push(&self, type_url: &str, count: impl FnOnce(&Pushes)) {
        let label = [label(type_url)];
        let look_up = || Pushes { bytes: self.bytes.with(label), time: self.push_time.with(label) };
        match self.known(type_url) {
            Some(known) => count(known.pushes.get_or_init(look_up)),
            None => count(&look_up()),
        }
    }

    fn known(&self, type_url: &str) -> Option<&Known> {
        family::Family::position(type_url).map(|at| &self.known[at])
    }
}
