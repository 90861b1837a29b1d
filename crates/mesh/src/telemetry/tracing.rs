//! Tracing: the effective provider, sampling and tags.

use std::collections::BTreeMap;

use canopus_proto::istio::telemetry::v1alpha1::tracing::CustomTag;
use canopus_proto::istio::telemetry::v1alpha1::{Tracing, WorkloadMode};

use super::Side;

/// The tracing settings of one side of a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Traces {
    /// The name of the provider.
    pub provider: Option<String>,
    /// Whether span reporting is disabled.
    pub disabled: bool,
    /// The sampling percentage, if one is set.
    pub sampling: Option<f64>,
    /// Custom tags.
    pub tags: BTreeMap<String, CustomTag>,
    /// Whether the request id decides about sampling.
    pub samples_by_request_id: bool,
    /// Whether spans carry Istio's own tags, such as the reporter.
    pub istio_tags: bool,
    /// Whether trace context is not propagated.
    pub keeps_context: bool,
}

/// Merges tracing settings for one side of a connection, starting from the mesh's default providers. Returns `None` if there
/// are neither settings nor defaults.
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
        for (field, written) in [
            (&mut self.disabled, written.disable_span_reporting),
            (&mut self.samples_by_request_id, written.use_request_id_for_trace_sampling),
            (&mut self.istio_tags, written.enable_istio_tags),
            (&mut self.keeps_context, written.disable_context_propagation),
        ] {
            *field = written.map_or(*field, |written| written.value);
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
