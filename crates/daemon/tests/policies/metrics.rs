//! Istio's standard metrics, scraped from stock Envoys.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Envoy, eventually};

use crate::sidecars::{PATIENCE, REVIEWS, Sidecars};

const FRONTEND: &str = "spiffe://cluster.local/ns/shop/sa/frontend";
const SERVER: &str = "spiffe://cluster.local/ns/shop/sa/reviews";

/// As Istio's installation has it.
const MESH_CONFIG: &str = "defaultProviders: {metrics: [prometheus]}";

/// A line of the exposition: labels and value.
type Row = (BTreeMap<String, String>, f64);

/// The rows of a metric.
async fn rows(envoy: &Envoy, metric: &str) -> Result<Vec<Row>> {
    let text = envoy.ask("/stats/prometheus").await?;
    let lines = text.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    lines.map(|line| row(line).with_context(|| format!("{metric}: {line}"))).collect()
}

/// Reads what follows the name and the bracket; no value of these tests has a quote in it.
fn row(line: &str) -> Option<Row> {
    let (labels, value) = line.rsplit_once("} ")?;
    let labels = labels.split("\",").map(|label| {
        let (name, value) = label.split_once("=\"")?;
        Some((name.to_owned(), value.trim_end_matches('"').to_owned()))
    });
    Some((labels.collect::<Option<_>>()?, value.parse().ok()?))
}

/// The one row of a metric that has these labels, once its value is as expected.
async fn row_with(envoy: &Envoy, metric: &str, labels: &[(&str, &str)], expected: f64) -> Result<Row> {
    eventually(metric, PATIENCE, async || {
        let rows = rows(envoy, metric).await?;
        let fits = |(own, _): &&Row| {
            labels.iter().all(|(name, value)| own.get(*name).is_some_and(|own| own == value))
        };
        let found =
            rows.iter().find(fits).with_context(|| format!("none with {labels:?} among {rows:#?}"))?;
        ensure!(found.1 >= expected, "{found:?}");
        Ok(found.clone())
    })
    .await
}

fn assert_labels(row: &Row, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(row.0.get(*name).map(String::as_str), Some(*value), "label {name} of {row:#?}");
    }
}

/// What both proxies say of both workloads.
const WORKLOADS: [(&str, &str); 13] = [
    ("source_workload", "frontend-v1"),
    ("source_workload_namespace", "shop"),
    ("source_principal", FRONTEND),
    ("source_canonical_service", "frontend"),
    ("source_canonical_revision", "v1"),
    ("source_cluster", "Kubernetes"),
    ("destination_workload", "reviews-v1"),
    ("destination_workload_namespace", "shop"),
    ("destination_principal", SERVER),
    ("destination_service", REVIEWS),
    ("destination_service_namespace", "shop"),
    ("destination_canonical_service", "reviews"),
    ("destination_cluster", "Kubernetes"),
];

#[tokio::test]
async fn requests_are_counted_at_both_ends_as_istio_counts_them() -> Result<()> {
    let sidecars = Sidecars::start("", MESH_CONFIG).await?;
    let echoed = sidecars.echoed("/items").await?;
    assert!(!echoed.headers.keys().any(|name| name.starts_with("x-envoy-peer")), "{echoed:?}");

    let request = [("response_code", "200")];
    let source = row_with(&sidecars.client.envoy, "istio_requests_total", &request, 1.0).await?;
    assert_labels(&source, &WORKLOADS);
    assert_labels(
        &source,
        &[
            ("reporter", "source"),
            ("request_protocol", "http"),
            ("response_flags", "-"),
            ("grpc_response_status", ""),
            ("connection_security_policy", "unknown"),
            ("source_app", "frontend"),
            ("source_version", "v1"),
        ],
    );
    let destination = row_with(&sidecars.server.envoy, "istio_requests_total", &request, 1.0).await?;
    assert_labels(&destination, &WORKLOADS);
    assert_labels(
        &destination,
        &[
            ("reporter", "destination"),
            ("request_protocol", "http"),
            ("connection_security_policy", "mutual_tls"),
            ("source_app", "frontend"),
            ("source_version", "v1"),
            ("destination_app", "reviews"),
            ("destination_version", "v1"),
        ],
    );
    for metric in [
        "istio_request_duration_milliseconds_count",
        "istio_request_bytes_count",
        "istio_response_bytes_count",
    ] {
        for (proxy, reporter) in [(&sidecars.client, "source"), (&sidecars.server, "destination")] {
            let row = row_with(&proxy.envoy, metric, &[("reporter", reporter)], 1.0).await?;
            assert_labels(&row, &WORKLOADS);
        }
    }
    let size = row_with(&sidecars.server.envoy, "istio_response_bytes_sum", &request, 100.0).await?;
    assert_labels(&size, &[("reporter", "destination")]);
    sidecars.check_accepted().await
}

