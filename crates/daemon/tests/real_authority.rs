//! The authority of two control planes on a real API server: a root that rotates while one of them dies, a plugged-in CA that
//! is read over the API, and the TLS ports' certificate from a signer of the cluster.

#![allow(dead_code, reason = "the local mesh is shared with others")]

#[path = "../support/local_mesh.rs"]
mod local_mesh;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_controllers::SecretStore;
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::certificate::Certificate;
use canopus_identity::issue::Leaf;
use canopus_identity::key::KeyKind;
use canopus_identity::pem;
use canopus_identity::request::Request;
use canopus_identity::rotation::{self, Phase, Policy, State};
use canopus_identity::self_signed::Profile;
use canopus_identity::store::CA_SECRET;
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_proto::istio::v1::auth::istio_certificate_service_client::IstioCertificateServiceClient;
use canopus_sources::kubernetes::{Access, Cluster, RateLimit};
use canopus_testkit::{KubeApi, PluggedAuthority, channel, eventually, free_port, http};
use local_mesh::LocalMesh;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::UnixTime;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);
const NAME: &str = "istiod.istio-system.svc";

const OBJECTS: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cart, namespace: shop}}
";

/// So short that a rotation is seen, as far as the bounds of the parts go.
const HASTE: [(&str, &str); 5] = [
    ("CANOPUS_ROOT_STALENESS", "20s"),
    ("CANOPUS_ROOT_PROPAGATION", "5s"),
    ("DEFAULT_WORKLOAD_CERT_TTL", "20s"),
    ("MAX_WORKLOAD_CERT_TTL", "20s"),
    ("CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", "10s"),
];

struct Replica {
    name: &'static str,
    mesh: LocalMesh,
    secure: SocketAddr,
}

impl Replica {
    async fn start(kube: &KubeApi, name: &'static str, environment: &[(&str, &str)]) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("canopus-authority-").tempdir()?;
        let mesh_config = directory.path().join("mesh.yaml");
        fs::write(
            &mesh_config,
            "certificates: [{secretName: dns.galley, dnsNames: [galley.istio-system.svc]}]\n",
        )?;
        let secure = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
        command.arg("discovery").arg("--kubeconfig").arg(kube.kubeconfig()).arg("--snapshot=");
        command.arg("--meshConfig").arg(mesh_config).arg(format!("--secureGRPCAddr={secure}"));
        command.env("POD_NAME", name).envs(environment.iter().copied()).current_dir(directory.path());
        Ok(Self { name, mesh: LocalMesh::launch(command, directory).await?, secure })
    }

    /// Asks for a certificate; the chain.
    async fn certify(&self, roots: &str, token: &str) -> Result<Vec<String>> {
        let key = KeyPair::generate()?;
        let csr = CertificateParams::default().serialize_request(&key)?.pem()?;
        let mut request = tonic::Request::new(IstioCertificateRequest { csr, ..Default::default() });
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
        let channel = channel(roots, self.secure, NAME, None).await?;
        let answer = IstioCertificateServiceClient::new(channel).create_certificate(request).await?;
        Ok(answer.into_inner().cert_chain)
    }
}

async fn get(kube: &KubeApi, arguments: &[&str]) -> Result<Value> {
    let all = [&["get", "--output=json", "--namespace=istio-system"], arguments].concat();
    Ok(serde_json::from_str(&kube.kubectl(&all).await?)?)
}

/// What is handed out: the roots in a namespace's ConfigMap.
async fn handed_out(kube: &KubeApi) -> Result<String> {
    eventually("the roots of a namespace", PATIENCE, async || {
        let map =
            kube.kubectl(&["get", "cm", "istio-ca-root-cert", "--namespace=shop", "--output=json"]).await?;
        let map: Value = serde_json::from_str(&map)?;
        Ok(map["data"]["root-cert.pem"].as_str().context("no root")?.to_owned())
    })
    .await
}

async fn store(kube: &KubeApi) -> Result<SecretStore> {
    let access = Access::Kubeconfig(kube.kubeconfig().to_owned());
    Ok(SecretStore::new(Cluster::connect(&access, RateLimit::default()).await?, "istio-system", CA_SECRET))
}

