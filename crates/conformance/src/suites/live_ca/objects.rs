//! The objects of a certificate authority, in the form of the recordings.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use canopus_base::tree::Node;
use serde_json::{Map, Value as Json, json};

use super::installation::{Installation, SYSTEM};
use super::{print, text};

/// How long something may take that is recorded as happening.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long something is looked for that is recorded as not happening.
const WATCHED: Duration = Duration::from_secs(5);

const ROOT_MAP: &str = "istio-ca-root-cert";

/// Objects that the recorded installation had of its charts, of Kubernetes, or of a run before.
const OF_THE_INSTALLATION: [&str; 6] =
    ["istio", "istio-ca-crl", "istio-cni-config", "istio-sidecar-injector", "kube-root-ca.crt", "values"];

/// What there is after a first start, by the namespaces that were recorded.
pub(super) fn after_start(installation: &Installation, recorded: &Node) -> anyhow::Result<Json> {
    let namespaces = recorded.pointer("/result/namespaces").and_then(Node::as_list).unwrap_or_default();
    let namespaces: Vec<&str> = namespaces.iter().filter_map(Node::as_str).collect();
    installation.create_namespaces(&namespaces)?;
    let maps = recorded.pointer("/result/configMapsRootCert").and_then(Node::as_list).unwrap_or_default();
    for map in maps {
        let namespace = text(map, "/namespace");
        let found = || installation.object("configmap", namespace, ROOT_MAP);
        installation
            .wait_for(PATIENCE, found)?
            .with_context(|| format!("no {ROOT_MAP} in {namespace}; canopusd:\n{}", installation.log()))?;
    }
    let secret = installation.object("secret", SYSTEM, "istio-ca-secret")?.context("no Secret")?;
    let root = field(&secret, "root-cert.pem")?;
    let mut written = Vec::new();
    for namespace in &namespaces {
        let Some(map) = installation.object("configmap", namespace, ROOT_MAP)? else { continue };
        written.push(json!({
            "namespace": namespace,
            "labels": map["metadata"]["labels"],
            "annotations": map["metadata"]["annotations"],
            "keys": keys(&map),
            "equalsRoot": map["data"]["root-cert.pem"].as_str() == Some(&root),
        }));
    }
    Ok(json!({
        "secret": {
            "name": secret["metadata"]["name"],
            "namespace": secret["metadata"]["namespace"],
            "type": secret["type"],
            "labels": secret["metadata"]["labels"],
            "annotations": secret["metadata"]["annotations"],
            "keys": contents(&secret, "PEM: ")?,
        },
        "caCertificate": print::certificate_of_pem(&field(&secret, "ca-cert.pem")?)?,
        "caKey": kind_of_key(&field(&secret, "ca-key.pem")?)?,
        "configMapsRootCert": written,
        "namespaces": namespaces,
        "otherObjectsInIstioSystem": {
            "configmap": others(installation, "configmap")?,
            "secret": others(installation, "secret")?,
            "lease": others(installation, "lease")?,
        },
    }))
}

/// The Secrets in which a root is kept elsewhere than usual.
pub(super) fn secrets(installation: &Installation, recorded: &Node) -> anyhow::Result<Json> {
    let mut written = Vec::new();
    for secret in recorded.get("secrets").and_then(Node::as_list).unwrap_or_default() {
        let name = text(secret, "/name");
        let found = installation.object("secret", SYSTEM, name)?;
        let found = found.with_context(|| format!("no Secret {name}; canopusd:\n{}", installation.log()))?;
        written.push(json!({
            "name": found["metadata"]["name"],
            "type": found["type"],
            "labels": found["metadata"]["labels"],
            "keys": contents(&found, "PEM ")?,
            "caCertificate": print::certificate_of_pem(&field(&found, "ca-cert.pem")?)?,
        }));
    }
    Ok(written.into())
}

/// Leaves out what only the installation had, and what is Canopus' own.
fn others(installation: &Installation, kind: &str) -> anyhow::Result<Vec<String>> {
    let names = installation.names(kind)?.into_iter();
    Ok(names.filter(|name| !name.starts_with("canopus-")).collect())
}

/// Takes the objects of the installation out of what is expected.
pub(super) fn without_installation(expected: &Node) -> Node {
    let mut expected = expected.to_json();
    let lists = expected["otherObjectsInIstioSystem"].as_object_mut().into_iter().flatten();
    for list in lists.filter_map(|(_, list)| list.as_array_mut()) {
        list.retain(|name| !OF_THE_INSTALLATION.iter().any(|known| name == known));
    }
    expected.into()
}

/// Makes the changes of a recording, one after the other, and says what came of each.
pub(super) fn tampered(installation: &Installation, recorded: &Node) -> anyhow::Result<Json> {
    let mut done = Vec::new();
    for step in recorded.get("steps").and_then(Node::as_list).unwrap_or_default() {
        let words = text(step, "/step");
        let outcome = Tampering::parse(words)?.play(installation, step).with_context(|| words.to_owned())?;
        let mut printed = json!({"step": words});
        if let (Some(printed), Json::Object(outcome)) = (printed.as_object_mut(), outcome) {
            printed.extend(outcome);
        }
        done.push(printed);
    }
    Ok(done.into())
}

