//! The certificate of the TLS ports is exchanged while streams run.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{Authority, Certified, channel, eventually};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::plane::{self, CART, NAME, Plane, has_cluster_of, service};

/// Files are looked at every five seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The certificate that a port shows.
async fn shown(authority: &Authority, address: SocketAddr) -> Result<CertificateDer<'static>> {
    let connector = TlsConnector::from(Arc::new(authority.client(None, &["h2"])?));
    let stream = TcpStream::connect(address).await?;
    let stream = connector.connect(ServerName::try_from(NAME)?, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().context("no certificate")?;
    Ok(chain.first().context("an empty chain")?.clone().into_owned())
}

async fn shows(plane: &Plane, authority: &Authority, expected: &Certified) -> Result<()> {
    let expected = CertificateDer::from_pem_slice(expected.certificate.as_bytes())?;
    for address in [plane.secure, plane.webhooks] {
        eventually("the certificate of a port", PATIENCE, async || {
            ensure!(shown(authority, address).await? == expected, "{address} shows another certificate");
            Ok(())
        })
        .await
        .with_context(|| plane.mesh.log())?;
    }
    Ok(())
}

/// Replaces certificate and key as a mounted Secret does: each file at once, but not both together.
fn mount(directory: &Path, certified: &Certified) -> Result<()> {
    for (name, text) in [("tls.crt", &certified.certificate), ("tls.key", &certified.key)] {
        fs::write(directory.join("scratch"), text)?;
        fs::rename(directory.join("scratch"), directory.join(name))?;
    }
    Ok(())
}

/// Starts a control plane, with its files where pods have them mounted, or else where flags say.
async fn start(authority: &Authority, first: &Certified, mounted: bool) -> Result<Plane> {
    Plane::start_with(|directory, command| {
        let mounts = directory.join("var/run/secrets/istiod");
        fs::create_dir_all(mounts.join("tls"))?;
        fs::create_dir_all(mounts.join("ca"))?;
        fs::write(mounts.join("ca/root-cert.pem"), authority.root())?;
        mount(&mounts.join("tls"), first)?;
        if !mounted {
            // What is mounted does not count where flags name files.
            let named = directory.join("named");
            fs::rename(mounts.join("tls"), &named)?;
            fs::create_dir(mounts.join("tls"))?;
            mount(&mounts.join("tls"), &Authority::new()?.server(NAME)?)?;
            command.arg(format!("--tlsCertFile={}", named.join("tls.crt").display()));
            command.arg(format!("--tlsKeyFile={}", named.join("tls.key").display()));
            command.arg(format!("--caCertFile={}", mounts.join("ca/root-cert.pem").display()));
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_go_on_when_the_certificate_of_the_ports_is_exchanged() -> Result<()> {
    let authority = Authority::new()?;
    for mounted in [false, true] {
        let (first, second) = (authority.server(NAME)?, authority.server(NAME)?);
        let plane = start(&authority, &first, mounted).await?;
        let at = if mounted { "var/run/secrets/istiod/tls" } else { "named" };
        let files = plane.mesh.objects().with_file_name(at);
        shows(&plane, &authority, &first).await?;

        let own = authority.workload(&[CART])?;
        let mut proxy = plane::proxy(channel(&authority.root(), plane.secure, NAME, Some(&own)).await?);
        plane.mesh.write("one.yaml", &service("one.example.com"))?;
        has_cluster_of(&mut proxy, "one.example.com").await?;

        mount(&files, &second)?;
        shows(&plane, &authority, &second).await?;
        // The stream from before gets what changes after.
        plane.mesh.write("two.yaml", &service("two.example.com"))?;
        has_cluster_of(&mut proxy, "two.example.com").await?;

        // What cannot be used changes nothing, and the log says why without what is in the files.
        fs::write(
            files.join("tls.key"),
            "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n",
        )?;
        eventually("the refusal in the log", PATIENCE, async || {
            ensure!(plane.mesh.log().contains("the certificate stays as it was"), "{}", plane.mesh.log());
            Ok(())
        })
        .await?;
        ensure!(!plane.mesh.log().contains("c2VjcmV0"), "a key was logged");
        shows(&plane, &authority, &second).await?;
        plane.mesh.write("three.yaml", &service("three.example.com"))?;
        has_cluster_of(&mut proxy, "three.example.com").await?;
    }
    Ok(())
}
