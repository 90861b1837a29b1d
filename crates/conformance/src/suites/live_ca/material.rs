//! Requests, plugged-in files, client certificates and pods, made as a recording describes them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail, ensure};
use canopus_api::{Object, Options};
use canopus_base::tree::Node;
use canopus_daemon::serve::tls::{self, Material, Policy};
use canopus_engine::{Batch, Engine};
use canopus_identity::authority::{Authority, server_certificate};
use canopus_identity::bundle::Parts;
use canopus_identity::issue::Leaf;
use canopus_identity::key::{KeyKind, SigningKey};
use canopus_identity::pem;
use canopus_identity::self_signed::Profile;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose,
};
use regex::Regex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConnection};
use serde_json::json;

/// Makes what recordings describe; keys are made once.
#[derive(Default)]
pub(super) struct Workshop {
    keys: Mutex<BTreeMap<String, String>>,
}

const NAME: &str = "istiod.istio-system.svc";

fn openssl(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("openssl").args(arguments).output().context("openssl")?;
    ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

impl Workshop {
    fn key(&self, algorithm: &str) -> anyhow::Result<String> {
        let mut keys = self.keys.lock();
        if let Some(key) = keys.get(algorithm) {
            return Ok(key.clone());
        }
        let bits = format!("rsa_keygen_bits:{}", algorithm.trim_start_matches("rsa"));
        let curve = format!("ec_paramgen_curve:P-{}", algorithm.trim_start_matches('p'));
        let key = match algorithm {
            "ed25519" => openssl(&["genpkey", "-algorithm", "ED25519"])?,
            _ if algorithm.starts_with("rsa") => {
                openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", &bits])?
            }
            _ => openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", &curve])?,
        };
        Ok(keys.entry(algorithm.to_owned()).or_insert(key).clone())
    }

    /// A request as it is described, and the public key in it.
    pub(super) fn request(&self, described: &str) -> anyhow::Result<(String, String)> {
        let make = |text: &str, extensions: &[&str], subject: &str| {
            let algorithm: String =
                text.split([',', ' ']).next().unwrap_or("").replace('-', "").to_lowercase();
            let key = tempfile::NamedTempFile::new()?;
            fs::write(key.path(), self.key(&algorithm)?)?;
            let path = key.path().display().to_string();
            let mut arguments = vec!["req", "-new", "-key", &path, "-subj", subject];
            extensions.iter().for_each(|extension| arguments.extend(["-addext", extension]));
            let public = openssl(&["pkey", "-in", &path, "-pubout"])?;
            Ok::<_, anyhow::Error>((openssl(&arguments)?, public))
        };
        let damaged = |change: fn(&mut Vec<u8>)| {
            let (text, key) = make("rsa2048", &[], "/")?;
            let (_, mut der) = pem::first(text.as_bytes()).context("no request")?;
            change(&mut der);
            Ok::<_, anyhow::Error>((pem::encode("CERTIFICATE REQUEST", &der)?, key))
        };
        let after = |words: &str| described.split_once(words).map(|(_, rest)| rest.trim());
        match described {
            "empty string" => Ok(Default::default()),
            "truncated DER" => damaged(|der| der.truncate(der.len() / 2)),
            "PEM CERTIFICATE block" => {
                let (certificate, _) =
                    Profile { key: KeyKind::P256, ..Profile::default() }.create(UnixTime::now())?;
                Ok((certificate.to_pem()?, String::new()))
            }
            _ if described.starts_with("text ") => Ok((described[5..].to_owned(), String::new())),
            _ if described.contains("signature byte flipped") => damaged(|der| {
                if let Some(last) = der.last_mut() {
                    *last ^= 1;
                }
            }),
            _ if described.starts_with("two PEM blocks: ") => {
                let (first, key) = make(&described[16..], &[], "/")?;
                let second = after(" then ").context("no second block")?;
                Ok((first + &make(second, &[], "/")?.0, key))
            }
            _ => {
                let names =
                    after("DNS SANs ").map(|names| names.split(", ").map(|name| format!("DNS:{name}")));
                let names = names.map(|names| names.collect::<Vec<_>>().join(","));
                let names = names.or_else(|| after("URI SAN ").map(|uri| format!("URI:{uri}")));
                let names = names.map(|names| format!("subjectAltName={names}"));
                let ca =
                    described.contains("CA:TRUE").then(|| "basicConstraints=critical,CA:TRUE".to_owned());
                let extensions: Vec<String> = names.into_iter().chain(ca).collect();
                let subject = after(", subject ").map(|subject| format!("/{}", subject.replace(", ", "/")));
                let extensions: Vec<&str> = extensions.iter().map(String::as_str).collect();
                make(described, &extensions, subject.as_deref().unwrap_or("/"))
            }
        }
    }

    /// The files of a plugged-in authority as they are listed.
    pub(super) fn plugged(&self, input: &Node) -> anyhow::Result<Parts> {
        let kind = input.get("signingKey").and_then(Node::as_str).context("no signing key")?;
        let hours = input.get("signingCertHoursLeft").and_then(Node::as_i64).context("no lifetime")?;
        let kind = match kind {
            "ECDSA-secp256r1" => KeyKind::P256,
            "ECDSA-secp384r1" => KeyKind::P384,
            "RSA-2048" => KeyKind::Rsa(2048),
            other => bail!("a key of kind {other}"),
        };
        let files = input.get("files").context("no files")?;
        let names = |file: &str| -> Vec<String> {
            let list = files.get(file).and_then(Node::as_list).unwrap_or_default();
            list.iter().filter_map(|entry| entry.as_str().map(str::to_owned)).collect()
        };
        let mut made: BTreeMap<String, (CertifiedIssuer<'static, KeyPair>, String)> = BTreeMap::new();
        let (signing, roots, chain) = match files.get("tls.crt") {
            Some(_) => (names("tls.crt"), names("ca.crt"), [names("tls.crt"), names("ca.crt")].concat()),
            None => (names("ca-cert.pem"), names("root-cert.pem"), names("cert-chain.pem")),
        };
        let all: Vec<String> =
            [roots.clone(), chain.iter().rev().cloned().collect(), signing.clone()].concat();
        for entry in &all {
            let (subject, issuer) = entry.split_once(" issued by ").context("no issuer")?;
            if made.contains_key(subject) {
                continue;
            }
            let key = SigningKey::generate(kind)?;
            let pair = KeyPair::try_from(key.to_pkcs8()?.as_slice())?;
            let mut params = authority_params(subject, hours)?;
            params.use_authority_key_identifier_extension = made.contains_key(issuer);
            let issued = match made.get(issuer) {
                Some((issuer, _)) => CertifiedIssuer::signed_by(params, pair, issuer)?,
                None => CertifiedIssuer::self_signed(params, pair)?,
            };
            made.insert(subject.to_owned(), (issued, key.to_pem()?.to_string()));
        }
        let certificate = |entry: &String| {
            let subject = entry.split(" issued by ").next().unwrap_or_default();
            made.get(subject).map(|(issuer, _)| issuer.pem()).unwrap_or_default()
        };
        let text = |entries: &[String]| entries.iter().map(certificate).collect::<String>().into_bytes();
        let signer =
            signing.first().and_then(|entry| entry.split(" issued by ").next()).context("no signer")?;
        let key = made.get(signer).map(|(_, key)| key.as_bytes().to_vec()).unwrap_or_default();
        Ok(Parts {
            certificate: text(&signing),
            key: key.into(),
            chain: text(&chain),
            roots: text(&roots),
            crl: Vec::new(),
        })
    }

    /// The alert with which the server refuses the client certificate that is described, if it does.
    pub(super) fn shake_hands(
        &self,
        authority: &Authority,
        described: &str,
    ) -> anyhow::Result<Option<String>> {
        let bundle = authority.bundle().context("no bundle")?;
        let now = UnixTime::now();
        let server = server_certificate(&bundle, &[NAME.to_owned()], Duration::from_secs(3600), now)?;
        let material =
            Material::from_pem(server.chain.as_bytes(), server.key.as_bytes(), server.roots.as_bytes())?;
        let engine = Engine::new();
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings::default());
        engine.apply(batch);
        let config = tls::for_proxies(&material, &Policy::default(), &engine)?;

        let key = SigningKey::generate(KeyKind::P256)?;
        let names = client_names(described)?;
        let ended = described.contains("after it ended");
        let at = |seconds: u64| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let leaf = Leaf {
            public_key: key.public_key(),
            names: &names,
            has_common_name: false,
            not_before: at(now.as_secs() - 120),
            not_after: at(if ended { now.as_secs() - 5 } else { now.as_secs() + 3600 }),
        };
        let (certificate, root_key) =
            Profile { key: KeyKind::P256, organization: "other".to_owned(), ..Profile::default() }
                .create(now)?;
        let other = canopus_identity::issue::Signer::new(certificate, root_key)?;
        let signer = if described.contains("another root") { &other } else { bundle.signer() };
        let chain = vec![signer.issue(&leaf)?];
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.roots.as_bytes())?)?;
        let client =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.to_pem()?.as_bytes())?)?;
        let mut client = Connection::from(ClientConnection::new(Arc::new(client), NAME.try_into()?)?);
        let mut server = Connection::from(ServerConnection::new(Arc::new(config))?);
        exchange(&mut client, &mut server)
    }
}