/// A change that somebody else makes.
enum Tampering<'a> {
    DeleteMap { namespace: &'a str },
    ChangeMap,
    RemoveLabel,
    CreateNamespace(&'a str),
    DeleteSecret(&'a str),
}

impl<'a> Tampering<'a> {
    fn parse(words: &'a str) -> anyhow::Result<Self> {
        if let Some(namespace) = words.strip_prefix("delete the ConfigMap in namespace ") {
            return Ok(Self::DeleteMap { namespace });
        }
        if let Some(namespace) = words.strip_prefix("create namespace ") {
            return Ok(Self::CreateNamespace(namespace));
        }
        if let Some(rest) = words.strip_prefix("delete Secret ") {
            return Ok(Self::DeleteSecret(rest.split(' ').next().unwrap_or(rest)));
        }
        match words {
            _ if words.starts_with("set root-cert.pem to \"tampered\"") => Ok(Self::ChangeMap),
            "remove the label istio.io/config" => Ok(Self::RemoveLabel),
            _ => bail!("nobody knows how to do this"),
        }
    }

    fn play(&self, installation: &Installation, step: &Node) -> anyhow::Result<Json> {
        let expected = |name: &str| step.get(name).and_then(Node::as_bool).unwrap_or(false);
        let patience = |expected: bool| if expected { PATIENCE } else { WATCHED };
        let map = |namespace: &str| installation.object("configmap", namespace, ROOT_MAP);
        let patch = |text: &str| {
            let of_demo = ["patch", "configmap", ROOT_MAP, "--namespace=demo", "--type=merge", "-p", text];
            installation.kubectl(&of_demo)
        };
        match self {
            Self::DeleteMap { namespace } => {
                let before =
                    installation.wait_for(PATIENCE, || map(namespace))?.context("it was never there")?;
                let uid = before["metadata"]["uid"].clone();
                let namespaced = format!("--namespace={namespace}");
                installation.kubectl(&["delete", "configmap", ROOT_MAP, &namespaced])?;
                let another = || Ok(map(namespace)?.filter(|now| now["metadata"]["uid"] != uid));
                let found = installation.wait_for(patience(expected("recreated")), another)?;
                Ok(json!({"recreated": found.is_some()}))
            }
            Self::ChangeMap => {
                patch(r#"{"data": {"root-cert.pem": "tampered", "extra": "kept"}}"#)?;
                let mended = || Ok(map("demo")?.filter(|map| map["data"]["root-cert.pem"] != "tampered"));
                let found = installation.wait_for(patience(expected("restored")), mended)?;
                let after = map("demo")?.context("it is gone")?;
                Ok(json!({"restored": found.is_some(), "dataKeysAfter": keys(&after)}))
            }
            Self::RemoveLabel => {
                patch(r#"{"metadata": {"labels": {"istio.io/config": null}}}"#)?;
                let labelled = || Ok(map("demo")?.filter(|map| map["metadata"]["labels"].is_object()));
                let found = installation.wait_for(patience(expected("restored")), labelled)?;
                Ok(json!({"restored": found.is_some()}))
            }
            Self::CreateNamespace(name) => {
                installation.create_namespaces(&[*name])?;
                let found = installation.wait_for(patience(expected("created")), || map(name))?;
                Ok(match found {
                    Some(map) => json!({"created": true, "labels": map["metadata"]["labels"]}),
                    None => json!({"created": false}),
                })
            }
            Self::DeleteSecret(name) => {
                installation.kubectl(&["delete", "secret", name, &format!("--namespace={SYSTEM}")])?;
                let again = || installation.object("secret", SYSTEM, name);
                let found = installation.wait_for(patience(expected("recreated")), again)?;
                Ok(json!({"recreated": found.is_some()}))
            }
        }
    }
}

fn keys(object: &Json) -> Vec<&str> {
    object["data"].as_object().map(|data| data.keys().map(String::as_str).collect()).unwrap_or_default()
}

/// A field of a Secret.
fn field(secret: &Json, name: &str) -> anyhow::Result<String> {
    let encoded = secret["data"][name].as_str().with_context(|| format!("no {name}"))?;
    Ok(String::from_utf8(BASE64_STANDARD.decode(encoded)?)?)
}

/// What kind of thing each field of a Secret is, but for the state of rotations, which is Canopus' own.
fn contents(secret: &Json, prefix: &str) -> anyhow::Result<Json> {
    let mut printed = Map::new();
    for name in keys(secret).into_iter().filter(|name| !name.starts_with("canopus-")) {
        let text = field(secret, name)?;
        let label = text.strip_prefix("-----BEGIN ").and_then(|rest| rest.split_once("-----"));
        let kind = match label {
            _ if text.is_empty() => "empty".to_owned(),
            Some((label, _)) => format!("{prefix}{label}"),
            None => "something else".to_owned(),
        };
        printed.insert(name.to_owned(), kind.into());
    }
    Ok(printed.into())
}

/// The kind of a private key, by OpenSSL, which reads it from its standard input.
fn kind_of_key(text: &str) -> anyhow::Result<String> {
    let mut command = Command::new("openssl");
    command.args(["pkey", "-text", "-noout"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("openssl")?;
    child.stdin.take().context("no input")?.write_all(text.as_bytes())?;
    let said = String::from_utf8(child.wait_with_output()?.stdout)?;
    let (_, rest) = said.split_once("Private-Key: (").context("no private key")?;
    let bits = rest.split(' ').next().unwrap_or_default();
    Ok(format!("{}-{bits}", if said.contains("modulus:") { "RSA" } else { "EC" }))
}
