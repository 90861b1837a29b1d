//! The labels of the standard metrics, as formats that Envoy fills in.

use canopus_api::node::NodeKind;
use canopus_base::labels::canonical;
use canopus_proto::Any;
use canopus_proto::envoy::extensions::access_loggers::stats::v3::config::Tag;
use canopus_proto::envoy::extensions::matching::actions::transform_stat::v3::TransformStat;
use canopus_proto::envoy::extensions::matching::actions::transform_stat::v3::transform_stat::UpdateTag;
use canopus_proto::envoy::extensions::matching::common_inputs::stats::v3::StatTagValueInput;
use canopus_proto::xds::core::v3::TypedExtensionConfig;
use canopus_proto::xds::r#type::matcher::v3::Matcher;
use canopus_proto::xds::r#type::matcher::v3::matcher::matcher_tree::{MatchMap, TreeType};
use canopus_proto::xds::r#type::matcher::v3::matcher::{MatcherTree, MatcherType, OnMatch, on_match};

use crate::env::{Class, Env};
use crate::telemetry::expression::is_readable;
use crate::telemetry::peer_metadata;

const UNKNOWN: &str = "unknown";
const LATEST: &str = "latest";

/// `workload;namespace;canonical name;canonical revision;cluster` of the endpoint that was called.
const ENDPOINT: &str = "xds.upstream_host_metadata.filter_metadata.istio.workload";

/// The first service of the cluster that was called.
const SERVICE: &str = "xds.cluster_metadata.filter_metadata.istio.services[0]";

/// Clusters of traffic to nowhere in particular, which stand for services in metrics.
const NO_SERVICE: &str = "['BlackHoleCluster', 'PassthroughCluster', 'InboundPassthroughCluster', \
    'InboundPassthroughClusterIpv4', 'InboundPassthroughClusterIpv6']";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    Requests,
    Connections,
}

/// The side that reports a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reporter {
    Source,
    Destination,
    Waypoint,
}

/// The labels of what listeners of a class count, in Istio's order.
pub(super) fn tags(env: &Env<'_>, class: Class, traffic: Traffic) -> Vec<Tag> {
    let reporter = match (env.audience.role.kind, class) {
        (NodeKind::Waypoint, _) => Reporter::Waypoint,
        (_, Class::Inbound) => Reporter::Destination,
        (_, Class::Outbound | Class::Gateway) => Reporter::Source,
    };
    let own = own(env);
    let mut tags = vec![fixed("reporter", reporter.name())];
    match reporter {
        Reporter::Source => {
            tags.extend(own.iter().map(|(name, value)| fixed(&format!("source_{name}"), value)));
            tags.push(expression("source_principal", "upstream.uri_san_local_certificate", UNKNOWN));
            tags.extend(endpoint("destination_", LATEST));
            tags.push(namespace("destination_", "upstream", &endpoint_part(1)));
            tags.push(expression("destination_principal", "upstream.uri_san_peer_certificate", UNKNOWN));
            tags.extend(["destination_app", "destination_version"].map(|name| fixed(name, UNKNOWN)));
            tags.extend(service(class == Class::Outbound, UNKNOWN, None));
        }
        Reporter::Destination => {
            tags.extend(client(traffic));
            tags.extend(own.iter().map(|(name, value)| fixed(&format!("destination_{name}"), value)));
            tags.push(expression("destination_principal", "connection.uri_san_local_certificate", UNKNOWN));
            tags.extend(service(
                false,
                own_value(&own, "canonical_service"),
                Some(own_value(&own, "workload_namespace")),
            ));
        }
        Reporter::Waypoint => {
            tags.extend(client(traffic));
            tags.extend(endpoint("destination_", UNKNOWN));
            tags.push(expression("destination_workload_namespace", &endpoint_part(1), UNKNOWN));
            tags.push(expression("destination_principal", "upstream.uri_san_peer_certificate", UNKNOWN));
            tags.extend(["destination_app", "destination_version"].map(|name| fixed(name, UNKNOWN)));
            tags.extend(service(false, UNKNOWN, None));
        }
    }
    tags.extend(outcome(traffic, reporter));
    tags
}

/// A label of the user's choice; `None` if what it says is no expression.
pub(super) fn user_tag(env: &Env<'_>, name: &str, written: &str) -> Option<Tag> {
    // Envoy would end the expression there.
    let is_fine = !written.contains(")%") && is_readable(env.ctx, written);
    is_fine.then(|| expression(name, written, UNKNOWN))
}

impl Reporter {
    fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Waypoint => "waypoint",
        }
    }
}

/// What a proxy says of its own workload.
fn own<'a>(env: &'a Env<'_>) -> Vec<(&'static str, &'a str)> {
    let Some(reporter) = &env.audience.reporter else { return Vec::new() };
    let (name, revision) = canonical::service(&reporter.labels, &reporter.workload);
    let label = |key: &str| reporter.labels.get(key).unwrap_or_default();
    vec![
        ("workload", &reporter.workload),
        ("canonical_service", name),
        ("canonical_revision", revision),
        ("workload_namespace", &reporter.namespace),
        ("app", label("app")),
        ("version", label("version")),
        ("cluster", &reporter.cluster),
    ]
}

fn own_value<'a>(own: &[(&str, &'a str)], name: &str) -> &'a str {
    own.iter().find(|(own, _)| *own == name).map_or(UNKNOWN, |(_, value)| value)
}

