//! Configuration over xDS, for other control planes.

use anyhow::{Context as _, Result};
use canopus_api::{Object, Options, decode_documents};
use canopus_base::tree::Limits;
use canopus_daemon::push::{Cause, Stamp};
use canopus_engine::Batch;
use canopus_mesh::world::{Objects, Origin};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::istio::mcp::v1alpha1::Resource;
use canopus_proto::istio::networking::v1alpha3::VirtualService;
use canopus_xds::client::{AdsClient, Update};
use canopus_xds::session::Protocol;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::{NODE, PATIENCE, SHOP, Server};

const READER: &str = "spiffe://cluster.local/ns/istio-system/sa/istiod";
const READER_NODE: &str = "sidecar~10.0.0.2~reader.istio-system~istio-system.svc.cluster.local";
const ROUTES: &str = "networking.istio.io/v1/VirtualService";

fn route(host: &str) -> Result<Object> {
    let document = format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, \
         metadata: {{name: route, namespace: shop}}, spec: {{hosts: [{host}]}}}}"
    );
    let mut decoded = decode_documents(&document, &Limits::default(), Options::watch()).into_iter();
    Ok(decoded.next().context("no object")??.value)
}

fn set(server: &Server, object: Object) {
    let origin = Origin::new("Kubernetes", object.key());
    let mut batch = Batch::new();
    batch.set::<Objects>(origin.clone(), object);
    server.dispatcher.apply(batch, Cause::objects(Stamp::now(), [origin]));
}

/// Somebody who wants all routes.
fn reader(channel: Channel, id: &str) -> AdsClient {
    let node = Node { id: id.to_owned(), ..Node::default() };
    let mut client = AdsClient::new(channel, Protocol::Delta, node);
    client.follower_mut().watch_everything(ROUTES);
    client
}

async fn next(client: &mut AdsClient) -> Result<Update, Status> {
    let next = timeout(PATIENCE, client.step()).await;
    let next = next.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))?;
    next.ok_or_else(|| Status::ok("the stream ended"))
}

/// The hosts of the only route.
fn hosts(update: &Update) -> Result<Vec<String>> {
    let only = update.resources.first().context("there is no route")?;
    assert_eq!((update.resources.len(), only.name.as_str()), (1, "shop/route"));
    let body = only.body.unpack::<Resource>()?.body.context("an empty envelope")?;
    Ok(body.unpack::<VirtualService>()?.hosts)
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_served_to_the_root_namespace_and_kept_up_to_date() -> Result<()> {
    let server = Server::start().await?;
    set(&server, route("one.example.com")?);
    let mut client = reader(server.channel(&[READER]).await?, READER_NODE);
    assert_eq!(hosts(&next(&mut client).await?)?, ["one.example.com"]);
    set(&server, route("other.example.com")?);
    assert_eq!(hosts(&next(&mut client).await?)?, ["other.example.com"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_nobody_elses_business() -> Result<()> {
    let server = Server::start().await?;
    set(&server, route("one.example.com")?);
    for (channel, code) in [
        (server.channel(&[SHOP]).await?, Code::PermissionDenied),
        (server.plain_channel().await?, Code::Unauthenticated),
    ] {
        let refused = next(&mut reader(channel, NODE)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    server.serves_others().await
}
