//! What goes wrong for a proxy is counted when it begins, not while it lasts.

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::google::protobuf::{Struct, Value};
use canopus_testkit::Authority;
use canopus_xds::client::AdsClient;
use canopus_xds::session::Protocol;
use canopus_xds::types;

use crate::{FILE, Lab, follow};

const GATEWAY: &str = "router~10.0.0.9~gateway.demo~demo.svc.cluster.local";
const IDENTITY: &str = "spiffe://cluster.local/ns/demo/sa/gateway";

fn text(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

/// A gateway of the cluster that the Gateways of these tests are for.
fn gateway() -> Node {
    let labels = Struct { fields: [("istio".to_owned(), text("ingressgateway"))].into() };
    let labels = Value { kind: Some(Kind::StructValue(labels)) };
    let metadata = Struct {
        fields: [
            ("CLUSTER_ID".to_owned(), text("Kubernetes")),
            ("SERVICE_ACCOUNT".to_owned(), text("gateway")),
            ("LABELS".to_owned(), labels),
        ]
        .into(),
    };
    Node { id: GATEWAY.to_owned(), metadata: Some(metadata), ..Node::default() }
}

/// Two Gateways, of which the second speaks something else on the port of the first.
const GATEWAYS: &str = "
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: first, namespace: demo, creationTimestamp: 2026-01-01T00:00:00Z}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ['*']}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: second, namespace: demo, creationTimestamp: 2026-01-02T00:00:00Z}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 8080, name: tcp, protocol: TCP}, hosts: ['*']}]
";

#[tokio::test(flavor = "multi_thread")]
async fn server_of_a_gateway_that_is_left_out_counts_once_for_each_connection() -> Result<()> {
    let lab = Lab::open(GATEWAYS).await?;
    let rejected = "pilot_total_rejected_configs{name=\"demo/second\",type=\"gateway\"}";
    assert!(lab.mesh.metric(rejected).await.is_err(), "it is left out nowhere");
    for times in ["1", "2"] {
        let client = follow(AdsClient::new(lab.channel().await?, Protocol::Delta, gateway()));
        lab.counts_are(&[(rejected, times)]).await?;
        assert_eq!(lab.mesh.metric(rejected).await?, times, "it counts once");
        client.abort();
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_whose_server_is_no_service_is_counted() -> Result<()> {
    let mesh_config = "
extensionProviders: [{name: spans, zipkin: {service: zipkin.example.com, port: 9411}}]
defaultProviders: {tracing: [spans]}
";
    let lab = Lab::open_with("", mesh_config).await?;
    let sidecar = lab.sidecar().await?;
    lab.counts_are(&[("provider_lookup_cluster_failures{type=\"zipkin\"}", "1")]).await?;
    sidecar.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_without_service_is_counted_by_what_is_known_of_it() -> Result<()> {
    let reason = |reason: &str| format!("pilot_k8s_proxies_with_no_service_targets{{reason=\"{reason}\"}}");
    let (no_pod, no_service) = (reason("no_matching_metadata"), reason("no_matching_services"));
    let lab = Lab::open("").await?;
    let sidecar = lab.sidecar().await?;
    lab.counts_are(&[(&no_pod, "1")]).await?;
    assert!(lab.mesh.metric(&no_service).await.is_err(), "there is no pod");
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: demo, labels: {app: app}}
spec: {containers: [{name: app, image: app}]}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}
";
    lab.mesh.write(FILE, pod)?;
    lab.counts_are(&[(&no_service, "1"), (&no_pod, "1"), ("pilot_no_ip", "1")]).await?;
    let service = "
apiVersion: v1
kind: Service
metadata: {name: app, namespace: demo}
spec: {clusterIP: 10.1.0.1, selector: {app: app}, ports: [{name: http, port: 80}]}
";
    lab.mesh.write(FILE, &format!("{pod}---{service}"))?;
    lab.counts_are(&[("pilot_no_ip", "0"), (&no_service, "1"), (&no_pod, "1")]).await?;
    sidecar.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_that_is_missing_or_unreadable_is_counted() -> Result<()> {
    let errors = "pilot_sds_certificate_errors_total";
    let sound = Authority::new()?.server("shop.example.com")?;
    let secret = |certificate: &str| {
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        format!(
            "
apiVersion: v1
kind: Secret
metadata: {{name: shop, namespace: demo}}
type: kubernetes.io/tls
data: {{tls.crt: {}, tls.key: {}}}
",
            encoded(certificate),
            encoded(&sound.key)
        )
    };
    let lab = Lab::open(&secret(&sound.certificate)).await?;
    let mut client = AdsClient::new(lab.channel_as(IDENTITY).await?, Protocol::Delta, gateway());
    client.follower_mut().watch(types::SECRET, ["kubernetes://shop", "kubernetes://missing"]);
    let client = follow(client);
    lab.counts_are(&[(errors, "1")]).await?;
    lab.mesh.write(FILE, &secret("no certificate"))?;
    lab.counts_are(&[(errors, "2")]).await?;
    client.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn source_that_cannot_be_read_is_counted() -> Result<()> {
    let errors = "controller_sync_errors_total{cluster=\"Kubernetes\"}";
    let lab = Lab::open("").await?;
    assert!(lab.mesh.metric(errors).await.is_err(), "everything can be read");
    let (objects, elsewhere) = (lab.mesh.objects(), lab.mesh.objects().with_extension("gone"));
    std::fs::rename(&objects, &elsewhere)?;
    lab.counts_are(&[(errors, "1")]).await?;
    std::fs::rename(&elsewhere, &objects)?;
    Ok(())
}
