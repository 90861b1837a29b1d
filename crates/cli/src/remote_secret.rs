//! `canopus create-remote-secret`: a Secret with which a control plane reaches another cluster.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canopus_api::Kind;

use canopus_base::tree::Node;
use canopus_base::yaml;
use serde_json::{Value, json};

use crate::cluster::{Cluster, KubeArguments, collection_path, object_path};
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};

/// How often, and after which pauses, the API server is asked whether it has filled in a token.
const TOKEN_TRIES: usize = 20;
const TOKEN_PAUSE: Duration = Duration::from_millis(250);

/// Print a Secret that lets a control plane read this cluster.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus create-remote-secret --context west --name west | kubectl apply --context east -f -

Exit codes: 0 printed, 1 the cluster has no credentials to give, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// Name of this cluster in the mesh; without it, the UID of its namespace kube-system.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Service account whose credentials are given.
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Create the service account if there is none.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    create_service_account: bool,
    /// How to authenticate: bearer-token or plugin.
    #[arg(long, value_name = "TYPE", default_value = "bearer-token")]
    auth_type: String,
    /// Name of the authentication plugin.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    auth_plugin_name: String,
    /// Configuration of the authentication plugin: `key=value`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    auth_plugin_config: Vec<String>,
    /// What the Secret is for: remote for a cluster of the mesh, config for the one that holds the configuration.
    #[arg(long = "type", value_name = "TYPE", default_value = "remote")]
    secret_type: String,
    /// Address of the API server as the control plane reaches it.
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Name that the API server's certificate has.
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// Secret of the service account, if it has several.
    #[arg(long, value_name = "NAME")]
    secret_name: Option<String>,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    match secret(global, kube, arguments) {
        Ok((text, warning)) => {
            if let Some(warning) = warning {
                say(&format!("warn: {warning}\n"), ExitCode::SUCCESS);
            }
            print(&text, ExitCode::SUCCESS)
        }
        // Parity: istioctl says it twice, because command and library both print.
        Err(error) => say(&format!("error: {error:#}\nError: {error:#}\n"), exit::FAILURE),
    }
}

fn secret(
    global: &Global,
    kube: &KubeArguments,
    arguments: &Arguments,
) -> anyhow::Result<(String, Option<String>)> {
    let (default_account, is_config) = match arguments.secret_type.as_str() {
        "remote" => ("istio-reader-service-account", false),
        "config" => ("istiod", true),
        other => bail!("unsupported type: {other}"),
    };
    let is_plugin = match arguments.auth_type.as_str() {
        "bearer-token" => false,
        "plugin" => true,
        other => bail!("unsupported authentication type: {other}"),
    };
    let cluster = Cluster::connect(kube)?;
    let namespace = if global.namespace.is_empty() { &global.istio_namespace } else { &global.namespace };
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => {
            let system = cluster.find(Kind::Namespace, "", "kube-system")?;
            let uid = system.pointer("/metadata/uid").and_then(Node::as_str);
            uid.context("the namespace kube-system has no UID; name the cluster by --name")?.to_owned()
        }
    };
    let account = arguments.service_account.as_deref().unwrap_or(default_account);
    let credentials = Credentials { cluster: &cluster, namespace, account, arguments };
    let (ca, token) = credentials
        .read()
        .context("could not get access token to read resources from local kube-apiserver")?;
    let (server, warning) = match &arguments.server {
        Some(server) => (server.clone(), None),
        None => (cluster.url().to_owned(), unreachable_warning(cluster.url())),
    };
    let user = if is_plugin { arguments.plugin()? } else { json!({"token": token}) };
    let mut reached = json!({"certificate-authority-data": STANDARD.encode(ca.as_bytes()), "server": server});
    if let Some(name) = &arguments.tls_server_name {
        reached["tls-server-name"] = json!(name);
    }
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": reached}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
        "users": [{"name": name, "user": user}],
    });
    let (secret_name, key) = if is_config {
        ("istio-kubeconfig".to_owned(), "config")
    } else {
        (format!("istio-remote-secret-{name}"), name.as_str())
    };
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name,
            "namespace": namespace,
            "annotations": {"networking.istio.io/cluster": name},
            "labels": {"istio/multiCluster": "true"},
        },
        "stringData": {key: yaml::node_to_string(&Node::from(kubeconfig))},
    });
    let text = yaml::node_to_string(&Node::from(secret));
    Ok((format!("# This file is autogenerated, do not edit.\n{text}---\n"), warning))
}

