//! Private keys are in nothing that the process prints, writes or serves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_proto::envoy::config::core::v3::Node;
use canopus_testkit::{Authority, Certified, KeyTraces, channel, eventually, http};
use canopus_xds::client::AdsStream;
use canopus_xds::session::{Protocol, Request, Wish};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use crate::plane::{self, NAME, Plane, certify, has_cluster_of, service};

const PATIENCE: Duration = Duration::from_secs(30);
const OPERATOR: &str = "spiffe://cluster.local/ns/istio-system/sa/operator";

/// What was said, by where.
#[derive(Default)]
struct Outputs(Vec<(String, String)>);

impl Outputs {
    fn note(&mut self, place: &str, text: String) {
        self.0.push((place.to_owned(), text));
    }

    async fn get(&mut self, port: &str, address: std::net::SocketAddr, path: &str) -> Result<String> {
        let answer = http::get(address, path).await?;
        let head = format!("{:?}", answer.headers);
        self.note(&format!("{port}{path}"), head + &answer.body);
        Ok(answer.body)
    }

    fn check(&self, keys: &[KeyTraces], tokens: &[String]) -> Result<()> {
        for (place, text) in &self.0 {
            for key in keys {
                key.check_absent(place, text)?;
            }
            ensure!(!text.contains("PRIVATE KEY"), "a key is in {place}");
            ensure!(!tokens.iter().any(|token| text.contains(token)), "a token is in {place}");
        }
        let bytes: usize = self.0.iter().map(|(_, text)| text.len()).sum();
        ensure!(
            self.0.len() > 40 && bytes > 100_000,
            "little was said: {bytes} bytes in {} places",
            self.0.len()
        );
        Ok(())
    }
}

/// A question about a debug endpoint over xDS, as an operator.
async fn ask(channel: Channel, type_url: &str, name: &str) -> Result<String> {
    let id = "sidecar~127.0.0.1~operator-1.istio-system~istio-system.svc.cluster.local".to_owned();
    let names = [name].into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let request = Request {
        type_url: type_url.to_owned(),
        node: Some(Node { id, ..Node::default() }),
        nonce: String::new(),
        error: None,
        wish: Wish::Exactly { names, version: String::new() },
    };
    let asked = async {
        let mut stream = AdsStream::open(channel, Protocol::Sotw, MetadataMap::new(), request).await?;
        stream.next().await
    };
    Ok(match timeout(PATIENCE, asked).await? {
        Ok(update) => {
            let resources = update.map(|update| update.resources).unwrap_or_default();
            resources.iter().map(|one| String::from_utf8_lossy(&one.body.value).into_owned()).collect()
        }
        Err(status) => format!("{status:?}"),
    })
}

/// A request to the port of the webhooks.
async fn ask_webhook(plane: &Plane, authority: &Authority, path: &str, body: &str) -> Result<String> {
    let connector = TlsConnector::from(Arc::new(authority.client(None, &["http/1.1"])?));
    let stream = TcpStream::connect(plane.webhooks).await?;
    let mut stream = connector.connect(ServerName::try_from(NAME)?, stream).await?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A plugged-in authority, a certificate of the ports from files, and a gateway's Secret.
struct Secrets {
    authority: Authority,
    server: Certified,
    gateway: Certified,
    plugged: Certified,
}

impl Secrets {
    fn new() -> Result<Self> {
        let authority = Authority::new()?;
        let (server, gateway) = (authority.server(NAME)?, authority.server("shop.example.com")?);
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "plugged");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256)?;
        let plugged = Certified { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() };
        Ok(Self { authority, server, gateway, plugged })
    }

    fn set_up(&self, directory: &Path, command: &mut Command) -> Result<()> {
        let cacerts = directory.join("etc/cacerts");
        fs::create_dir_all(&cacerts)?;
        let root = &self.plugged.certificate;
        for (name, text) in [
            ("ca-cert.pem", root),
            ("ca-key.pem", &self.plugged.key),
            ("cert-chain.pem", root),
            ("root-cert.pem", root),
        ] {
            fs::write(cacerts.join(name), text)?;
        }
        for (flag, text) in [("tlsCertFile", &self.server.certificate), ("tlsKeyFile", &self.server.key)] {
            fs::write(directory.join(flag), text)?;
            command.arg(format!("--{flag}={}", directory.join(flag).display()));
        }
        let encoded = |pem: &str| BASE64_STANDARD.encode(pem);
        let objects = format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: shop-certificate, namespace: istio-system}}, \
             type: kubernetes.io/tls, data: {{tls.crt: {}, tls.key: {}}}}}\n---\n\
             {{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {{name: public, namespace: istio-system}}, \
             spec: {{selector: {{istio: ingressgateway}}, servers: [{{port: {{number: 443, name: https, protocol: HTTPS}}, \
             hosts: [shop.example.com], tls: {{mode: SIMPLE, credentialName: shop-certificate}}}}]}}}}\n",
            encoded(&self.gateway.certificate),
            encoded(&self.gateway.key),
        );
        fs::write(directory.join("objects/gateway.yaml"), objects)?;
        command.arg("--log_output_level=all:debug").arg("--log_stacktrace_level=all:error");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_in_nothing_that_is_printed_written_or_served() -> Result<()> {
    for plugged in [false, true] {
        let secrets = Secrets::new()?;
        let plane = Plane::start_with(|directory, command| {
            secrets.set_up(directory, command)?;
            if !plugged {
                fs::remove_dir_all(directory.join("etc"))?;
            }
            Ok(())
        })
        .await?;
        let (tokens, said) = exercise(&plane, &secrets).await?;

        let mut keys = vec![
            KeyTraces::from_pem("the key of the TLS ports", &secrets.server.key)?,
            KeyTraces::from_pem("the key of a gateway", &secrets.gateway.key)?,
            KeyTraces::from_pem("the plugged-in key", &secrets.plugged.key)?,
        ];
        let mut files: Vec<(&str, PathBuf)> =
            vec![("the key of join tokens", plane.directory().join("join-tokens/current/token-key.pem"))];
        if !plugged {
            files.push(("the key of the authority", plane.directory().join("current/ca-key.pem")));
        }
        for (name, path) in files {
            let pem = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            keys.push(KeyTraces::from_pem(name, &pem)?);
        }
        said.check(&keys, &tokens)?;
    }
    Ok(())
}

