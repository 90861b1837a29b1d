use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::*;

/// A metadata server with these pages, which marks its answers if they are Google's.
async fn server(pages: &'static [(&'static str, &'static str)], is_google: bool) -> MetadataServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(move |request: Request<Incoming>| async move {
                let asked = request.uri().path_and_query().map_or("", |path| path.as_str());
                let page = pages.iter().find(|(path, _)| *path == asked);
                let mut response = Response::new(Full::new(Bytes::from_static(
                    page.map_or(b"", |(_, text)| text.as_bytes()),
                )));
                if page.is_none() {
                    *response.status_mut() = StatusCode::NOT_FOUND;
                }
                if is_google {
                    response.headers_mut().insert("metadata-flavor", HeaderValue::from_static("Google"));
                }
                Ok::<_, Infallible>(response)
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    MetadataServer(address)
}

#[tokio::test]
async fn amazon_is_recognised_and_asked() {
    let server = server(
        &[
            ("/latest/api/token", "t"),
            ("/latest/meta-data/iam/info", "{\"InstanceProfileArn\": \"arn:aws:iam::1\"}"),
            ("/latest/meta-data/placement/region", "eu-west-1"),
            ("/latest/meta-data/placement/availability-zone", "eu-west-1a"),
        ],
        false,
    )
    .await;
    let (name, platform) = ask(&PlatformSettings::default(), &server).await.unwrap();
    assert_eq!((name, platform.locality.zone.as_str()), ("AWS", "eu-west-1a"));
    assert_eq!(platform.metadata["aws_region"], "eu-west-1");
    assert!(!platform.metadata.contains_key("aws_instance_id"));
}

#[tokio::test]
async fn google_is_recognised_and_asked() {
    let server = server(
        &[
            ("/computeMetadata/v1/instance/id", "7"),
            ("/computeMetadata/v1/project/project-id", "p"),
            ("/computeMetadata/v1/instance/zone", "projects/1/zones/us-central1-f"),
            ("/computeMetadata/v1/instance/attributes/cluster-name", "c"),
        ],
        true,
    )
    .await;
    let (name, platform) = ask(&PlatformSettings::default(), &server).await.unwrap();
    assert_eq!((name, platform.locality.region.as_str()), ("GCP", "us-central1"));
    let url = "https://container.googleapis.com/v1/projects/p/locations/us-central1-f/clusters/c";
    assert_eq!(platform.metadata["gcp_gke_cluster_url"], url);
}

#[tokio::test]
async fn azure_is_asked_when_it_is_named() {
    let server = server(
        &[("/metadata/instance?api-version=2019-08-15", r#"{"compute": {"name": "vm", "location": "westeurope", "zone": "2", "tagsList": [{"name": "a", "value": "b"}]}}"#)],
        false,
    )
    .await;
    let settings = PlatformSettings { cloud: "azure".into(), ..Default::default() };
    let (_, platform) = ask(&settings, &server).await.unwrap();
    assert_eq!(platform.metadata["azure_a"], "b");
    assert_eq!((platform.locality.region.as_str(), platform.locality.zone.as_str()), ("westeurope", "2"));
}

#[tokio::test]
async fn nobody_is_asked_in_a_pod_or_where_there_is_no_cloud() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = MetadataServer(listener.local_addr().unwrap());
    for settings in [
        PlatformSettings { in_kubernetes: true, ..Default::default() },
        PlatformSettings { cloud: "none".into(), ..Default::default() },
    ] {
        assert!(ask(&settings, &server).await.is_none());
    }
    let accepted = timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err(), "somebody was asked");
}
