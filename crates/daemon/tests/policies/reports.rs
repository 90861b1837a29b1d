//! What proxies report to a collector: access logs and spans in OpenTelemetry's protocol.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_proto::opentelemetry::proto::common::v1::any_value::Value;
use canopus_proto::opentelemetry::proto::common::v1::{AnyValue, KeyValue};
use canopus_testkit::{eventually, free_port};
use tokio::sync::watch;

use crate::grpc::GrpcServer;
use crate::sidecars::{PATIENCE, REVIEWS, Sidecars};

const LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A collector that keeps what it is told.
struct Collector {
    server: GrpcServer,
    messages: watch::Receiver<Vec<(String, Bytes)>>,
}

/// A log record or a span: its text or name, and its attributes.
#[derive(Clone, Debug)]
struct Record {
    text: String,
    attributes: BTreeMap<String, String>,
}

impl Collector {
    async fn start() -> Result<Self> {
        let (sender, messages) = watch::channel(Vec::new());
        let sender = Arc::new(sender);
        let server = GrpcServer::start(move |path, message| {
            sender.send_modify(|messages: &mut Vec<_>| messages.push((path.to_owned(), message)));
            Bytes::new()
        });
        Ok(Self { server: server.await?, messages })
    }

    /// Everything of the messages of a method that has this text in field `text` and attributes in field `attributes`.
    fn records(&self, path: &str, text: u64, attributes: u64) -> Vec<Record> {
        let messages = self.messages.borrow();
        let of_method = messages.iter().filter(|(own, _)| own == path);
        // Each message holds resources, each of those scopes, and each of those records.
        let resources = of_method.flat_map(|(_, message)| children(message, 1));
        let scopes = resources.flat_map(|resource| children(resource, 2));
        let records = scopes.flat_map(|scope| children(scope, 2));
        records
            .map(|record| Record {
                text: children(record, text).map(described).collect(),
                attributes: children(record, attributes)
                    .filter_map(|pair| KeyValue::decode(pair).ok())
                    .map(|pair| (pair.key, pair.value.map(plain).unwrap_or_default()))
                    .collect(),
            })
            .collect()
    }

    fn logs(&self) -> Vec<Record> {
        self.records(LOGS, 5, 6)
    }

    fn spans(&self) -> Vec<Record> {
        self.records(TRACES, 5, 9)
    }
}

/// The body of a log record is a value, the name of a span is a text.
fn described(bytes: &[u8]) -> String {
    match AnyValue::decode(bytes) {
        Ok(value) if value.value.is_some() => plain(value),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn plain(value: AnyValue) -> String {
    match value.value {
        Some(Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
}

/// The sub-messages in a field of a message.
fn children(message: &[u8], field: u64) -> impl Iterator<Item = &[u8]> {
    let mut rest = message;
    std::iter::from_fn(move || {
        loop {
            let key = varint(&mut rest)?;
            let length = match key & 7 {
                0 => {
                    varint(&mut rest)?;
                    continue;
                }
                1 => 8,
                2 => usize::try_from(varint(&mut rest)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let (value, after) = rest.split_at_checked(length)?;
            rest = after;
            if key >> 3 == field && key & 7 == 2 {
                return Some(value);
            }
        }
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn documents(port: u16, collector: u16) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: collector
  namespace: shop
spec:
  hosts: [collector.shop.svc.cluster.local]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports:
  - {{number: {port}, name: grpc, protocol: GRPC, targetPort: {collector}}}
  endpoints:
  - address: 127.0.0.1
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata:
  name: reports
  namespace: shop
spec:
  accessLogging:
  - providers:
    - name: logs
    filter:
      expression: response.code >= 400
  tracing:
  - providers:
    - name: spans
    randomSamplingPercentage: 100
    customTags:
      colour:
        literal: {{value: green}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata:
  name: closed
  namespace: shop
spec:
  selector:
    matchLabels: {{app: reviews}}
  action: DENY
  rules:
  - to:
    - operation:
        paths: [/closed]
"
    )
}

fn mesh_config(port: u16) -> String {
    let collector = format!("{{service: collector.shop.svc.cluster.local, port: {port}");
    format!(
        "
enableTracing: true
extensionProviders:
- name: logs
  envoyOtelAls: {collector}, logFormat: {{text: \"%REQ(:PATH)% %RESPONSE_CODE_DETAILS%\", labels: {{code: \"%RESPONSE_CODE%\"}}}}}}
- name: spans
  opentelemetry: {collector}}}
"
    )
}

#[tokio::test]
async fn failures_are_logged_and_requests_are_traced_in_open_telemetry() -> Result<()> {
    let collector = Collector::start().await?;
    let port = free_port()?;
    let documents = documents(port, collector.server.address().port());
    let sidecars = Sidecars::start(&documents, &mesh_config(port)).await?;
    sidecars.answered("/open", 200).await?;
    sidecars.answered("/closed", 403).await?;

    let denied = "/closed rbac_access_denied_matched_policy[ns[shop]-policy[closed]-rule[0]]";
    let record = eventually("the log of a failure", PATIENCE, async || {
        let logs = collector.logs();
        logs.iter().find(|log| log.text == denied).cloned().with_context(|| format!("only {logs:?}"))
    })
    .await?;
    assert_eq!(record.attributes["code"], "403");
    assert!(collector.logs().iter().all(|log| !log.text.starts_with("/open")), "{:?}", collector.logs());

    eventually("spans of both proxies", PATIENCE, async || {
        let spans = collector.spans();
        for side in ["ingress", "egress"] {
            let name = spans.iter().find(|span| span.text.starts_with(side) || span.text.contains(REVIEWS));
            let span = name.with_context(|| format!("no {side} among {spans:?}"))?;
            ensure!(span.attributes.get("colour").is_some_and(|colour| colour == "green"), "{span:?}");
        }
        let codes: Vec<_> = spans.iter().filter_map(|span| span.attributes.get("http.status_code")).collect();
        ensure!(
            codes.iter().any(|code| *code == "403") && codes.iter().any(|code| *code == "200"),
            "{codes:?}"
        );
        ensure!(spans.len() >= 4, "{spans:?}");
        Ok(())
    })
    .await?;
    sidecars.check_accepted().await
}

/// What is to be logged here cannot be told.
const UNREADABLE: &str = "
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata:
  name: unreadable
  namespace: shop
spec:
  accessLogging:
  - providers:
    - name: envoy
    filter:
      expression: \"response.code >=\"
";

#[tokio::test]
async fn filter_that_cannot_be_read_leaves_the_log_out_and_the_listener_in() -> Result<()> {
    let sidecars = Sidecars::start(UNREADABLE, "").await?;
    sidecars.answered("/items", 200).await?;
    assert!(!sidecars.server.envoy.log().contains("/items"), "nothing is logged");
    sidecars.check_accepted().await
}
