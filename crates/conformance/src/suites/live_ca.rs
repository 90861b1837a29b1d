//! What a running certificate authority answered.
//!
//! The authority, the service and the handshake are the product's; requests and plugged-in files are made as the recording
//! describes them. Tokens are signed here and judged by the product. What only a cluster or a port can tell is told by
//! `canopusd` as a process on a real API server.

mod installation;
mod material;
mod objects;
mod print;
mod tokens;

use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, anyhow, bail};
use canopus_base::tree::{Map, Node, Value};
use canopus_daemon::certificate_authority::{Nodes, lifetimes, profile};
use canopus_identity::authority::Authority;
use canopus_identity::bundle::{Bundle, Parts};
use canopus_identity::service::{Caller, CertificateService, Code, Pod};
use canopus_proto::google::protobuf::{Struct, Value as ProtoValue, value::Kind};
use canopus_proto::istio::v1::auth::IstioCertificateRequest;
use canopus_runtime::flags::Flags;
use parking_lot::Mutex;
use rustls::pki_types::UnixTime;

use self::installation::{Installation, Port, Setup};
use self::material::Workshop;
use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;
use crate::record;

/// The suite, with the keys that its requests are made with, and the cluster that some cases take.
#[derive(Default)]
pub(super) struct LiveCa {
    workshop: Workshop,
    installation: OnceLock<Result<Mutex<Installation>, String>>,
}

const NO_CLUSTER: &str = "no Kubernetes API server (`cargo xtask parts kube` installs it)";

impl Suite for LiveCa {
    fn name(&self) -> &str {
        "live-ca"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        match record::read(&case.corpus, &case.path(&case.file)) {
            Ok(recorded) if !needs_a_server(&recorded) => self.replay(case, &recorded).into(),
            Ok(_) if !installation::is_possible() => Outcome::Missing(NO_CLUSTER),
            Ok(recorded) => self.observe(&recorded).into(),
            Err(error) => Outcome::error(format_args!("{error:#}")),
        }
    }
}

fn text<'a>(node: &'a Node, path: &str) -> &'a str {
    node.pointer(path).and_then(Node::as_str).unwrap_or_default()
}

/// Whether it takes a cluster, or a port, to tell.
fn needs_a_server(recorded: &Node) -> bool {
    recorded.get("request").is_none() || is_about_tokens(recorded) && tokens::needs_a_server(recorded)
}

/// Whether what was answered depends on a token other than the usual one, or on headers around it.
fn is_about_tokens(recorded: &Node) -> bool {
    let refused = text(recorded, "/response/grpcMessage") == "request authenticate failure";
    let described = text(recorded, "/description");
    let tokens = ["token with", "authorization", "Bearer", "clusterid metadata", "plaintext"];
    refused && !described.contains("no token") && !described.starts_with("no authorization")
        || tokens.iter().any(|word| described.contains(word)) && !described.starts_with("no authorization")
        || text(recorded, "/request/transport") == "plaintext"
}

impl LiveCa {
    /// Does with a control plane in a cluster what was done with the recorded one.
    fn observe(&self, recorded: &Node) -> anyhow::Result<Vec<Difference>> {
        let start = || Installation::start().map(Mutex::new).map_err(|error| format!("{error:#}"));
        let started = self.installation.get_or_init(start);
        let mut installation = started.as_ref().map_err(|error| anyhow!("{error}"))?.lock();
        installation.set_up(&Setup::read(recorded)?)?;
        let rules = Rules::default();
        if recorded.get("request").is_some() {
            let (request, key) = self.request(recorded)?;
            let got = match installation.create_certificate(recorded, request)? {
                Ok(chain) => print::answer(&chain, &key)?,
                Err(status) => print::refusal(print::code(status.code()), status.message()),
            };
            let expected = recorded.get("response").context("no response")?;
            return Ok(tree::difference(expected, &got, &rules));
        }
        if let Some(expected) = recorded.get("steps") {
            let got = objects::tampered(&installation, recorded);
            // Others want a control plane with whose objects nobody has tampered.
            installation.clear()?;
            return Ok(tree::difference(expected, &got?.into(), &rules));
        }
        if let Some(expected) = recorded.get("secrets") {
            let got = objects::secrets(&installation, recorded)?;
            return Ok(tree::difference(expected, &got.into(), &rules));
        }
        let expected = recorded.get("result").context("no result")?;
        if expected.get("secret").is_some() {
            let got = objects::after_start(&installation, recorded)?;
            return Ok(tree::difference(&objects::without_installation(expected), &got.into(), &rules));
        }
        let is_webhook = text(recorded, "/description").starts_with("15017");
        let got = installation.shake_hands(if is_webhook { Port::Webhooks } else { Port::Secure })?;
        Ok(tree::difference(expected, &got.into(), &rules))
    }

