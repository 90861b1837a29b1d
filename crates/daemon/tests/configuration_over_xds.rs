//! Configuration that one control plane reads from another over xDS.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_testkit::{Process, eventually, free_port, http};
use local_mesh::LocalMesh;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

const CANOPUSD: &str = env!("CARGO_BIN_EXE_canopusd");

const FILE: &str = "mesh.yaml";

/// The name in the certificate of a source.
const NAME: &str = "istiod.istio-system.svc";

fn rule(name: &str, host: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{host: {host}}}\n"
    )
}

/// A control plane whose mesh configuration names these sources of configuration.
async fn start_reader(sources: &str) -> Result<LocalMesh> {
    let directory = tempfile::Builder::new().prefix("canopus-mesh-").tempdir()?;
    let mesh = directory.path().join("mesh");
    fs::write(&mesh, format!("configSources: {sources}"))?;
    let mut command = Command::new(CANOPUSD);
    command.arg("discovery").arg("--meshConfig").arg(&mesh).args(["--registries=Mock", "--snapshot="]);
    LocalMesh::launch(command, directory).await
}

/// The hosts of the DestinationRules that a control plane has, in order.
async fn hosts(mesh: &LocalMesh) -> Result<Vec<String>> {
    let all = mesh.ask("/debug/configz").await?;
    let rules = all.as_array().into_iter().flatten().filter(|one| one["kind"] == "DestinationRule");
    let mut hosts: Vec<String> =
        rules.map(|rule| rule["spec"]["host"].as_str().unwrap_or_default().to_owned()).collect();
    hosts.sort();
    Ok(hosts)
}

async fn has(mesh: &LocalMesh, expected: &[&str]) -> Result<()> {
    eventually("the configuration", PATIENCE, async || {
        let found = hosts(mesh).await?;
        ensure!(found == expected, "{found:?} and not {expected:?}:\n{}", mesh.log());
        Ok(())
    })
    .await
}

fn full(name: &str) -> String {
    format!("{name}.shop.svc.cluster.local")
}

/// A control plane that serves this configuration to whoever proves to be another one.
async fn source(documents: &str) -> Result<LocalMesh> {
    let source = LocalMesh::start_secure(Path::new(CANOPUSD), FILE, documents, &[]).await?;
    let (_, files, authority) = source.certified()?;
    let own = authority.workload(&["spiffe://cluster.local/ns/istio-system/sa/istiod"])?;
    fs::write(files.join("own.crt"), &own.certificate)?;
    fs::write(files.join("own.key"), &own.key)?;
    Ok(source)
}

/// A control plane as a source, if its certificate has this name.
fn named(source: &LocalMesh, name: &str) -> Result<String> {
    let (address, files, _) = source.certified()?;
    let path = files.display();
    Ok(format!(
        "{{address: 'xds://{address}', tlsSettings: {{mode: MUTUAL, subjectAltNames: [{name}], caCertificates: {path}/root.crt, \
         clientCertificate: {path}/own.crt, privateKey: {path}/own.key}}}}"
    ))
}

#[tokio::test]
async fn configuration_of_another_control_plane_is_followed_and_outlives_it() -> Result<()> {
    let (cart, pay) = (full("cart"), full("pay"));
    let mut source = source(&rule("cart", "cart")).await?;
    let files = tempfile::tempdir()?;
    fs::write(files.path().join("own.yaml"), rule("own", "own.example.com"))?;
    let sources = format!("[{}, {{address: 'fs://{}'}}]", named(&source, NAME)?, files.path().display());
    let reader = start_reader(&sources).await?;
    has(&reader, &[&cart, "own.example.com"]).await?;

    // What changes there changes here, and what goes there goes here.
    source.write(FILE, &format!("{}{}", rule("cart", "cart"), rule("pay", "pay")))?;
    has(&reader, &[&cart, "own.example.com", &pay]).await?;
    source.write(FILE, &rule("pay", "pay"))?;
    has(&reader, &["own.example.com", &pay]).await?;

    // A source that is away takes nothing with it, and is taken up where it is when it comes back.
    source.kill();
    eventually("the report", PATIENCE, async || {
        ensure!(reader.log().contains("cannot be followed"), "nothing is reported:\n{}", reader.log());
        Ok(())
    })
    .await?;
    has(&reader, &["own.example.com", &pay]).await?;
    source.write(FILE, &rule("cart", "cart"))?;
    source.restart().await?;
    has(&reader, &[&cart, "own.example.com"]).await
}

#[tokio::test]
async fn control_plane_is_not_ready_before_its_source_was_there() -> Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let directory = tempfile::tempdir()?;
    let mesh = directory.path().join("mesh");
    fs::write(&mesh, format!("configSources: [{{address: 'xds://{address}'}}]"))?;
    let status = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let mut command = Command::new(CANOPUSD);
    command.arg("discovery").arg("--meshConfig").arg(&mesh).args(["--registries=Mock", "--snapshot="]);
    command.arg(format!("--httpAddr={status}"));
    for closed in ["grpcAddr", "secureGRPCAddr", "httpsAddr", "monitoringAddr"] {
        command.arg(format!("--{closed}="));
    }
    let _process = Process::spawn("canopusd", &mut command, directory.path())?;
    let unready = eventually("an answer", PATIENCE, async || http::get(status, "/ready").await).await?;
    ensure!(unready.ok().is_err(), "it is ready though nothing is known");
    Ok(())
}

#[tokio::test]
async fn server_must_prove_its_name() -> Result<()> {
    let source = source(&rule("cart", "cart")).await?;
    let impostor = format!("[{}]", named(&source, "somebody.else.svc")?);
    let believed = timeout(Duration::from_secs(5), start_reader(&impostor)).await;
    ensure!(!matches!(believed, Ok(Ok(_))), "a server of another name was believed");
    Ok(())
}

#[tokio::test]
async fn client_that_proves_nothing_is_told_why_it_gets_nothing() -> Result<()> {
    let source = LocalMesh::start(Path::new(CANOPUSD), FILE, &rule("cart", "cart")).await?;
    let error = start_reader(&format!("[{{address: 'xds://{}'}}]", source.xds)).await.err();
    let text = error.map(|error| format!("{error:?}")).unwrap_or_default();
    ensure!(text.contains("requires an authenticated control-plane identity"), "{text}");
    Ok(())
}
