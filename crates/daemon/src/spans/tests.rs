use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderMap;
use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_proto::opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
use canopus_proto::opentelemetry::proto::common::v1::{KeyValue, any_value};
use canopus_proto::opentelemetry::proto::trace::v1 as message;
use http_body_util::BodyExt as _;
use tokio::net::TcpListener;

use super::*;

/// What a collector was sent: the path, the headers, the content.
type Sent = (String, HeaderMap, Bytes);

/// A collector that answers as one of gRPC would, and what it is sent.
async fn collector() -> (String, mpsc::UnboundedReceiver<Sent>) {
    let (sender, sent) = mpsc::unbounded_channel();
    let take = move |request: Request| {
        let sender = sender.clone();
        async move {
            let (head, body) = request.into_parts();
            let content = body.collect().await.unwrap().to_bytes();
            sender.send((head.uri.path().to_owned(), head.headers, content)).unwrap();
            [("content-type", "application/grpc"), ("grpc-status", "0")]
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(take)).await });
    (address, sent)
}

/// A tracer whose spans go to a collector at once.
fn tracer<const N: usize>(variables: [(&str, &str); N]) -> Arc<Tracer> {
    let (tracer, exporter) = Tracer::new(&Flags::read(&variables)).unwrap();
    let mut exporter = exporter.unwrap();
    tokio::spawn(async move { exporter.run().await });
    Arc::new(tracer)
}

fn plain(attributes: Vec<KeyValue>) -> Vec<(String, String)> {
    let plain = |pair: KeyValue| {
        let value = match pair.value.and_then(|value| value.value) {
            Some(any_value::Value::StringValue(text)) => text,
            Some(any_value::Value::IntValue(number)) => number.to_string(),
            Some(any_value::Value::BoolValue(truth)) => truth.to_string(),
            other => panic!("{other:?}"),
        };
        (pair.key, value)
    };
    attributes.into_iter().map(plain).collect()
}

/// The attributes of the process and the spans of a request.
fn decoded(request: Bytes) -> (Vec<(String, String)>, Vec<message::Span>) {
    let mut resource_spans = ExportTraceServiceRequest::decode(request).unwrap().resource_spans.remove(0);
    let resource = plain(resource_spans.resource.unwrap().attributes);
    (resource, resource_spans.scope_spans.remove(0).spans)
}

#[tokio::test]
async fn spans_of_a_revision_are_one_trace_over_grpc() {
    let (address, mut sent) = collector().await;
    let tracer = tracer([("OTEL_EXPORTER_OTLP_ENDPOINT", &address), ("OTEL_BSP_SCHEDULE_DELAY", "0")]);
    let start = UNIX_EPOCH + Duration::from_secs(1);
    let attributes_of =
        [("canopus.type", Attribute::Text("cds".into())), ("canopus.ok", Attribute::Truth(true))];
    tracer.record("generate", Within::Revision(7), start, attributes_of);
    let (path, headers, frame) = sent.recv().await.unwrap();
    assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    assert_eq!(headers["content-type"], "application/grpc");
    assert_eq!(frame[..5], [&[0], u32::try_from(frame.len() - 5).unwrap().to_be_bytes().as_slice()].concat());
    let (resource, mut spans) = decoded(frame.slice(5..));
    assert_eq!(resource, [("service.name".to_owned(), "canopusd".to_owned())]);
    assert_eq!(spans.len(), 1);
    let span = spans.remove(0);
    assert_eq!(span.name, "generate");
    assert_eq!(span.trace_id, tracer.trace("revision", 7).0.as_slice());
    assert_eq!(span.parent_span_id, tracer.root(7).0.as_slice());
    assert_eq!(span.start_time_unix_nano, 1_000_000_000);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(plain(span.attributes), [pair("canopus.type", "cds"), pair("canopus.ok", "true")]);
}

#[tokio::test]
async fn start_joins_the_trace_it_was_started_by_over_http() {
    let (address, mut sent) = collector().await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let tracer = tracer([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &address),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=mesh"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0"),
        ("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ]);
    tracer.started(SystemTime::now());
    let (path, headers, request) = sent.recv().await.unwrap();
    assert_eq!((path.as_str(), &headers["x-tenant"]), ("/v1/traces", &"mesh".parse().unwrap()));
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let (_, spans) = decoded(request);
    assert_eq!(spans[0].name, "start");
    assert_eq!(spans[0].trace_id, hexadecimal::<16>(trace).unwrap().as_slice());
    assert_eq!(spans[0].parent_span_id, hexadecimal::<8>("b7ad6b7169203331").unwrap().as_slice());
}

#[tokio::test]
async fn spans_nobody_takes_are_dropped() {
    let (queue, _waiting) = mpsc::channel(2);
    let tracer = Tracer::with(Some(queue), None);
    for _ in 0..5 {
        tracer.record("generate", Within::Itself, SystemTime::now(), []);
    }
    assert_eq!(tracer.dropped.load(Ordering::Relaxed), 3);
    let off = Tracer::off();
    off.record("generate", Within::Itself, SystemTime::now(), []);
    assert!(!off.is_on() && off.dropped.load(Ordering::Relaxed) == 0);
}

#[test]
fn parents_that_are_none_are_passed_over() {
    let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert!(parent(good).is_some());
    for text in
        ["", "00", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", &good.replace("0af7", "0agg")]
    {
        assert_eq!(parent(text), None, "{text}");
    }
    assert_eq!(parent("00-00000000000000000000000000000000-b7ad6b7169203331-01"), None);
}
