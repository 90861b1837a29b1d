//! What proxies report to a collector: access logs and spans in OpenTelemetry's protocol.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use canopus_proto::Message;
use canopus_proto::opentelemetry::proto::collector::logs::v1::ExportLogsServiceRequest;
use canopus_proto::opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
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

    /// The messages that were sent to a method.
    fn messages<M: Message + Default>(&self, path: &str) -> Vec<M> {
        let messages = self.messages.borrow();
        let own = messages.iter().filter(|(own, _)| own == path);
        own.filter_map(|(_, message)| M::decode(message.clone()).ok()).collect()
    }

    fn logs(&self) -> Vec<Record> {
        let resources = self.messages::<ExportLogsServiceRequest>(LOGS).into_iter();
        let scopes = resources.flat_map(|request| request.resource_logs).flat_map(|one| one.scope_logs);
        scopes
            .flat_map(|scope| scope.log_records)
            .map(|log| Record::new(log.body.map(plain).unwrap_or_default(), log.attributes))
            .collect()
    }

    fn spans(&self) -> Vec<Record> {
        let resources = self.messages::<ExportTraceServiceRequest>(TRACES).into_iter();
        let scopes = resources.flat_map(|request| request.resource_spans).flat_map(|one| one.scope_spans);
        scopes.flat_map(|scope| scope.spans).map(|span| Record::new(span.name, span.attributes)).collect()
    }
}

impl Record {
    fn new(text: String, attributes: Vec<KeyValue>) -> Self {
        let plain = |pair: KeyValue| (pair.key, pair.value.map(plain).unwrap_or_default());
        Self { text, attributes: attributes.into_iter().map(plain).collect() }
    }
}

fn plain(value: AnyValue) -> String {
    match value.value {
        Some(Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    }
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
