//! `canopus ca`: what the certificate authority is doing, and what an operator has it do.
//!
//! The state of a self-signed root is data: a directory beside the configuration, or a Secret of the cluster. Commands work on
//! that data with the rights of whoever runs them, so there is no port that changes an authority.

mod store;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use canopus_identity::authority::Lifetimes;
use canopus_identity::certificate::Certificate;
use canopus_identity::rotation::{self, Phase, Policy};
use canopus_identity::token::{self, Grant};
use clap::Subcommand;
use rustls_pki_types::UnixTime;

use self::store::StoreArguments;
use crate::blocking::block_on;
use crate::cluster::KubeArguments;
use crate::control_plane::ControlPlaneArguments;
use crate::global::Global;
use crate::output::{print, say};
use crate::{daemon, exit};

/// Look at the certificate authority, rotate its root, issue join tokens.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus ca status                                  the cluster of the kubeconfig, all control planes in it
  canopus ca status --daemon http://localhost:8080
  canopus ca status --directory mesh-ca
  canopus ca roots --directory mesh-ca > root-cert.pem
  canopus ca rotate --kubeconfig ~/.kube/config
  canopus ca token --directory mesh-ca -n shop --service-account cart --single-use")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print how far a rotation is, and when certificates expire.
    Status {
        /// Ask a running control plane, which also knows the certificates of gateways and workloads; may be repeated. Without
        /// it and `--directory`, all that run in the cluster are asked.
        #[arg(long, value_name = "URL", conflicts_with = "directory")]
        daemon: Vec<String>,
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Print the roots that are handed out, as PEM.
    Roots {
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Ask for a new root with a new key. Control planes begin within a minute, and no proxy notices.
    Rotate {
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Issue a join token, which an agent on a plain machine exchanges for its first certificate.
    Token(TokenArguments),
}

#[derive(clap::Args, Debug)]
struct TokenArguments {
    /// Directory of the authority: for the configuration `mesh` it is `mesh-ca`.
    #[arg(long, value_name = "DIR")]
    directory: std::path::PathBuf,
    /// Service account the token is for, in the namespace of `--namespace`.
    #[arg(long, value_name = "NAME", default_value = "default")]
    service_account: String,
    /// How long the token counts, at most 24h.
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    ttl: canopus_base::duration::Duration,
    /// Whether the token counts for one certificate alone. The agent must then keep its certificate to renew it.
    #[arg(long)]
    single_use: bool,
    /// Audience the control plane expects, the first of its `TOKEN_AUDIENCES`.
    #[arg(long, value_name = "NAME", default_value = "istio-ca")]
    audience: String,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    match act(global, kube, arguments) {
        Ok((text, words)) => match say(&words, ExitCode::SUCCESS) {
            ExitCode::SUCCESS => print(&text, ExitCode::SUCCESS),
            failure => failure,
        },
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// What is printed, and what is said beside it.
fn act(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<(String, String)> {
    match &arguments.command {
        Command::Status { daemon, store } => status(global, kube, daemon, store),
        Command::Roots { store } => Ok((block_on(roots(global, kube, store))?, String::new())),
        Command::Rotate { store } => Ok((String::new(), block_on(rotate(global, kube, store))?)),
        Command::Token(arguments) => {
            Ok((block_on(issue(global, arguments))?, words(&global.namespace, arguments)))
        }
    }
}

/// What control planes answer. A root in a directory, or in a cluster where none answers, speaks for itself.
fn status(
    global: &Global,
    kube: &KubeArguments,
    daemons: &[String],
    store: &StoreArguments,
) -> anyhow::Result<(String, String)> {
    const PATH: &str = "/debug/certificates";
    if !daemons.is_empty() {
        let ask = |url: &String| Ok((url.clone(), daemon::ask(url, PATH, &[])?));
        let answers: Vec<_> = daemons.iter().map(ask).collect::<anyhow::Result<_>>()?;
        return Ok((table::answers(&answers, UnixTime::now()), String::new()));
    }
    if store.directory.is_some() || !kube.is_configured() {
        return Ok((block_on(stored(global, kube, store))?, String::new()));
    }
    let all = ControlPlaneArguments { daemon: None };
    match all.connect(global, kube).and_then(|control_planes| control_planes.ask_each(PATH, &[])) {
        Ok(answers) => Ok((table::answers(&answers, UnixTime::now()), String::new())),
        Err(reason) => {
            let text = block_on(stored(global, kube, store))?;
            Ok((text, format!("No control plane answers ({reason:#}); this is what is stored:\n")))
        }
    }
}

async fn stored(global: &Global, kube: &KubeArguments, arguments: &StoreArguments) -> anyhow::Result<String> {
    let (store, place) = arguments.open(global, kube).await?;
    let now = UnixTime::now();
    let stored = rotation::inspect(store.as_ref(), &Policy::default(), now).await?;
    let stored = stored.with_context(|| format!("{place}: there is no self-signed root"))?;
    Ok(table::stored(&stored, now))
}

async fn roots(global: &Global, kube: &KubeArguments, arguments: &StoreArguments) -> anyhow::Result<String> {
    let (store, place) = arguments.open(global, kube).await?;
    let stored = rotation::inspect(store.as_ref(), &Policy::default(), UnixTime::now()).await?;
    let stored = stored.with_context(|| format!("{place}: there is no self-signed root"))?;
    Ok(stored.roots.iter().map(Certificate::to_pem).collect::<Result<String, _>>()?)
}

async fn rotate(global: &Global, kube: &KubeArguments, arguments: &StoreArguments) -> anyhow::Result<String> {
    let (store, place) = arguments.open(global, kube).await?;
    // What the control plane's flags say is not known here; these are the defaults.
    let lifetimes = Lifetimes::default();
    let policy = Policy::default();
    let policy = Policy { propagation: policy.propagation.max(lifetimes.default), ..policy };
    let now = UnixTime::now();
    let stored = rotation::inspect(store.as_ref(), &policy, now).await?;
    let stored = stored.with_context(|| format!("{place}: there is no self-signed root to rotate"))?;
    let is_new = rotation::request(store.as_ref(), &policy, now).await?;
    let when = match stored.state.phase {
        _ if !is_new => "was asked for before".to_owned(),
        Phase::Stable => "begins within a minute".to_owned(),
        Phase::Distributing { .. } | Phase::Retiring { .. } => {
            "begins when the one under way is complete".to_owned()
        }
    };
    let days = |duration: Duration| duration.as_secs().div_ceil(24 * 3600);
    Ok(format!(
        "{place}: a rotation of the root {when}. Unless the control plane has other settings, the new root issues after {} \
         hours, and the old one is trusted for up to {} days more. See `canopus ca status`.\n",
        policy.distribution().as_secs() / 3600,
        days(policy.retirement()),
    ))
}

async fn issue(global: &Global, arguments: &TokenArguments) -> anyhow::Result<String> {
    let namespace = if global.namespace.is_empty() { "default" } else { &global.namespace };
    // A directory that is made here would have a key that no control plane knows.
    if !arguments.directory.join("current").exists() && !arguments.directory.join(token::DIRECTORY).exists() {
        bail!(
            "{}: this is not the directory of an authority; start `canopusd discovery --config DIR` first, whose authority \
             is in DIR-ca",
            arguments.directory.display()
        );
    }
    let lifetime = arguments.ttl.to_std().context("--ttl must not be negative")?;
    let issuer = token::open_directory(&arguments.directory, &arguments.audience).await?;
    let grant = Grant {
        namespace: namespace.to_owned(),
        service_account: arguments.service_account.clone(),
        lifetime,
        single_use: arguments.single_use,
    };
    Ok(format!("{}\n", issuer.issue(&grant, UnixTime::now())?))
}

fn words(namespace: &str, arguments: &TokenArguments) -> String {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    let once = if arguments.single_use { ", for a single use" } else { "" };
    format!("Token for {namespace}/{}, for {}{once}\n", arguments.service_account, arguments.ttl)
}
