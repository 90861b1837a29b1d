//! Spans as OpenTelemetry's protocol has them.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_proto::opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
use canopus_proto::opentelemetry::proto::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use canopus_proto::opentelemetry::proto::resource::v1::Resource;
use canopus_proto::opentelemetry::proto::trace::v1::span::SpanKind;
use canopus_proto::opentelemetry::proto::trace::v1::{self as message, ResourceSpans, ScopeSpans};

use super::{Attribute, Span};

/// A request to export spans of a process with these attributes.
pub(super) fn request(resource: &[(String, String)], spans: &[Span]) -> Bytes {
    let attributes = resource.iter().map(|(key, value)| attribute(key, &Attribute::Text(value.clone())));
    let scope = InstrumentationScope {
        name: "canopus".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    };
    let resource_spans = ResourceSpans {
        resource: Some(Resource { attributes: attributes.collect() }),
        scope_spans: vec![ScopeSpans { scope: Some(scope), spans: spans.iter().map(span).collect() }],
    };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec().into()
}

fn span(span: &Span) -> message::Span {
    message::Span {
        trace_id: Bytes::copy_from_slice(&span.trace.0),
        span_id: Bytes::copy_from_slice(&span.id.0),
        parent_span_id: span.parent.map(|parent| Bytes::copy_from_slice(&parent.0)).unwrap_or_default(),
        name: span.name.to_owned(),
        kind: SpanKind::Internal as i32,
        start_time_unix_nano: nanoseconds(span.start),
        end_time_unix_nano: nanoseconds(span.end),
        attributes: span.attributes.iter().map(|(key, value)| attribute(key, value)).collect(),
    }
}

fn attribute(key: &str, value: &Attribute) -> KeyValue {
    let value = match value {
        Attribute::Text(text) => any_value::Value::StringValue(text.clone()),
        Attribute::Truth(truth) => any_value::Value::BoolValue(*truth),
        Attribute::Number(number) => any_value::Value::IntValue(i64::try_from(*number).unwrap_or(i64::MAX)),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
