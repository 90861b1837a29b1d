//! Decisions of others: AuthorizationPolicies of action CUSTOM, asked of a real gRPC server.

use anyhow::Result;
use bytes::Bytes;
use canopus_proto::Message as _;
use canopus_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use canopus_proto::envoy::service::auth::v3::check_response::HttpResponse;
use canopus_proto::envoy::service::auth::v3::{
    CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse,
};
use canopus_proto::envoy::r#type::v3::{HttpStatus, StatusCode};
use canopus_proto::google::rpc::Status;
use canopus_testkit::free_port;

use crate::grpc::GrpcServer;
use crate::sidecars::Sidecars;

const PERMISSION_DENIED: i32 = 7;

/// Lets requests through that say `x-let-me-in`, and tells the workload who it took the caller for.
fn decide(path: &str, request: Bytes) -> Bytes {
    assert_eq!(path, "/envoy.service.auth.v3.Authorization/Check");
    let request = CheckRequest::decode(request).expect("a request");
    let attributes = request.attributes.unwrap_or_default();
    let caller = attributes.source.unwrap_or_default().principal;
    let http = attributes.request.unwrap_or_default().http.unwrap_or_default();
    let response = if http.headers.contains_key("x-let-me-in") {
        let header = HeaderValue { key: "x-decided-for".into(), value: caller, ..Default::default() };
        let headers = vec![HeaderValueOption { header: Some(header), ..Default::default() }];
        CheckResponse {
            status: Some(Status::default()),
            http_response: Some(HttpResponse::OkResponse(OkHttpResponse { headers, ..Default::default() })),
            ..Default::default()
        }
    } else {
        let denied = DeniedHttpResponse {
            status: Some(HttpStatus { code: StatusCode::TooManyRequests as i32 }),
            body: "not today".into(),
            ..Default::default()
        };
        CheckResponse {
            status: Some(Status { code: PERMISSION_DENIED, ..Default::default() }),
            http_response: Some(HttpResponse::DeniedResponse(denied)),
            ..Default::default()
        }
    };
    response.encode_to_vec().into()
}

fn documents(port: u16, server: u16) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: authz
  namespace: shop
spec:
  hosts: [authz.shop.svc.cluster.local]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports:
  - {{number: {port}, name: grpc, protocol: GRPC, targetPort: {server}}}
  endpoints:
  - address: 127.0.0.1
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata:
  name: ask
  namespace: shop
spec:
  selector:
    matchLabels: {{app: reviews}}
  action: CUSTOM
  provider:
    name: authz
  rules:
  - to:
    - operation:
        paths: [/guarded*]
"
    )
}

fn mesh_config(port: u16) -> String {
    format!(
        "
extensionProviders:
- name: authz
  envoyExtAuthzGrpc:
    service: authz.shop.svc.cluster.local
    port: {port}
"
    )
}

#[tokio::test]
async fn external_authorizer_decides_about_the_paths_that_it_is_asked_about() -> Result<()> {
    let authorizer = GrpcServer::start(decide).await?;
    let port = free_port()?;
    let documents = documents(port, authorizer.address().port());
    let sidecars = Sidecars::start(&documents, &mesh_config(port)).await?;
    sidecars.answered("/free", 200).await?;
    let refused = sidecars.answered("/guarded", 429).await?;
    assert_eq!(refused.body, "not today");
    let admitted = || sidecars.request(&sidecars.client, "/guarded").header("x-let-me-in", "please");
    let answer = sidecars.answered_to(admitted, 200).await?;
    assert!(
        answer.body.contains(r#""x-decided-for":"spiffe://cluster.local/ns/shop/sa/frontend""#),
        "{}",
        answer.body
    );
    sidecars.check_accepted().await
}

#[tokio::test]
async fn everything_is_refused_when_the_authorizer_is_not_known() -> Result<()> {
    let port = free_port()?;
    let sidecars = Sidecars::start(
        &documents(port, port).replace("name: authz\n  rules", "name: nobody\n  rules"),
        &mesh_config(port),
    )
    .await?;
    sidecars.answered("/guarded", 403).await?;
    sidecars.check_accepted().await
}