impl Arguments {
    fn plugin(&self) -> anyhow::Result<Value> {
        let mut config = json!({});
        for pair in &self.auth_plugin_config {
            let (key, value) = pair
                .split_once('=')
                .with_context(|| format!("--auth-plugin-config {pair}: expected key=value"))?;
            config[key] = json!(value);
        }
        Ok(json!({"auth-provider": {"name": self.auth_plugin_name, "config": config}}))
    }
}

/// What to say of an address that only this machine can reach.
fn unreachable_warning(server: &str) -> Option<String> {
    (server.contains("127.0.0.1") || server.contains("localhost")).then(|| {
        format!(
            "server in Kubeconfig is {server}. This is likely not reachable from inside the cluster, if you're using Kubernetes in Docker, pass --server with the container IP for the API Server"
        )
    })
}

/// The credentials of a service account.
struct Credentials<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    account: &'a str,
    arguments: &'a Arguments,
}

impl Credentials<'_> {
    /// The roots of the API server and a token.
    fn read(&self) -> anyhow::Result<(String, String)> {
        self.ensure_account()?;
        let name = self.secret()?;
        let path = object_path(Kind::Secret, self.namespace, &name);
        for _ in 0..TOKEN_TRIES {
            let secret = self.cluster.get(&path)?;
            let data = |key: &str| {
                let text = secret.as_ref()?.get("data")?.get(key)?.as_str()?;
                String::from_utf8(STANDARD.decode(text).ok()?).ok()
            };
            if let (Some(ca), Some(token)) = (data("ca.crt"), data("token")) {
                return Ok((ca, token));
            }
            // The token controller fills it in a moment after it was created.
            thread::sleep(TOKEN_PAUSE);
        }
        bail!("secret {}/{name} has no token; does the cluster run a token controller?", self.namespace)
    }

    fn ensure_account(&self) -> anyhow::Result<()> {
        let Self { namespace, account, .. } = self;
        if self.cluster.exists(Kind::ServiceAccount, namespace, account)? {
            return Ok(());
        }
        if !self.arguments.create_service_account {
            bail!(
                "failed retrieving service account {account}.{namespace} required for creating the remote secret (hint: try installing a minimal Istio profile on the cluster first, or run with '--create-service-account=true'): serviceaccounts {account:?} not found"
            );
        }
        // The rights of the reader belong to the account of this name; another would have none.
        if *account == "istio-reader-service-account" {
            let object = json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace},
            });
            self.cluster.create(&collection_path(Kind::ServiceAccount, namespace), &object)?;
            return Ok(());
        }
        Err(anyhow!(
            "failed retrieving service account {account}.{namespace} after creating it: serviceaccounts {account:?} not found"
        ))
    }

    /// The name of the account's token Secret, which is created if there is none.
    fn secret(&self) -> anyhow::Result<String> {
        let Self { namespace, account, .. } = self;
        let belongs = |secret: &Node| {
            let annotation = secret.pointer("/metadata/annotations");
            let annotation = annotation.and_then(|all| all.get("kubernetes.io/service-account.name"));
            annotation.and_then(Node::as_str) == Some(account)
                && secret.get("type").and_then(Node::as_str) == Some("kubernetes.io/service-account-token")
        };
        if let Some(name) = &self.arguments.secret_name {
            let secret = self
                .cluster
                .find(Kind::Secret, namespace, name)
                .with_context(|| format!("could not get specified secret {namespace}/{name}"))?;
            if !belongs(&secret) {
                bail!("secret {namespace}/{name} does not reference ServiceAccount {account}");
            }
            return Ok(name.clone());
        }
        let secrets = self.cluster.list(Kind::Secret, namespace)?;
        if let Some(name) = secrets.iter().find(|secret| belongs(secret)).and_then(crate::cluster::name_of) {
            return Ok(name);
        }
        let name = format!("{account}-istio-remote-secret-token");
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token",
        });
        self.cluster.create(&collection_path(Kind::Secret, namespace), &object)?;
        Ok(name)
    }
}
