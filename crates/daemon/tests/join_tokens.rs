//! A control plane without Kubernetes is an authority, and a join token is what a plain machine needs for a certificate.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_identity::token::{self, Grant};
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use canopus_testkit::{Certified, channel, free_port, http};
use local_mesh::LocalMesh;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::UnixTime;
use tonic::{Code, Status};

const NAME: &str = "istiod.istio-system.svc";
const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

struct Authority {
    mesh: LocalMesh,
    secure: SocketAddr,
}

impl Authority {
    async fn start() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-join-").tempdir()?;
        let objects = directory.path().join("objects");
        fs::create_dir(&objects)?;
        let secure = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
        command.arg("discovery").arg("--configDir").arg(&objects);
        command.args(["--registries=Mock", "--snapshot="]).arg(format!("--secureGRPCAddr={secure}"));
        Ok(Self { mesh: LocalMesh::launch(command, directory).await?, secure })
    }

    /// The directory of the authority.
    fn directory(&self) -> PathBuf {
        self.mesh.objects().with_file_name("objects-ca")
    }

    fn roots(&self) -> Result<String> {
        let path = self.directory().join("current/root-cert.pem");
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    async fn token(&self, single_use: bool) -> Result<String> {
        let issuer = token::open_directory(&self.directory(), "istio-ca").await?;
        let grant = Grant {
            namespace: "shop".to_owned(),
            service_account: "cart".to_owned(),
            lifetime: Duration::from_secs(600),
            single_use,
        };
        Ok(issuer.issue(&grant, UnixTime::now())?)
    }

    /// Asks for a certificate; the chain and the key.
    async fn certify(&self, token: Option<&str>, own: Option<&Certified>) -> Result<Certified, Status> {
        let failed = |error: anyhow::Error| Status::internal(format!("{error:#}"));
        let roots = self.roots().map_err(failed)?;
        let channel = channel(&roots, self.secure, NAME, own).await.map_err(failed)?;
        let key = KeyPair::generate().map_err(|error| Status::internal(error.to_string()))?;
        // Whatever the request says of names, the caller's own are certified.
        let params = CertificateParams::new(["thief.example.com".to_owned()]).expect("it is a name");
        let csr = params.serialize_request(&key).and_then(|csr| csr.pem()).expect("it can be signed");
        let mut request = tonic::Request::new(IstioCertificateRequest { csr, ..Default::default() });
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("tokens are ASCII");
            request.metadata_mut().insert("authorization", value);
        }
        let answer = IstioCertificateServiceClient::new(channel).create_certificate(request).await?;
        let chain = answer.into_inner().cert_chain;
        Ok(Certified { certificate: chain.concat(), key: key.serialize_pem() })
    }
}

fn openssl(arguments: &[&str]) -> Result<String> {
    let output = Command::new("openssl").args(arguments).output().context("openssl")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "openssl {arguments:?}: {}", text(&output.stderr));
    Ok(text(&output.stdout))
}

fn write(directory: &Path, name: &str, text: &str) -> Result<String> {
    let path = directory.join(name);
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn join_token_is_exchanged_for_a_certificate_that_renews_itself() -> Result<()> {
    let authority = Authority::start().await?;
    let token = authority.token(true).await?;
    let own = authority.certify(Some(&token), None).await?;

    let directory = tempfile::tempdir()?;
    let leaf = write(directory.path(), "leaf.pem", &own.certificate)?;
    let roots = write(directory.path(), "roots.pem", &authority.roots()?)?;
    openssl(&["verify", "-CAfile", &roots, &leaf])?;
    let text = openssl(&["x509", "-in", &leaf, "-noout", "-ext", "subjectAltName"])?;
    assert!(text.contains(CART) && !text.contains("thief"), "{text}");

    // Used up; the certificate is what counts from now on.
    let again = authority.certify(Some(&token), None).await.unwrap_err();
    assert_eq!((again.code(), again.message()), (Code::Unauthenticated, "request authenticate failure"));
    authority.certify(None, Some(&own)).await?;
    let nobody = authority.certify(None, None).await.unwrap_err();
    assert_eq!(nobody.code(), Code::Unauthenticated);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn join_token_is_refused_when_it_is_forged_or_was_used_before_a_restart() -> Result<()> {
    let mut authority = Authority::start().await?;
    let once = authority.token(true).await?;
    authority.certify(Some(&once), None).await?;
    authority.mesh.restart().await?;
    assert_eq!(authority.certify(Some(&once), None).await.unwrap_err().code(), Code::Unauthenticated);
    let reusable = authority.token(false).await?;
    authority.certify(Some(&reusable), None).await?;
    let (head, signature) = reusable.rsplit_once('.').context("three parts")?;
    for forged in [format!("{head}."), format!("{head}.{}", &signature[1..]), "a.b.c".to_owned()] {
        assert_eq!(authority.certify(Some(&forged), None).await.unwrap_err().code(), Code::Unauthenticated);
    }
    let keys = authority.mesh.ask("/openid/v1/jwks").await?;
    assert_eq!(keys["keys"][0]["crv"], "P-256");
    let bundle = authority.mesh.ask("/spiffe/bundle").await?;
    assert_eq!(bundle["keys"][0]["use"], "x509-svid");
    Ok(())
}

/// Everything the process prints and serves, with the keys of its authority at hand.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_the_authority_appear_in_nothing_that_is_printed_or_served() -> Result<()> {
    let authority = Authority::start().await?;
    let token = authority.token(false).await?;
    authority.certify(Some(&token), None).await?;
    let mut said = authority.mesh.log();
    let names = authority.mesh.ask("/debug/list").await?;
    let listed = names.as_array().context("a list")?.iter().filter_map(|name| name.as_str());
    let own = ["certificates", "diagnostics", "ledger", "quarantine", "world", "wastez", "convergence"];
    for endpoint in listed.chain(own) {
        let path = format!("/debug/{}", endpoint.trim_start_matches("/debug/"));
        said.push_str(&http::get(authority.mesh.http, &path).await?.body);
    }
    for path in ["/openid/v1/jwks", "/spiffe/bundle", "/ready"] {
        said.push_str(&http::get(authority.mesh.http, path).await?.body);
    }
    ensure!(said.len() > 5000, "little was said: {}", said.len());
    // Keys contain their public half, which certificates and key sets have as well. Of an RSA key of 2048 bits the first six
    // lines have the modulus; of a key on P-256 the first line has all that is secret.
    let key_files = [("current/ca-key.pem", 6, usize::MAX), ("join-tokens/current/token-key.pem", 0, 1)];
    for (file, public, secret) in key_files {
        let pem = fs::read_to_string(authority.directory().join(file))?;
        let lines = pem.lines().filter(|line| !line.starts_with("-----"));
        let lines: Vec<&str> = lines.skip(public).take(secret).collect();
        ensure!(!lines.is_empty(), "{file} has nothing secret");
        for line in lines {
            ensure!(!said.contains(line), "a line of {file} was printed or served");
        }
    }
    ensure!(!said.contains("PRIVATE KEY"), "a key was printed or served");
    ensure!(!said.contains(&token), "a token was printed or served");
    Ok(())
}
