//! Requests that are handed on to a signer of the cluster, through a real API server.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::issue::Leaf;
use canopus_identity::key::KeyKind;
use canopus_identity::pem;
use canopus_identity::request::Request;
use canopus_identity::self_signed::Profile;
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use canopus_testkit::{Authority, Certified, KubeApi, channel, eventually, free_port};
use local_mesh::LocalMesh;
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::pki_types::UnixTime;
use serde_json::Value;
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "istiod.istio-system.svc";
const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

const OBJECTS: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cart, namespace: shop}}
";

/// Signs the next request that was approved, as a signer of the cluster does.
async fn sign_next(kube: &KubeApi, signer: &Bundle) -> Result<()> {
    let (name, request) = eventually("an approved request", PATIENCE, async || {
        let all: Value = serde_json::from_str(&kube.kubectl(&["get", "csr", "--output=json"]).await?)?;
        let item = all["items"].as_array().and_then(|items| items.first()).context("no request")?;
        ensure!(item["status"]["conditions"][0]["type"] == "Approved", "{}", item["status"]);
        ensure!(item["spec"]["signerName"] == "example.com/mesh", "{}", item["spec"]["signerName"]);
        let name = item["metadata"]["name"].as_str().context("no name")?.to_owned();
        let request = BASE64_STANDARD.decode(item["spec"]["request"].as_str().context("no request")?)?;
        Ok((name, String::from_utf8(request)?))
    })
    .await?;
    ensure!(name.starts_with("csr-workload-"), "{name}");
    let now = Duration::from_secs(UnixTime::now().as_secs());
    let der = signer.signer().issue(&Leaf {
        public_key: Request::from_pem(&request)?.public_key(),
        names: &[CART.to_owned()],
        has_common_name: false,
        not_before: UnixTime::since_unix_epoch(now - Duration::from_secs(60)),
        not_after: UnixTime::since_unix_epoch(now + Duration::from_secs(3600)),
    })?;
    let certificate = pem::encode("CERTIFICATE", &der)?;
    let patch = format!(r#"{{"status": {{"certificate": "{}"}}}}"#, BASE64_STANDARD.encode(certificate));
    kube.kubectl(&["patch", "csr", &name, "--subresource=status", "--type=merge", "-p", &patch]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_signer_of_the_cluster_signs_what_the_caller_may_have() -> Result<()> {
    let kube = KubeApi::start().await?;
    kube.apply(OBJECTS).await?;
    let profile = Profile { key: KeyKind::P256, organization: "signer".to_owned(), ..Profile::default() };
    let (certificate, key) = profile.create(UnixTime::now())?;
    let certificate = certificate.to_pem()?.into_bytes();
    let key = key.to_pem()?.as_bytes().to_vec().into();
    let parts = Parts { roots: certificate.clone(), certificate, key, ..Parts::default() };
    let signer = Bundle::new(&parts, UnixTime::now())?;

    let directory = tempfile::tempdir()?;
    let mesh_config = directory.path().join("mesh.yaml");
    let pem = signer.roots_pem().replace('\n', "\n    ");
    fs::write(
        &mesh_config,
        format!("caCertificates:\n- certSigners: [example.com/mesh]\n  pem: |\n    {pem}\n"),
    )?;
    let secure = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
    command.arg("discovery").arg("--kubeconfig").arg(kube.kubeconfig()).arg("--snapshot=");
    command.arg("--meshConfig").arg(&mesh_config).arg(format!("--secureGRPCAddr={secure}"));
    command.env("EXTERNAL_CA", "ISTIOD_RA_KUBERNETES_API").env("K8S_SIGNER", "example.com/mesh");
    let mesh = LocalMesh::launch(command, directory).await?;
    let secret: Value = serde_json::from_str(
        &kube
            .kubectl(&["get", "secret", "istio-ca-secret", "--namespace=istio-system", "--output=json"])
            .await?,
    )?;
    let roots = BASE64_STANDARD.decode(secret["data"]["root-cert.pem"].as_str().context("no root")?)?;
    let roots = String::from_utf8(roots)?;
    let token = kube.kubectl(&["create", "token", "cart", "--namespace=shop", "--audience=istio-ca"]).await?;

    let ask = async |uri: &str, own: Option<&Certified>| {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        let csr = params.serialize_request(&key)?.pem()?;
        let mut request = tonic::Request::new(IstioCertificateRequest { csr, ..Default::default() });
        if own.is_none() {
            request.metadata_mut().insert("authorization", format!("Bearer {}", token.trim()).parse()?);
        }
        let mut client = IstioCertificateServiceClient::new(channel(&roots, secure, NAME, own).await?);
        let answer = client.create_certificate(request).await;
        Ok::<_, anyhow::Error>(answer.map(|answer| (answer.into_inner().cert_chain, key.serialize_pem())))
    };
    let (answer, signed) = tokio::join!(ask(CART, None), sign_next(&kube, &signer));
    signed.with_context(|| mesh.log())?;
    let (chain, key) = answer?.with_context(|| mesh.log())?;
    assert_eq!(chain.len(), 2, "a leaf and the root of the signer");
    assert_eq!(chain[1].trim(), signer.roots_pem().trim());

    // The certificate is worth as much on the TLS port as one of the control plane's own authority: it renews itself.
    let own = Certified { certificate: chain[0].clone(), key };
    let (renewed, signed) = tokio::join!(ask(CART, Some(&own)), sign_next(&kube, &signer));
    signed.with_context(|| mesh.log())?;
    renewed?.with_context(|| mesh.log())?;
    let foretold = mesh.ask("/debug/certificates").await?;
    let entries = foretold["certificates"].as_array().context("no certificates")?;
    let is_signer = |one: &&Value| one["role"] == "root" && one["holder"] == "O=signer";
    assert!(entries.iter().any(|one| is_signer(&one)), "{foretold}");
    // Nobody else's word counts: another root of the same name signs nothing that is believed.
    let thief = Authority::new()?.workload(&[CART])?;
    assert!(ask(CART, Some(&thief)).await.is_err() || ask(CART, Some(&thief)).await?.is_err());
    let left = kube.kubectl(&["get", "csr", "--output=name"]).await?;
    assert_eq!(left.trim(), "", "requests are removed when they are signed");

    // Nothing is handed on for a name that is not the caller's.
    let refused = ask("spiffe://cluster.local/ns/istio-system/sa/istiod", None).await?.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("unable to validate SAN Identities in CSR"), "{refused}");
    let left = kube.kubectl(&["get", "csr", "--output=name"]).await?;
    assert_eq!(left.trim(), "");
    Ok(())
}
