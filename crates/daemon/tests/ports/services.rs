//! Health and reflection beside xDS, with and without TLS.

use anyhow::Result;
use canopus_runtime::ready::Readiness;
use canopus_testkit::grpc_call as call;
use tonic::Code;

use crate::{SHOP, Server};

#[tokio::test(flavor = "multi_thread")]
async fn health_is_told_to_anybody_on_either_port() -> Result<()> {
    let readiness = Readiness::new();
    let guard = readiness.register("something");
    let server = Server::start_with(|mesh| mesh.guarded(readiness, 0.0)).await?;
    let check = "/grpc.health.v1.Health/Check";
    assert_eq!(call(server.plain_channel().await?, check, &b""[..]).await?[..], *b"\x08\x02");
    guard.ready();
    assert_eq!(call(server.plain_channel().await?, check, &b""[..]).await?[..], *b"\x08\x01");
    assert_eq!(
        call(server.channel(&[]).await?, "/grpc.health.v1.Health/Watch", &b""[..]).await?[..],
        *b"\x08\x01"
    );
    let unknown = call(server.channel(&[]).await?, check, &b"\x0a\x01x"[..]).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    server.serves_others().await
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_described_in_either_version() -> Result<()> {
    let server = Server::start().await?;
    for path in [
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ] {
        let list = call(server.plain_channel().await?, path, &b"\x3a\x01*"[..]).await?;
        let listed = String::from_utf8_lossy(&list);
        assert!(listed.contains("envoy.service.discovery.v3.AggregatedDiscoveryService"), "{listed}");
        let file = &b"\x1a\x24envoy/service/discovery/v3/ads.proto"[..];
        let described = call(server.channel(&[SHOP]).await?, path, file).await?;
        assert!(String::from_utf8_lossy(&described).contains("StreamAggregatedResources"));
    }
    let nonsense = call(
        server.plain_channel().await?,
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        &b"\xff"[..],
    );
    assert_eq!(nonsense.await.unwrap_err().code(), Code::InvalidArgument);
    server.serves_others().await
}