/// Passes bytes to and fro until nobody has anything to say; the alert the client gets, if it gets one.
fn exchange(client: &mut Connection, server: &mut Connection) -> anyhow::Result<Option<String>> {
    let humps = Regex::new("([a-z])([A-Z])")?;
    for _ in 0..16 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes)?;
        server.read_tls(&mut bytes.as_slice())?;
        // What the server thinks of it is told to the client by an alert.
        let _ = server.process_new_packets();
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes)?;
        }
        client.read_tls(&mut bytes.as_slice())?;
        match client.process_new_packets() {
            Ok(_) => {}
            Err(rustls::Error::AlertReceived(alert)) => {
                let name = humps.replace_all(&format!("{alert:?}"), "${1}_$2").to_lowercase();
                return Ok(Some(format!(
                    "{} ({})",
                    name.replace("unknownca", "unknown_ca"),
                    u8::from(alert)
                )));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The names of the client certificate that is described.
fn client_names(described: &str) -> anyhow::Result<Vec<String>> {
    let own = "spiffe://cluster.local/ns/demo/sa/web".to_owned();
    let uri = Regex::new(r"URI SAN (\S+://\S+)")?.captures(described).map(|found| found[1].to_owned());
    let domain = Regex::new(r"trust domain (\S+)")?.captures(described).map(|found| found[1].to_owned());
    Ok(match described {
        _ if described.contains("DNS SAN only") => vec!["web.demo.svc".to_owned()],
        _ if described.contains("without SAN") => Vec::new(),
        _ if described.contains("two URI SANs") => {
            vec![own, "spiffe://cluster.local/ns/demo/sa/other".to_owned()]
        }
        _ => match (uri, domain) {
            // Only SPIFFE identities are issued as URIs here, so this one comes as a name.
            (Some(uri), _) => vec![uri],
            (None, Some(domain)) => vec![format!("spiffe://{domain}/ns/demo/sa/web")],
            (None, None) => vec![own],
        },
    })
}

fn authority_params(subject: &str, hours: i64) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    for part in subject.split(',').rev() {
        match part.split_once('=') {
            Some(("CN", value)) => name.push(DnType::CommonName, value),
            Some(("O", value)) => name.push(DnType::OrganizationName, value),
            _ => bail!("{part} in a name"),
        }
    }
    params.distinguished_name = name;
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + Duration::from_secs(u64::try_from(hours)? * 3600)).into();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// The UID of a pod.
pub(super) fn uid(name: &str) -> String {
    format!("uid-{name}")
}

/// A world of the pods that are described as `namespace/name (sa account, node)`.
pub(super) fn pods(described: &str) -> anyhow::Result<Engine> {
    let engine = Engine::new();
    let mut batch = Batch::new();
    batch.set::<Settings>((), MeshSettings::default());
    for found in Regex::new(r"([\w-]+)/([\w-]+) \((?:sa ([\w-]+), )?([\w-]+)\)")?.captures_iter(described) {
        let (namespace, name, node) = (&found[1], &found[2], &found[4]);
        let account = found.get(3).map_or("ztunnel", |account| account.as_str());
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": uid(name)},
            "spec": {"serviceAccountName": account, "nodeName": node, "containers": []},
            "status": {"phase": "Pending"},
        });
        let object = Object::decode(&Node::from(pod), Options::watch())?.value;
        batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
    }
    engine.apply(batch);
    Ok(engine)
}