async fn state(store: &SecretStore) -> Result<State> {
    let stored = rotation::inspect(store, &Policy::default(), UnixTime::now()).await?;
    Ok(stored.context("no root is stored")?.state)
}

/// A certificate of whichever replica answers; how long that took. It verifies by what is handed out.
async fn obtain(replicas: &[Replica], kube: &KubeApi, token: &str) -> Result<Duration> {
    let began = Instant::now();
    loop {
        let roots = handed_out(kube).await?;
        for replica in replicas {
            let Ok(chain) = replica.certify(&roots, token).await else { continue };
            let leaf = Certificate::from_pem(chain[0].as_bytes())?;
            let roots = Certificate::all_from_pem(handed_out(kube).await?.as_bytes())?;
            let anchors = roots.iter().map(Certificate::der);
            canopus_identity::bundle::verify(leaf.der(), &[], anchors, UnixTime::now())
                .with_context(|| format!("a certificate of {} does not verify", replica.name))?;
            return Ok(began.elapsed());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "nobody signs: {}",
            replicas.iter().map(|one| one.mesh.log()).collect::<String>()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_root_rotates_once_and_certificates_are_issued_all_the_time_when_the_leader_is_killed()
-> Result<()> {
    let kube = KubeApi::start().await?;
    kube.apply(OBJECTS).await?;
    let mut replicas =
        vec![Replica::start(&kube, "one", &HASTE).await?, Replica::start(&kube, "two", &HASTE).await?];
    let token = kube.kubectl(&["create", "token", "cart", "--namespace=shop", "--audience=istio-ca"]).await?;
    let token = token.trim();
    obtain(&replicas, &kube, token).await?;
    let galley = eventually("the certificate for names", PATIENCE, async || {
        let secret = get(&kube, &["secret", "dns.galley"]).await?;
        Ok(secret["data"]["cert-chain.pem"].as_str().context("no chain")?.to_owned())
    })
    .await?;

    // An operator asks, with the rights to write the Secret and nothing else.
    let stored = store(&kube).await?;
    let first = state(&stored).await?;
    ensure!(rotation::request(&stored, &Policy::default(), UnixTime::now()).await?, "somebody has asked");
    ensure!(!rotation::request(&stored, &Policy::default(), UnixTime::now()).await?, "it was forgotten");
    let distributing = eventually("a root that is distributed", PATIENCE, async || {
        let state = state(&stored).await?;
        ensure!(matches!(state.phase, Phase::Distributing { .. }), "{state:?}");
        Ok(state)
    })
    .await?;
    assert_eq!((distributing.steps, distributing.roots.len()), (first.steps + 2, 2), "one rotation began");
    eventually("both roots in a namespace", PATIENCE, async || {
        let roots = handed_out(&kube).await?;
        ensure!(roots.matches("BEGIN CERTIFICATE").count() == 2, "{roots}");
        Ok(())
    })
    .await?;

    // Kill the one that leads. Every certificate that is asked for in the meantime is issued, by the other one.
    let leader = get(&kube, &["lease", "canopus-dns-certificates-leader-default"]).await?;
    let leader = leader["spec"]["holderIdentity"].as_str().context("nobody leads")?.to_owned();
    let before = get(&kube, &["secret", "dns.galley"]).await?["metadata"]["resourceVersion"].clone();
    replicas.retain(|replica| replica.name != leader);
    assert_eq!(replicas.len(), 1, "{leader} is one of the replicas");
    let (mut longest, mut issued) = (Duration::ZERO, 0);
    let until = Instant::now() + Duration::from_secs(240);
    let mut phases = Vec::new();
    let retiring = loop {
        longest = longest.max(obtain(&replicas, &kube, token).await?);
        issued += 1;
        let state = state(&stored).await?;
        if phases.last() != Some(&state.phase.label()) {
            phases.push(state.phase.label());
        }
        if matches!(state.phase, Phase::Retiring { .. }) {
            break state;
        }
        ensure!(Instant::now() < until, "the rotation stands still at {state:?}: {}", replicas[0].mesh.log());
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    ensure!(longest < Duration::from_secs(5), "no certificate was issued for {longest:?}");
    ensure!(issued > 10, "only {issued} certificates were asked for");
    assert_eq!(phases, ["distributing", "retiring"]);
    assert_eq!(retiring.steps, distributing.steps + 1, "one replica takes each step");
    assert_ne!(retiring.issuer, first.issuer);
    obtain(&replicas, &kube, token).await?;

    // The other one leads by and by, and issues for names once: under the root that issues now.
    let next = eventually("a certificate for names under the new root", PATIENCE, async || {
        let secret = get(&kube, &["secret", "dns.galley"]).await?;
        let chain = secret["data"]["cert-chain.pem"].as_str().context("no chain")?.to_owned();
        ensure!(chain != galley && secret["metadata"]["resourceVersion"] != before, "it is the old one");
        let chain = Certificate::all_from_pem(&BASE64_STANDARD.decode(&chain)?)?;
        let root = Certificate::all_from_pem(handed_out(&kube).await?.as_bytes())?;
        let issuer = root.iter().find(|root| root.fingerprint() == retiring.issuer).context("no issuer")?;
        ensure!(chain[0].authority_key_id() == issuer.key_id(), "it is under the old root");
        Ok(secret["metadata"]["resourceVersion"].clone())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(get(&kube, &["secret", "dns.galley"]).await?["metadata"]["resourceVersion"], next);

    // What operators see: the phase in metrics, and an Event for each step.
    let metrics = http::get(replicas[0].mesh.monitoring(), "/metrics").await?.ok()?;
    ensure!(metrics.contains(r#"canopus_root_rotation_phase{phase="retiring"} 1"#), "{metrics}");
    let events = get(&kube, &["events"]).await?;
    let of_step = |reason: &str| {
        let items = events["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        items
            .iter()
            .filter(|event| event["reason"] == reason && event["involvedObject"]["name"] == CA_SECRET)
            .count()
    };
    assert_eq!((of_step("RootDistributing"), of_step("RootRetiring")), (1, 1), "{events}");
    Ok(())
}

const NODES: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: ztunnel, namespace: istio-system}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: other, namespace: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: ztunnel-1, namespace: istio-system}, spec: {nodeName: one,
  serviceAccountName: ztunnel, containers: [{name: main, image: example.com/main}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: cart-1, namespace: shop}, spec: {nodeName: one,
  serviceAccountName: cart, containers: [{name: main, image: example.com/main}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: other-1, namespace: shop}, spec: {nodeName: two,
  serviceAccountName: other, containers: [{name: main, image: example.com/main}]}}
";

#[tokio::test(flavor = "multi_thread")]
async fn real_token_that_is_bound_to_a_pod_gets_certificates_of_its_node_alone() -> Result<()> {
    let kube = KubeApi::start().await?;
    kube.apply(OBJECTS).await?;
    kube.apply(NODES).await?;
    let replica =
        Replica::start(&kube, "one", &[("CA_TRUSTED_NODE_ACCOUNTS", "istio-system/ztunnel")]).await?;
    let roots = handed_out(&kube).await?;
    let create = ["create", "token", "ztunnel", "--namespace=istio-system", "--audience=istio-ca"];
    let bound = ["--bound-object-kind=Pod", "--bound-object-name=ztunnel-1"];
    let loose = kube.kubectl(&create).await?;
    let bound = kube.kubectl(&[&create[..], &bound].concat()).await?;
    let ask = async |token: &str, identity: &str| -> Result<Result<Vec<String>, tonic::Code>> {
        let csr = CertificateParams::default().serialize_request(&KeyPair::generate()?)?.pem()?;
        let fields = [("ImpersonatedIdentity".to_owned(), identity.into())].into();
        let metadata = Some(canopus_proto::google::protobuf::Struct { fields });
        let mut request =
            tonic::Request::new(IstioCertificateRequest { csr, metadata, ..Default::default() });
        request.metadata_mut().insert("authorization", format!("Bearer {}", token.trim()).parse()?);
        request.metadata_mut().insert("clusterid", "Kubernetes".parse()?);
        let channel = channel(&roots, replica.secure, NAME, None).await?;
        let answer = IstioCertificateServiceClient::new(channel).create_certificate(request).await;
        Ok(answer.map(|answer| answer.into_inner().cert_chain).map_err(|status| status.code()))
    };
    let cart = "spiffe://cluster.local/ns/shop/sa/cart";
    let chain =
        ask(&bound, cart).await?.map_err(|code| anyhow::anyhow!("{code:?}: {}", replica.mesh.log()))?;
    assert_eq!(Certificate::from_pem(chain[0].as_bytes())?.uris(), [cart]);
    for (token, identity) in [
        // On another node, in another trust domain, nowhere, and for a token of no pod.
        (&bound, "spiffe://cluster.local/ns/shop/sa/other"),
        (&bound, "spiffe://elsewhere/ns/shop/sa/cart"),
        (&bound, "spiffe://cluster.local/ns/shop/sa/nobody"),
        (&loose, cart),
    ] {
        assert_eq!(ask(token, identity).await?, Err(tonic::Code::Unauthenticated), "{identity}");
    }
    // The token dies with its pod.
    kube.kubectl(&["delete", "pod", "ztunnel-1", "--namespace=istio-system", "--force", "--grace-period=0"])
        .await?;
    eventually("the end of the token", PATIENCE, async || {
        ensure!(ask(&bound, cart).await? == Err(tonic::Code::Unauthenticated), "it still counts");
        Ok(())
    })
    .await
}

/// A root that signs what tests want.
fn authority(organization: &str) -> Result<(Bundle, String)> {
    let profile = Profile { key: KeyKind::P256, organization: organization.to_owned(), ..Profile::default() };
    let (certificate, key) = profile.create(UnixTime::now())?;
    let certificate = certificate.to_pem()?.into_bytes();
    let text = key.to_pem()?.to_string();
    let key = text.clone().into_bytes().into();
    let parts = Parts { roots: certificate.clone(), certificate, key, ..Parts::default() };
    Ok((Bundle::new(&parts, UnixTime::now())?, text))
}

fn cacerts(bundle: &Bundle, key: &str) -> String {
    let root = bundle.roots_pem();
    serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cacerts", "namespace": "istio-system"},
        "stringData": {"ca-cert.pem": root, "ca-key.pem": key, "cert-chain.pem": root, "root-cert.pem": root},
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_secret_of_the_cluster_is_a_plugged_in_authority_when_asked_for() -> Result<()> {
    let kube = KubeApi::start().await?;
    kube.apply(OBJECTS).await?;
    let flags = [("USE_REMOTE_CERTS", "true"), ("ISTIO_MULTIROOT_MESH", "true")];
    let refused =
        Replica::start(&kube, "one", &flags).await.err().context("it started without the Secret")?;
    ensure!(format!("{refused:#}").contains("Secret istio-system/cacerts is not there"), "{refused:#}");

    let (bundle, key) = authority("plugged")?;
    kube.apply(&cacerts(&bundle, &key)).await?;
    let replicas = [Replica::start(&kube, "one", &flags).await?];
    assert_eq!(handed_out(&kube).await?, bundle.roots_pem());
    let token = kube.kubectl(&["create", "token", "cart", "--namespace=shop", "--audience=istio-ca"]).await?;
    obtain(&replicas, &kube, token.trim()).await?;
    let made = kube.kubectl(&["get", "secret", "--namespace=istio-system", "--output=name"]).await?;
    ensure!(!made.contains("istio-ca-secret"), "a root was made beside the one that is plugged in: {made}");

    // Roots are not exchanged while the mesh runs.
    let (other, key) = authority("other")?;
    kube.apply(&cacerts(&other, &key)).await?;
    eventually("the refusal in the log", PATIENCE, async || {
        let log = replicas[0].mesh.log();
        ensure!(log.contains("the root certificates were exchanged"), "{log}");
        Ok(())
    })
    .await?;
    assert_eq!(handed_out(&kube).await?, bundle.roots_pem());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_namespaces_get_the_revocation_lists_of_a_plugged_in_authority_and_lose_them() -> Result<()> {
    let kube = KubeApi::start().await?;
    kube.apply(OBJECTS).await?;
    let (directory, authority) =
        (tempfile::tempdir()?, PluggedAuthority::new(&rcgen::PKCS_ECDSA_P256_SHA256)?);
    authority.write(directory.path())?;
    let path = directory.path().to_str().context("a path")?;
    let replica = Replica::start(&kube, "one", &[("ROOT_CA_DIR", path)]).await?;
    let roots = handed_out(&kube).await?;
    assert_eq!(roots, authority.root());
    let lists = async || -> Result<Option<String>> {
        let map = kube
            .kubectl(&[
                "get",
                "cm",
                "istio-ca-crl",
                "--namespace=shop",
                "--output=json",
                "--ignore-not-found",
            ])
            .await?;
        if map.trim().is_empty() {
            return Ok(None);
        }
        let map: Value = serde_json::from_str(&map)?;
        Ok(Some(map["data"]["ca-crl.pem"].as_str().unwrap_or_default().to_owned()))
    };
    assert_eq!(lists().await?, None, "there are no lists yet");

    let token = kube.kubectl(&["create", "token", "cart", "--namespace=shop", "--audience=istio-ca"]).await?;
    let chain = replica.certify(&roots, token.trim()).await?;
    let serial = Certificate::from_pem(chain[0].as_bytes())?.serial();
    for plugged in [authority.revocations(&[&serial])?, authority.revocations(&[])?, String::new()] {
        fs::write(directory.path().join("ca-crl.pem"), &plugged)?;
        eventually("the lists in a namespace", PATIENCE, async || {
            let given = lists().await?;
            ensure!(given.as_deref() == Some(plugged.as_str()), "{given:?}: {}", replica.mesh.log());
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_signer_of_the_cluster_gives_the_tls_ports_their_certificate() -> Result<()> {
    let kube = KubeApi::start().await?;
    kube.apply(OBJECTS).await?;
    let (signer, _) = authority("signer of the cluster")?;
    let sign = async || -> Result<()> {
        let (name, request) = eventually("an approved request", PATIENCE, async || {
            let all: Value = serde_json::from_str(&kube.kubectl(&["get", "csr", "--output=json"]).await?)?;
            let item = all["items"].as_array().and_then(|items| items.first()).context("no request")?.clone();
            ensure!(item["status"]["conditions"][0]["type"] == "Approved", "{}", item["status"]);
            ensure!(item["spec"]["signerName"] == "example.com/servers", "{}", item["spec"]);
            let name = item["metadata"]["name"].as_str().context("no name")?.to_owned();
            let text = BASE64_STANDARD.decode(item["spec"]["request"].as_str().context("no request")?)?;
            Ok((name, String::from_utf8(text)?))
        })
        .await?;
        let now = Duration::from_secs(UnixTime::now().as_secs());
        let der = signer.signer().issue(&Leaf {
            public_key: Request::from_pem(&request)?.public_key(),
            names: &["istio-pilot", "istiod", "istiod-remote"].map(|name| format!("{name}.istio-system.svc")),
            has_common_name: false,
            not_before: UnixTime::since_unix_epoch(now - Duration::from_secs(60)),
            not_after: UnixTime::since_unix_epoch(now + Duration::from_secs(3600)),
        })?;
        let chain = pem::encode("CERTIFICATE", &der)? + signer.roots_pem();
        let patch = format!(r#"{{"status": {{"certificate": "{}"}}}}"#, BASE64_STANDARD.encode(chain));
        kube.kubectl(&["patch", "csr", &name, "--subresource=status", "--type=merge", "-p", &patch]).await?;
        Ok(())
    };
    let flags = [("PILOT_CERT_PROVIDER", "k8s.io/example.com/servers")];
    let (replica, signed) = tokio::join!(Replica::start(&kube, "one", &flags), sign());
    signed?;
    let replica = replica?;
    // Pods verify the control plane by what is handed out.
    assert_eq!(handed_out(&kube).await?, signer.roots_pem());
    let token = kube.kubectl(&["create", "token", "cart", "--namespace=shop", "--audience=istio-ca"]).await?;
    replica.certify(signer.roots_pem(), token.trim()).await?;
    let left = kube.kubectl(&["get", "csr", "--output=name"]).await?;
    assert_eq!(left.trim(), "", "requests are removed when they are signed");
    Ok(())
}
