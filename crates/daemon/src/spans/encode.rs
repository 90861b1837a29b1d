//! Spans as OpenTelemetry's protocol has them.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::{Attribute, Span};
use crate::wire::Writer;

/// Spans of work inside a process.
const INTERNAL: u64 = 1;

/// A request to export spans of a process with these attributes.
pub(super) fn request(resource: &[(String, String)], spans: &[Span]) -> Bytes {
    let resource = resource.iter().fold(Writer::new(), |all, (key, value)| {
        all.bytes(1, attribute(key, &Attribute::Text(value.clone())))
    });
    let scope = Writer::new().bytes(1, "canopus").bytes(2, env!("CARGO_PKG_VERSION"));
    let scope_spans = spans.iter().fold(Writer::new().bytes(1, scope), |all, one| all.bytes(2, span(one)));
    let resource_spans = Writer::new().bytes(1, resource).bytes(2, scope_spans);
    Writer::new().bytes(1, resource_spans).finish()
}

fn span(span: &Span) -> Writer {
    let mut message = Writer::new().bytes(1, span.trace.0).bytes(2, span.id.0);
    if let Some(parent) = span.parent {
        message = message.bytes(4, parent.0);
    }
    message = message
        .bytes(5, span.name)
        .number(6, INTERNAL)
        .fixed64(7, nanoseconds(span.start))
        .fixed64(8, nanoseconds(span.end));
    span.attributes.iter().fold(message, |all, (key, value)| all.bytes(9, attribute(key, value)))
}

fn attribute(key: &str, value: &Attribute) -> Writer {
    let value = match value {
        Attribute::Text(text) => Writer::new().bytes(1, text),
        Attribute::Truth(truth) => Writer::new().number(2, u64::from(*truth)),
        Attribute::Number(number) => Writer::new().number(3, *number),
    };
    Writer::new().bytes(1, key).bytes(2, value)
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