/// What a server says of its client. Of connections it knows the certificate alone.
fn client(traffic: Traffic) -> Vec<Tag> {
    let principal = "connection.uri_san_peer_certificate";
    let said = |field: &str| match traffic {
        Traffic::Requests => peer_metadata::stock::expression(field),
        Traffic::Connections => "''".to_owned(),
    };
    vec![
        expression("source_workload", &said("workload"), UNKNOWN),
        expression("source_canonical_service", &said("canonical_service"), UNKNOWN),
        expression("source_canonical_revision", &said("canonical_revision"), LATEST),
        namespace("source_", "connection", &said("namespace")),
        expression("source_principal", principal, UNKNOWN),
        expression("source_app", &said("app"), UNKNOWN),
        expression("source_version", &said("version"), UNKNOWN),
        expression("source_cluster", &said("cluster"), UNKNOWN),
    ]
}

/// The namespace of a peer: that of its certificate, else the one in its metadata.
fn namespace(side: &str, peer: &str, otherwise: &str) -> Tag {
    let certificate = format!("{peer}.uri_san_peer_certificate");
    let pattern = "'^spiffe://[^/]+/ns/([^/]+)/sa/.*$'";
    let value = format!(
        "has({certificate}) && {certificate}.matches({pattern}) ? re.extract({certificate}, {pattern}, '\\\\1') : {otherwise}"
    );
    expression(&format!("{side}workload_namespace"), &value, UNKNOWN)
}

/// What a client says of the server it called, but for the namespace.
fn endpoint(side: &str, revision: &str) -> Vec<Tag> {
    let part = |name: &str, at: usize, otherwise: &str| {
        expression(&format!("{side}{name}"), &endpoint_part(at), otherwise)
    };
    vec![
        part("workload", 0, UNKNOWN),
        part("canonical_service", 2, UNKNOWN),
        part("canonical_revision", 3, revision),
        part("cluster", 4, UNKNOWN),
    ]
}

fn endpoint_part(at: usize) -> String {
    format!("re.extract({ENDPOINT}, '^(?:[^;]*;){{{at}}}([^;]*).*$', '\\\\1')")
}

/// The service that was called. A sidecar's client side falls back to the host that was asked for.
fn service(host_header: bool, otherwise: &str, namespace: Option<&str>) -> Vec<Tag> {
    let has_service = "'istio' in xds.cluster_metadata.filter_metadata \
        && has(xds.cluster_metadata.filter_metadata.istio.services)";
    let host = if host_header { "request.host" } else { "''" };
    let name = format!(
        "xds.route_name == 'block_all' ? 'BlackHoleCluster' \
         : (xds.route_name == 'allow_any' ? 'PassthroughCluster' \
         : (xds.cluster_name in {NO_SERVICE} ? xds.cluster_name \
         : ({has_service} ? {SERVICE}.name : {host})))"
    );
    vec![
        expression("destination_service", &format!("{has_service} ? {SERVICE}.host : {host}"), otherwise),
        expression("destination_service_name", &name, otherwise),
        match namespace {
            Some(own) => fixed("destination_service_namespace", own),
            None => expression("destination_service_namespace", &format!("{SERVICE}.namespace"), UNKNOWN),
        },
    ]
}

/// How it went.
fn outcome(traffic: Traffic, reporter: Reporter) -> Vec<Tag> {
    let security = match reporter {
        Reporter::Source => fixed("connection_security_policy", UNKNOWN),
        _ => expression("connection_security_policy", "connection.mtls ? 'mutual_tls' : 'none'", UNKNOWN),
    };
    let flags = tag("response_flags", "%RESPONSE_FLAGS%".into());
    match traffic {
        Traffic::Connections => vec![fixed("request_protocol", "tcp"), flags, security],
        Traffic::Requests => {
            let is_grpc = "request.headers['content-type'].startsWith('application/grpc')";
            vec![
                expression("request_protocol", &format!("{is_grpc} ? 'grpc' : 'http'"), "http"),
                tag("response_code", "%RESPONSE_CODE%".into()),
                tag("grpc_response_status", "%GRPC_STATUS_NUMBER%".into()),
                flags,
                security,
            ]
        }
    }
}

fn tag(name: &str, value_format: String) -> Tag {
    Tag { name: name.into(), value_format, rules: None }
}

/// A label that is always the same.
fn fixed(name: &str, value: &str) -> Tag {
    let value = if value.is_empty() { UNKNOWN } else { value };
    tag(name, value.replace('%', "%%"))
}

/// A label whose value an expression in CEL gives. If it gives none, or cannot be evaluated, the label says `otherwise`.
fn expression(name: &str, expression: &str, otherwise: &str) -> Tag {
    let action = TransformStat {
        update_tag: Some(UpdateTag { new_tag_value: otherwise.into() }),
        ..Default::default()
    };
    let typed =
        |name: &str, config: Any| TypedExtensionConfig { name: name.into(), typed_config: Some(config) };
    let on_match = OnMatch {
        on_match: Some(on_match::OnMatch::Action(typed("otherwise", Any::pack(&action)))),
        ..Default::default()
    };
    let tree = MatcherTree {
        input: Some(typed("value", Any::pack(&StatTagValueInput::default()))),
        tree_type: Some(TreeType::ExactMatchMap(MatchMap { map: [(String::new(), on_match)].into() })),
    };
    let rules = Matcher { matcher_type: Some(MatcherType::MatcherTree(tree)), ..Default::default() };
    Tag { rules: Some(rules), ..tag(name, format!("%CEL({expression})%")) }
}