#[tokio::test]
async fn requests_without_certificate_or_answer_are_counted_as_such() -> Result<()> {
    let mesh_config = format!("{MESH_CONFIG}\noutboundTrafficPolicy: {{mode: REGISTRY_ONLY}}");
    let sidecars = Sidecars::start("", &mesh_config).await?;
    sidecars.answered_to(|| sidecars.plain_request("/items"), 200).await?;
    let plain = [("connection_security_policy", "none")];
    let row = row_with(&sidecars.server.envoy, "istio_requests_total", &plain, 1.0).await?;
    let unknown = ["source_workload", "source_principal", "source_app", "source_workload_namespace"];
    assert_labels(&row, &unknown.map(|name| (name, "unknown")));
    assert_labels(&row, &[("source_canonical_revision", "latest"), ("destination_service", REVIEWS)]);

    let nowhere = || sidecars.request(&sidecars.client, "/items").host("nobody.example");
    sidecars.answered_to(nowhere, 502).await?;
    let lost = [("response_code", "502")];
    let row = row_with(&sidecars.client.envoy, "istio_requests_total", &lost, 1.0).await?;
    assert_labels(
        &row,
        &[
            ("reporter", "source"),
            ("destination_workload", "unknown"),
            ("destination_service_name", "BlackHoleCluster"),
        ],
    );
    Ok(())
}

#[tokio::test]
async fn connections_and_their_bytes_are_counted_at_both_ends() -> Result<()> {
    let sidecars = Sidecars::start("", MESH_CONFIG).await?;
    sidecars.answered_to(|| sidecars.opaque_request("/items"), 200).await?;
    for (proxy, reporter) in [(&sidecars.client, "source"), (&sidecars.server, "destination")] {
        let labels = [("reporter", reporter), ("request_protocol", "tcp")];
        for (metric, least) in [
            ("istio_tcp_connections_opened_total", 1.0),
            ("istio_tcp_connections_closed_total", 1.0),
            ("istio_tcp_sent_bytes_total", 50.0),
            ("istio_tcp_received_bytes_total", 20.0),
        ] {
            let row = row_with(&proxy.envoy, metric, &labels, least).await?;
            assert_labels(
                &row,
                &[
                    ("source_principal", FRONTEND),
                    ("source_workload_namespace", "shop"),
                    ("destination_principal", SERVER),
                    ("destination_workload", "reviews-v1"),
                    ("destination_service", REVIEWS),
                    ("response_flags", "-"),
                ],
            );
            assert!(!row.0.contains_key("response_code"), "{row:?}");
        }
    }
    sidecars.check_accepted().await
}

const OVERRIDES: &str = "
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata:
  name: shop
  namespace: shop
spec:
  metrics:
  - providers:
    - name: prometheus
    overrides:
    - match: {metric: REQUEST_COUNT}
      tagOverrides:
        request_method: {value: request.method}
        broken: {value: \"request.method +\"}
        source_app: {operation: REMOVE}
    - match: {metric: REQUEST_SIZE}
      disabled: true
";

#[tokio::test]
async fn metrics_differ_from_the_standard_as_telemetry_says() -> Result<()> {
    let sidecars = Sidecars::start(OVERRIDES, "").await?;
    sidecars.answered("/items", 200).await?;
    let envoy = &sidecars.server.envoy;
    let row = row_with(envoy, "istio_requests_total", &[("request_method", "GET")], 1.0).await?;
    assert!(!row.0.contains_key("source_app") && !row.0.contains_key("broken"), "{row:?}");
    row_with(envoy, "istio_response_bytes_count", &[("source_app", "frontend")], 1.0).await?;
    assert!(rows(envoy, "istio_request_bytes_count").await?.is_empty());
    sidecars.check_accepted().await
}