/// Has the process say all it has to say.
async fn exercise(plane: &Plane, secrets: &Secrets) -> Result<(Vec<String>, Outputs)> {
    let mut said = Outputs::default();
    let tokens = vec![plane.token(false).await?, plane.token_of("istio-system", "operator", false).await?];
    let root = secrets.authority.root();
    let connect = async |own: Option<&Certified>| channel(&root, plane.secure, NAME, own).await;
    let operator = certify(connect(None).await?, OPERATOR, Some(&tokens[1])).await?;
    let refused = certify(connect(None).await?, OPERATOR, Some("a.b.c")).await;
    let refused = refused.err().context("a token that is none is refused")?;
    said.note("the refusal of a token", format!("{refused:?}"));

    // A gateway that is connected, and gets the secret.
    let id = "router~10.0.0.2~public-1.istio-system~istio-system.svc.cluster.local";
    let mut gateway = plane::proxy_as(connect(Some(&operator)).await?, id);
    gateway.follower_mut().watch(
        "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        ["kubernetes://shop-certificate"],
    );
    plane.mesh.write("services.yaml", &service("reviews.example.com"))?;
    has_cluster_of(&mut gateway, "reviews.example.com").await?;

    let listed = plane.mesh.ask("/debug/list").await?;
    let listed = listed.as_array().context("a list")?.iter().filter_map(|name| name.as_str());
    let own = ["certificates", "diagnostics", "ledger", "quarantine", "world", "wastez", "convergence"];
    let endpoints: Vec<String> = listed
        .chain(own)
        .map(|name| name.trim_start_matches("/debug/").to_owned())
        .flat_map(|name| [format!("{name}?proxyID=public-1.istio-system"), name])
        .collect();
    for name in &endpoints {
        said.get("http ", plane.mesh.http, &format!("/debug/{name}")).await?;
        said.get("monitoring ", plane.mesh.monitoring(), &format!("/debug/{name}")).await?;
        let answer = ask(connect(Some(&operator)).await?, "istio.io/debug", name).await?;
        said.note(&format!("istio.io/debug {name}"), answer);
    }
    for name in ["istio.io/debug/syncz", "istio.io/debug/config_dump"] {
        said.note(name, ask(connect(Some(&operator)).await?, name, "").await?);
    }
    for path in ["/metrics", "/version", "/scopej", "/", "/ctrlz"] {
        said.get("monitoring ", plane.mesh.monitoring(), path).await?;
    }
    for path in ["/openid/v1/jwks", "/spiffe/bundle", "/ready", "/", "/nowhere"] {
        said.get("http ", plane.mesh.http, path).await?;
    }
    for path in ["/inject", "/validate", "/ready", "/spiffe/bundle", "/nowhere"] {
        for body in ["{}", "null", "{\"request\": {\"uid\": \"1\", \"object\": {\"kind\": \"Secret\"}}}"] {
            let answer = ask_webhook(plane, &secrets.authority, path, body).await?;
            said.note(&format!("webhooks {path} {body}"), answer);
        }
    }
    for arguments in [&["request", "GET", "/debug/certificates"][..], &["flags"], &["version"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_canopusd"));
        let output = command.args(arguments).output()?;
        let text = [output.stdout, output.stderr].concat();
        said.note(&arguments.join(" "), String::from_utf8_lossy(&text).into_owned());
    }
    // A key that is half written, and one that is of another certificate.
    let files = plane.mesh.objects().with_file_name("tlsKeyFile");
    let key = secrets.server.key.clone();
    for broken in [key.replace("-----END", "----END"), key.replace("PRIVATE", "PUBLIC"), key.replace('M', "")]
    {
        fs::write(&files, broken)?;
        let before = plane.mesh.log().matches("the certificate stays as it was").count();
        eventually("an error about the key", PATIENCE, async || {
            let now = plane.mesh.log().matches("the certificate stays as it was").count();
            ensure!(now > before, "nothing is said");
            Ok(())
        })
        .await?;
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", plane.mesh.id().context("it has ended")?))?;
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).context("no limit")?;
    let limit: Vec<&str> = cores.split_whitespace().skip(4).take(2).collect();
    assert_eq!(limit, ["1", "1"], "neither a core file is written nor a collector run");
    said.note("the log", plane.mesh.log());
    Ok((tokens, said))
}