    /// The request that is described, and the public key in it.
    fn request(&self, recorded: &Node) -> anyhow::Result<(IstioCertificateRequest, String)> {
        let (csr, key) = self.workshop.request(text(recorded, "/request/csr"))?;
        let seconds = recorded.pointer("/request/validity_duration").and_then(Node::as_i64);
        let metadata = metadata(recorded);
        Ok((IstioCertificateRequest { csr, validity_duration: seconds.unwrap_or(0), metadata }, key))
    }

    fn replay(&self, case: &Case, recorded: &Node) -> anyhow::Result<Vec<Difference>> {
        let mut expected = recorded.get("response").context("no response")?.clone();
        let mode = text(recorded, "/caMode");
        let flags = flags(case, recorded, mode)?;
        let trust_domain = trust_domain(case, recorded, mode)?;
        let authority = self.authority(case, mode, &flags, &trust_domain)?;
        if text(recorded, "/request/transport").contains("client certificate") {
            let described = text(recorded, "/description");
            let alert = self.workshop.shake_hands(&authority, described)?;
            if expected.get("tlsHandshakeRejected").is_some() || alert.is_some() {
                let got = alert.map(|alert| rejected(&alert)).unwrap_or_default();
                return Ok(tree::difference(&expected, &got, &Rules::default()));
            }
        }
        let service = service(recorded, &flags)?;
        let (request, key) = self.request(recorded)?;
        let caller = match is_about_tokens(recorded) {
            true => tokens::caller(recorded)?,
            false => caller(recorded, &trust_domain),
        };
        let got = match service.create_certificate(&caller, &request, &authority, UnixTime::now()) {
            Ok(chain) => print::answer(&chain, &key)?,
            Err(refusal) => print::refusal(print::code(code(refusal.code)), &refusal.message),
        };
        if mode.starts_with("plugged") {
            print::forget_what_was_plugged_in(&mut expected);
        }
        let got = print::only_what_is_recorded(got, &expected);
        Ok(tree::difference(&expected, &got, &Rules::default()))
    }

    fn authority(
        &self,
        case: &Case,
        mode: &str,
        flags: &Flags,
        trust_domain: &str,
    ) -> anyhow::Result<Arc<Authority>> {
        let parts = if mode.starts_with("plugged") {
            let input = record::read(&case.corpus, &case.path(format!("inputs/input-{mode}.yaml")))?;
            self.workshop.plugged(&input)?
        } else {
            let (certificate, key) = profile(flags, trust_domain)?.create(UnixTime::now())?;
            let certificate = certificate.to_pem()?.into_bytes();
            let key = key.to_pem()?.as_bytes().to_vec().into();
            Parts { roots: certificate.clone(), certificate, key, ..Parts::default() }
        };
        let bundle = Bundle::new(&parts, UnixTime::now())?;
        Ok(Arc::new(Authority::with_bundle(lifetimes(flags), Arc::new(bundle))))
    }
}

fn code(code: Code) -> tonic::Code {
    match code {
        Code::InvalidArgument => tonic::Code::InvalidArgument,
        Code::Internal => tonic::Code::Internal,
        Code::Unauthenticated => tonic::Code::Unauthenticated,
    }
}

