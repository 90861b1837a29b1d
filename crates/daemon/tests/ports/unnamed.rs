//! Types with one resource that has no name (NDS and PCDS), by delta.

use anyhow::{Context as _, Result};
use canopus_api::{Options as DecodeOptions, decode_documents};
use canopus_base::tree::Limits;
use canopus_daemon::push::Stamp;
use canopus_mesh::world::{Objects, Origin};
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_proto::istio::networking::nds::v1::NameTable;
use std::collections::BTreeMap;

use super::*;

fn wish(names: &[&str], held: &[(&str, &str)]) -> Wish {
    let owned = |text: &&str| (*text).to_owned();
    let held: BTreeMap<_, _> = held.iter().map(|(name, version)| (owned(name), owned(version))).collect();
    Wish::Change { subscribe: names.iter().map(owned).collect(), unsubscribe: Vec::new(), held }
}

fn first(type_url: &str, wish: Wish) -> Request {
    Request { type_url: type_url.to_owned(), node: node(NODE), nonce: String::new(), error: None, wish }
}

async fn open(server: &Server, request: Request) -> Result<AdsStream> {
    let channel = server.channel(&[SHOP]).await?;
    Ok(AdsStream::open(channel, Protocol::Delta, MetadataMap::new(), request).await?)
}

async fn next(stream: &mut AdsStream) -> Result<Update> {
    let update = timeout(PATIENCE, stream.next()).await.context("no answer")??.context("the stream ended")?;
    let nothing =
        Request { nonce: update.nonce.clone(), node: None, ..first(&update.type_url, wish(&[], &[])) };
    stream.send(nothing).await?;
    Ok(update)
}

fn add_service(server: &Server, name: &str) -> Result<()> {
    let document = format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{clusterIP: 10.1.0.1, ports: [{{name: http, port: 80}}]}}}}"
    );
    let mut decoded = decode_documents(&document, &Limits::default(), DecodeOptions::watch()).into_iter();
    let object = decoded.next().context("no object")??.value;
    let origin = Origin::new("Kubernetes", object.key());
    let mut batch = Batch::new();
    batch.set::<Objects>(origin.clone(), object);
    tokio::task::block_in_place(|| server.dispatcher.apply(batch, Cause::objects(Stamp::now(), [origin])));
    Ok(())
}

fn hosts(update: &Update) -> Result<Vec<String>> {
    assert_eq!((update.names(), &*update.removed), (vec![""], &[][..]), "{update:?}");
    let table = update.resources[0].body.unpack::<NameTable>()?.table;
    let mut hosts: Vec<String> = table.into_keys().collect();
    hosts.sort();
    Ok(hosts)
}

#[tokio::test(flavor = "multi_thread")]
async fn name_table_is_sent_whole_whenever_it_changes_and_never_removed() -> Result<()> {
    let server = Server::start().await?;
    add_service(&server, "cart")?;
    let mut stream = open(&server, first(types::NAME_TABLE, wish(&[], &[]))).await?;
    let answer = next(&mut stream).await?;
    assert_eq!(hosts(&answer)?, ["cart.shop.svc.cluster.local"]);
    add_service(&server, "till")?;
    let pushed = next(&mut stream).await?;
    assert_eq!(hosts(&pushed)?, ["cart.shop.svc.cluster.local", "till.shop.svc.cluster.local"]);

    // An agent that returns says what it has under the empty name, and gets nothing it has already.
    let version = pushed.resources[0].version.clone();
    let mut stream = open(&server, first(types::NAME_TABLE, wish(&[], &[("", &version)]))).await?;
    let answer = next(&mut stream).await?;
    assert!(answer.resources.is_empty() && answer.removed.is_empty(), "{answer:?}");
    add_service(&server, "safe")?;
    assert_eq!(hosts(&next(&mut stream).await?)?.len(), 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_configuration_has_the_roots_where_the_mesh_has_several() -> Result<()> {
    let flags = Arc::new(Flags::read(&[("ISTIO_MULTIROOT_MESH", "true")]));
    let server = Server::start_as(&flags, |mesh| mesh).await?;
    let mut stream = open(&server, first(types::PROXY_CONFIG, wish(&[], &[]))).await?;
    let answer = next(&mut stream).await?;
    assert_eq!((answer.names(), answer.removed.len()), (vec![""], 0));
    assert!(answer.resources[0].body.unpack::<ProxyConfig>()?.ca_certificates_pem.is_empty());

    let root = server.authority.root();
    let mut settings = MeshSettings { flags, ..MeshSettings::default() };
    settings.mesh.ca_certificates = vec![listed(&root)];
    let mut batch = Batch::new();
    batch.set::<Settings>((), settings);
    tokio::task::block_in_place(|| server.dispatcher.apply(batch, Cause::reason(Reason::Global)));
    let pushed = next(&mut stream).await?;
    assert_eq!((pushed.names(), pushed.removed.len()), (vec![""], 0));
    assert_eq!(pushed.resources[0].body.unpack::<ProxyConfig>()?.ca_certificates_pem.len(), 1);
    Ok(())
}

fn listed(root: &str) -> canopus_proto::istio::mesh::v1alpha1::mesh_config::CertificateData {
    use canopus_proto::istio::mesh::v1alpha1::mesh_config::certificate_data::CertificateData as Data;
    canopus_proto::istio::mesh::v1alpha1::mesh_config::CertificateData {
        certificate_data: Some(Data::Pem(root.to_owned())),
        ..Default::default()
    }
}
