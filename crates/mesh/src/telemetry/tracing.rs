//! Traces: who gets them, how many, and what they say.

use std::collections::BTreeMap;

use canopus_proto::istio::telemetry::v1alpha1::tracing::CustomTag;
use canopus_proto::istio::telemetry::v1alpha1::{Tracing, WorkloadMode};

use super::Side;

/// How one side is traced.
#[derive(Clone, Debug, PartialEq)]
pub struct Traces {
    /// Who gets the spans, by name.
    pub provider: Option<String>,
    /// Whether nothing is reported.
    pub disabled: bool,
    /// The share of requests that are traced, if somebody said.
    pub sampling: Option<f64>,
    /// Tags that spans get.
    pub tags: BTreeMap<String, CustomTag>,
    /// Whether the id of a request says if it is traced.
    pub samples_by_request_id: bool,
    /// Whether spans say who reports them.
    pub istio_tags: bool,
    /// Whether requests are passed on without trace headers.
    pub keeps_context: bool,
}

/// How one side is traced, given what objects say and whom the mesh uses by default; `None` if nobody says anything.
pub fn merge(written: &[Tracing], defaults: &[String], side: Side) -> Option<Traces> {
    if written.is_empty() && defaults.is_empty() {
        return None;
    }
    let mut traces = Traces {
        provider: defaults.first().cloned(),
        disabled: false,
        sampling: None,
        tags: BTreeMap::new(),
        samples_by_request_id: true,
        istio_tags: true,
        keeps_context: false,
    };
    for one in written.iter().filter(|one| is_about(one, side)) {
        traces.apply(one);
    }
    Some(traces)
}

impl Traces {
    fn apply(&mut self, written: &Tracing) {
        if let Some(provider) = written.providers.first() {
            self.provider = Some(provider.name.clone());
        }
        if !written.custom_tags.is_empty() {
            self.tags.clone_from(&written.custom_tags);
        }
        self.sampling = written.random_sampling_percentage.map(|share| share.value).or(self.sampling);
        for (field, said) in [
            (&mut self.disabled, written.disable_span_reporting),
            (&mut self.samples_by_request_id, written.use_request_id_for_trace_sampling),
            (&mut self.istio_tags, written.enable_istio_tags),
            (&mut self.keeps_context, written.disable_context_propagation),
        ] {
            *field = said.map_or(*field, |said| said.value);
        }
    }
}

fn is_about(written: &Tracing, side: Side) -> bool {
    written.r#match.as_ref().is_none_or(|selector| match selector.mode() {
        WorkloadMode::ClientAndServer => true,
        WorkloadMode::Client => side == Side::Client,
        WorkloadMode::Server => side == Side::Server,
    })
}