fn rejected(alert: &str) -> Node {
    let fields = [("tlsHandshakeRejected", Value::Bool(true)), ("tlsAlert", Value::from(alert))];
    Value::Map(fields.into_iter().map(|(key, value)| (key, Node::from(value))).collect::<Map>()).into()
}

/// The document that a mode refers to for its environment.
fn settings(case: &Case, recorded: &Node, mode: &str) -> anyhow::Result<Node> {
    match mode.split_once("environment of ") {
        Some((_, name)) => record::read(&case.corpus, &case.path(format!("objects/{name}.yaml"))),
        None => Ok(recorded.clone()),
    }
}

fn flags(case: &Case, recorded: &Node, mode: &str) -> anyhow::Result<Flags> {
    let settings = settings(case, recorded, mode)?;
    let mut variables = std::collections::BTreeMap::new();
    if let Some(Value::Map(environment)) = settings.get("environment").map(|node| &node.value) {
        for entry in environment {
            variables.insert(entry.key.to_string(), entry.node.as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(Flags::read(&variables))
}

/// The trust domain of the mesh, which one recording has in its words only.
fn trust_domain(case: &Case, recorded: &Node, mode: &str) -> anyhow::Result<String> {
    let settings = settings(case, recorded, mode)?;
    let given = text(&settings, "/meshConfig/trustDomain");
    let described = text(recorded, "/description").split_once("meshConfig trustDomain ");
    let described = described.and_then(|(_, rest)| rest.split([',', ' ']).next()).unwrap_or("cluster.local");
    Ok(if given.is_empty() { described } else { given }.to_owned())
}

fn metadata(recorded: &Node) -> Option<Struct> {
    let Some(Value::Map(metadata)) = recorded.pointer("/request/metadata").map(|node| &node.value) else {
        return None;
    };
    let kind = |node: &Node| match node.as_str() {
        Some(text) => Kind::StringValue(text.to_owned()),
        None => Kind::NumberValue(node.as_f64().unwrap_or_default()),
    };
    let field = |key: &str, node: &Node| (key.to_owned(), ProtoValue { kind: Some(kind(node)) });
    Some(Struct { fields: metadata.iter().map(|entry| field(&entry.key, &entry.node)).collect() })
}

/// The caller by the words of the recording: `demo/web` unless another account is named first.
fn caller(recorded: &Node, trust_domain: &str) -> Caller {
    let described = text(recorded, "/description");
    let by_certificate = text(recorded, "/request/transport").contains("client certificate");
    let nothing = described.contains("no token") || described.starts_with("no authorization");
    if nothing && !by_certificate {
        return Caller::default();
    }
    let named = ["istio-system/istiod", "demo/web pod", "ztunnel"];
    let (namespace, account) = match named.iter().find(|name| described.contains(**name) && !by_certificate) {
        Some(&"istio-system/istiod") => ("istio-system", "istiod"),
        Some(&"ztunnel") => ("istio-system", "ztunnel"),
        _ => ("demo", "web"),
    };
    let name = match account {
        _ if described.contains("not bound to a pod") => "",
        "ztunnel" => "ztunnel-1",
        _ => "web-1",
    };
    let headers = recorded.pointer("/request/grpcMetadata").and_then(Node::as_list).unwrap_or_default();
    let cluster = headers.iter().find_map(|header| header.as_str()?.strip_prefix("clusterid: "));
    Caller {
        identities: vec![format!("spiffe://{trust_domain}/ns/{namespace}/sa/{account}")],
        pod: Some(Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: material::uid(name),
            service_account: account.to_owned(),
        }),
        cluster: cluster.map(str::to_owned),
    }
}

fn service(recorded: &Node, flags: &Flags) -> anyhow::Result<CertificateService> {
    let service = CertificateService::new(Arc::new(()));
    let engine = material::pods(text(recorded, "/clusterObjects"))?;
    match Nodes::new(&engine, &"Kubernetes".into(), flags) {
        Some(nodes) => Ok(service.with_nodes(Arc::new(nodes))),
        None if text(recorded, "/clusterObjects").is_empty() => Ok(service),
        None => bail!("there are pods but no trusted nodes"),
    }
}
