//! gRPC calls, with and without an end.

use anyhow::{Result, ensure};
use canopus_testkit::{eventually, grpc_call};

use crate::{Lab, PATIENCE};

const DELTA: &str = "grpc_method=\"DeltaAggregatedResources\",\
    grpc_service=\"envoy.service.discovery.v3.AggregatedDiscoveryService\",grpc_type=\"bidi_stream\"";
const CHECK: &str = "grpc_method=\"Check\",grpc_service=\"grpc.health.v1.Health\",grpc_type=\"unary\"";

#[tokio::test(flavor = "multi_thread")]
async fn stream_is_counted_when_it_begins_while_it_lasts_and_when_the_client_goes() -> Result<()> {
    let lab = Lab::open("").await?;
    let sidecar = lab.sidecar().await?;
    lab.counts_are(&[(&format!("grpc_server_started_total{{{DELTA}}}"), "1")]).await?;
    eventually("messages in both directions", PATIENCE, async || {
        // Two requests, and as many acknowledgements of their answers.
        for (name, least) in [("received", 4.0), ("sent", 2.0)] {
            let counted = lab.mesh.metric(&format!("grpc_server_msg_{name}_total{{{DELTA}}}")).await?;
            ensure!(counted.parse::<f64>()? >= least, "{counted} {name}");
        }
        Ok(())
    })
    .await?;
    let largest: f64 = lab.mesh.metric("pilot_xds_recv_max").await?.parse()?;
    assert!((50.0..10_000.0).contains(&largest), "{largest}");
    let handled = format!("grpc_server_handled_total{{grpc_code=\"Canceled\",{DELTA}}}");
    assert!(lab.mesh.metric(&handled).await.is_err(), "nothing has ended");
    sidecar.abort();
    lab.counts_are(&[(&handled, "1"), (&format!("grpc_server_handling_seconds_count{{{DELTA}}}"), "1")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn call_with_one_answer_is_counted_by_how_it_ends() -> Result<()> {
    let lab = Lab::open("").await?;
    let path = "/grpc.health.v1.Health/Check";
    grpc_call(lab.channel().await?, path, &b""[..]).await?;
    let unknown = grpc_call(lab.channel().await?, path, &b"\x0a\x01x"[..]).await;
    assert!(unknown.is_err(), "there is no such service");
    lab.counts_are(&[
        (&format!("grpc_server_started_total{{{CHECK}}}"), "2"),
        (&format!("grpc_server_msg_received_total{{{CHECK}}}"), "2"),
        (&format!("grpc_server_msg_sent_total{{{CHECK}}}"), "1"),
        (&format!("grpc_server_handled_total{{grpc_code=\"OK\",{CHECK}}}"), "1"),
        (&format!("grpc_server_handled_total{{grpc_code=\"NotFound\",{CHECK}}}"), "1"),
        (&format!("grpc_server_handling_seconds_count{{{CHECK}}}"), "2"),
    ])
    .await
}
