//! Endpoint pickers: servers that choose which endpoint of an InferencePool takes a request.
//!
//! ```text
//!   request ─► ext_proc filter ─► picker: "10.0.0.7:8000", as metadata ─► cluster of the pool: that endpoint
//! ```
//!
//! A gateway with a route to a pool has the filter ([`FILTER`]), which by itself asks nobody. Routes that lead to a pool say
//! which picker to ask ([`per_route`]), and the pool's cluster follows what it answered ([`follow_picker`]).

use canopus_mesh::gateway_api::EndpointPicker;
use canopus_proto::Any;
use canopus_proto::envoy::config::cluster::v3::LoadBalancingPolicy;
use canopus_proto::envoy::config::cluster::v3::load_balancing_policy::Policy;
use canopus_proto::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use canopus_proto::envoy::config::core::v3::{GrpcService, TypedExtensionConfig};
use canopus_proto::envoy::extensions::filters::http::ext_proc::v3::ext_proc_per_route::Override;
use canopus_proto::envoy::extensions::filters::http::ext_proc::v3::metadata_options::MetadataNamespaces;
use canopus_proto::envoy::extensions::filters::http::ext_proc::v3::processing_mode::{
    BodySendMode, HeaderSendMode,
};
use canopus_proto::envoy::extensions::filters::http::ext_proc::v3::{
    ExtProcOverrides, ExtProcPerRoute, ExternalProcessor, MetadataOptions, ProcessingMode,
};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use canopus_proto::envoy::extensions::load_balancing_policies::override_host::v3::OverrideHost;
use canopus_proto::envoy::extensions::load_balancing_policies::override_host::v3::override_host::OverrideHostSource;
use canopus_proto::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use canopus_proto::envoy::r#type::metadata::v3::MetadataKey;
use canopus_proto::envoy::r#type::metadata::v3::metadata_key::PathSegment;
use canopus_proto::envoy::r#type::metadata::v3::metadata_key::path_segment::Segment;
use canopus_proto::google::protobuf::Duration;

use crate::filter::http_filter;
use crate::names;

/// The filter that asks pickers.
pub(crate) const FILTER: &str = "envoy.filters.http.ext_proc";

/// The namespace of the metadata that pickers and clusters tell each other.
const METADATA: &str = "envoy.lb";
/// The key of the endpoints that a picker chose, by the protocol of endpoint pickers.
const CHOSEN: &str = "x-gateway-destination-endpoint";
/// The key of the endpoint that served the request.
const SERVED: &str = "x-gateway-destination-endpoint-served";

/// How long a picker may take between messages: models answer slowly.
const PATIENCE: Duration = Duration::from_secs(1000);
/// How long a call to a picker may take to begin.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The filter of a gateway. It asks nobody where no route says whom.
pub(crate) fn filter() -> HttpFilter {
    let own = || Some(MetadataNamespaces { untyped: vec![METADATA.to_owned()], ..Default::default() });
    let config = ExternalProcessor {
        // Envoy wants a server to be named; no cluster has this name.
        grpc_service: Some(GrpcService { timeout: Some(CALL_TIMEOUT), ..call("dummy", "") }),
        failure_mode_allow: true,
        processing_mode: Some(ProcessingMode {
            request_header_mode: HeaderSendMode::Skip as i32,
            response_header_mode: HeaderSendMode::Skip as i32,
            ..Default::default()
        }),
        message_timeout: Some(PATIENCE),
        metadata_options: Some(MetadataOptions {
            receiving_namespaces: own(),
            forwarding_namespaces: own(),
            ..Default::default()
        }),
        ..Default::default()
    };
    http_filter(FILTER, &config)
}

/// The filter's configuration for routes to a pool. The picker sees bodies too: requests name the model there, and responses
/// what they cost.
pub(crate) fn per_route(picker: &EndpointPicker) -> Any {
    let overrides = ExtProcOverrides {
        failure_mode_allow: Some(picker.fails_open.into()),
        grpc_service: Some(call(&names::outbound_cluster(&picker.host, picker.port, ""), &picker.host)),
        processing_mode: Some(ProcessingMode {
            request_header_mode: HeaderSendMode::Send as i32,
            request_body_mode: BodySendMode::FullDuplexStreamed as i32,
            request_trailer_mode: HeaderSendMode::Send as i32,
            response_header_mode: HeaderSendMode::Send as i32,
            response_body_mode: BodySendMode::FullDuplexStreamed as i32,
            response_trailer_mode: HeaderSendMode::Send as i32,
        }),
        ..Default::default()
    };
    Any::pack(&ExtProcPerRoute { r#override: Some(Override::Overrides(overrides)) })
}

/// The balancing of a pool's cluster: the endpoints that the picker chose, in its order; any if it chose none that exists.
pub(crate) fn follow_picker() -> LoadBalancingPolicy {
    let config = OverrideHost {
        override_host_sources: vec![OverrideHostSource {
            metadata: Some(metadata_key(CHOSEN)),
            ..Default::default()
        }],
        selected_host_key: Some(metadata_key(SERVED)),
        fallback_policy: Some(balancing(
            "envoy.load_balancing_policies.round_robin",
            Any::pack(&RoundRobin::default()),
        )),
    };
    balancing("envoy.load_balancing_policies.override_host", Any::pack(&config))
}

fn balancing(name: &str, config: Any) -> LoadBalancingPolicy {
    let extension = TypedExtensionConfig { name: name.to_owned(), typed_config: Some(config) };
    LoadBalancingPolicy { policies: vec![Policy { typed_extension_config: Some(extension) }] }
}

fn metadata_key(name: &str) -> MetadataKey {
    let segment = PathSegment { segment: Some(Segment::Key(name.to_owned())) };
    MetadataKey { key: METADATA.to_owned(), path: vec![segment] }
}

/// Without an authority Envoy sends the name of the cluster, in which `|` is no character of an authority: servers that look refuse
/// the call.
fn call(cluster: &str, authority: &str) -> GrpcService {
    let target =
        EnvoyGrpc { cluster_name: cluster.to_owned(), authority: authority.to_owned(), ..Default::default() };
    GrpcService { target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)), ..Default::default() }
}
