//! Traces: how many requests are traced, what their spans say, and who they are reported to.

mod open_telemetry;
mod provider;
mod tags;

use std::collections::BTreeMap;

use canopus_mesh::telemetry::tracing::{self as telemetry, Traces};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::Tracing;
use canopus_proto::envoy::r#type::v3::Percent;
use canopus_proto::google::protobuf::UInt32Value;
use canopus_proto::wire::ProtoWriter;
use canopus_runtime::flags::PILOT_TRACE_SAMPLING;

use crate::env::{Class, Env};
use provider::Reporting;

/// Room for a usual `Tracing` message.
const USUAL_SIZE: usize = 1024;

/// The tracing of a connection manager.
pub(crate) struct Traced {
    /// Encoded tracing configuration; `None` switches tracing off.
    pub(crate) tracing: Option<ProtoWriter<Tracing>>,
    /// Whether the id of a request says if it is sampled.
    pub(crate) samples_by_request_id: bool,
}

impl Traced {
    const OFF: Self = Self { tracing: None, samples_by_request_id: true };
}

/// Tracing of listeners of a class: as Telemetry objects and default providers say, else as the mesh's own fields do.
pub(crate) fn tracing(env: &Env<'_>, class: Class) -> Traced {
    let applicable = env.telemetry();
    let defaults = env.mesh().default_providers.as_ref().map_or(&[][..], |defaults| &defaults.tracing);
    match telemetry::merge(&applicable.tracing, defaults, super::side(class)) {
        Some(traces) => telemetry_tracing(env, &traces).unwrap_or(Traced::OFF),
        None => mesh_tracing(env),
    }
}

/// Tracing as Telemetry objects say; `None` if they switch it off, or nobody is there to report to.
fn telemetry_tracing(env: &Env<'_>, traces: &Traces) -> Option<Traced> {
    if traces.disabled {
        return None;
    }
    let provider = super::provider(env, traces.provider.as_ref()?)?;
    let Reporting { tracer, spawns_spans, max_tag_length, samples } = provider::reporting(env, provider)?;
    // A sampler decides by itself, so it must see everything.
    let share = if samples { 100.0 } else { traces.sampling.unwrap_or_else(|| sampling(env)) };
    let mut tracing = ProtoWriter::from_message(&Tracing {
        provider: Some(tracer),
        spawn_upstream_span: spawns_spans.then(|| true.into()),
        max_path_tag_length: max_path_tag_length(env, max_tag_length),
        no_context_propagation: traces.keeps_context && env.audience.gates.keeps_trace_context,
        ..sampled(share)
    });
    tags::write(&mut tracing, env, traces.istio_tags, &traces.tags);
    Some(Traced { tracing: Some(tracing), samples_by_request_id: traces.samples_by_request_id })
}

/// Tracing by the tracer of the bootstrap.
fn mesh_tracing(env: &Env<'_>) -> Traced {
    let config = env.audience.config.tracing.as_ref();
    let istio_tags = config.and_then(|tracing| tracing.enable_istio_tags).is_none_or(|wanted| wanted.value);
    let tracing = env.mesh().enable_tracing.then(|| {
        let mut tracing = ProtoWriter::with_capacity(USUAL_SIZE);
        let max_path_tag_length = max_path_tag_length(env, 0);
        tracing.append_message(&Tracing { max_path_tag_length, ..sampled(sampling(env)) });
        tags::write(&mut tracing, env, istio_tags, &BTreeMap::new());
        tracing
    });
    Traced { tracing, ..Traced::OFF }
}

/// Tracing of a share of all requests.
fn sampled(share: f64) -> Tracing {
    let percent = |value| Some(Percent { value });
    Tracing {
        client_sampling: percent(100.0),
        random_sampling: percent(share),
        overall_sampling: percent(100.0),
        ..Default::default()
    }
}

/// The share of requests that are traced.
fn sampling(env: &Env<'_>) -> f64 {
    match env.audience.config.tracing.as_ref().map_or(0.0, |tracing| tracing.sampling) {
        // Parity: more than all is taken for a mistake, and one percent for what was meant.
        written if written > 100.0 => 1.0,
        written if written != 0.0 => written,
        _ => env.flag(PILOT_TRACE_SAMPLING),
    }
}

/// How much of a path a span shows: as the provider says, else as the proxy's configuration does.
fn max_path_tag_length(env: &Env<'_>, of_provider: u32) -> Option<UInt32Value> {
    let of_proxy = env.audience.config.tracing.as_ref().map_or(0, |tracing| tracing.max_path_tag_length);
    let length = if of_provider == 0 { of_proxy } else { of_provider };
    (length != 0).then(|| length.into())
}
