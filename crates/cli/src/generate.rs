//! `canopus generate`: what a proxy would receive for the objects in files, without a cluster or a control plane.

mod config_dump;
mod diagnose;
mod render;
mod resource;

use std::process::ExitCode;

use anyhow::Context as _;
use canopus_envoy::bundle::Bundle;
use canopus_mesh::credential::{Account, SecretAccess};
use clap::ValueEnum;

use crate::files::FileArguments;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy::ProxyArguments;
use crate::{exit, files, input};
use resource::Type;

/// Print what a proxy would receive for the objects in files.
///
/// No cluster and no control plane take part. The same files and the same proxy always give the same bytes. Where the age of
/// objects decides, `metadata.creationTimestamp` counts; objects that have none are in the order of their names.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus generate -f mesh/ --pod productpage-v1-7c4.bookinfo
  canopus generate -f mesh/ --type router --labels istio=ingressgateway -n istio-system --ip 10.0.0.9 --types lds,rds -o yaml
  canopus generate -f mesh/ --proxy node.json -o config_dump | istioctl proxy-config listeners -f -
  canopus generate -f mesh/ --proxy node.json --show-secrets -o bootstrap > envoy.json && envoy --mode validate -c envoy.json
  canopus generate -f mesh/ --proxy node.json --canonical > before.json      to be compared after a change

Exit codes: 0 generated, 1 something could not be read or generated or, with --diagnostics, is wrong,
64 the command line makes no sense.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    files: FileArguments,
    /// Types to print, separated by commas; all but name tables if not given.
    #[arg(long, value_enum, value_name = "TYPES", value_delimiter = ',')]
    types: Vec<Type>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Json)]
    output: Format,
    /// Sort keys and resources and leave out versions, so that equal configuration is equal text.
    #[arg(long)]
    canonical: bool,
    /// Print private keys and credentials for pulling Wasm modules, which are left out otherwise.
    #[arg(long)]
    show_secrets: bool,
    /// Also say, on standard error, what is wrong with the objects and which parts of them had to be left out.
    #[arg(long)]
    diagnostics: bool,
    #[command(flatten)]
    proxy: ProxyArguments,
}

/// How resources are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Yaml,
    /// A line for each resource.
    Short,
    /// As Envoy's administration endpoint of that name answers.
    #[value(name = "config_dump")]
    ConfigDump,
    /// A configuration file that Envoy can check or run without a control plane; `--types` does not count.
    Bootstrap,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> ExitCode {
    match generate(global, arguments) {
        Ok(generated) => {
            let wrong = generated.words.iter().any(|word| word.is_error);
            let code = if wrong { exit::FAILURE } else { ExitCode::SUCCESS };
            let words: String = generated.words.iter().map(|word| word.text.as_str()).collect();
            match say(&words, ExitCode::SUCCESS) {
                ExitCode::SUCCESS => print(&generated.text, code),
                failure => failure,
            }
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// The output of the command.
struct Generated {
    text: String,
    words: Vec<Message>,
}

/// A message on standard error.
struct Message {
    text: String,
    is_error: bool,
}

impl Message {
    fn error(text: impl AsRef<str>) -> Self {
        Self { text: format!("Error: {}\n", text.as_ref()), is_error: true }
    }
}

fn generate(global: &Global, arguments: &Arguments) -> anyhow::Result<Generated> {
    let mut world = files::read(global, &arguments.files)?;
    let (node, identity) = arguments.proxy.node(global, &world)?;
    let proxy = canopus_mesh::proxy::Proxy::new(&node, Some(identity.clone())).context("the proxy's node")?;
    // A user who can read the files can read the Secrets in them.
    let account = Account {
        cluster: proxy.metadata.cluster_id.as_str().into(),
        namespace: identity.namespace,
        name: identity.service_account,
    };
    world.batch.set::<SecretAccess>(account, true);
    let engine = canopus_engine::Engine::new();
    engine.apply(world.batch);
    let snapshot = engine.snapshot();
    let mut bundle = Bundle::generate(&snapshot, &proxy)?;
    if !arguments.show_secrets {
        resource::hide_keys(&mut bundle.secrets)?;
    }
    let types = if arguments.types.is_empty() { Type::USUAL.to_vec() } else { arguments.types.clone() };
    let mut resources = resource::print_types(&bundle, &types)?;
    if !arguments.show_secrets {
        resource::hide_secrets(&mut resources);
    }
    let text = match arguments.output {
        Format::Short => render::short(&resources),
        Format::Json => render::json(&render::tree(resources, arguments.canonical)),
        Format::Yaml => render::yaml(&render::tree(resources, arguments.canonical)),
        Format::ConfigDump => render::json(&config_dump::tree(&node, resources, arguments.canonical)),
        Format::Bootstrap => render::json(&bundle.standalone(&node)?),
    };
    let mut words: Vec<_> = world.problems.iter().map(Message::error).collect();
    if arguments.diagnostics {
        // Decoding errors are part of the diagnostics.
        words = diagnose::objects(&input::find(&arguments.files.config), global);
        words.extend(diagnose::world(&snapshot)?);
        words.extend(diagnose::left_out(&snapshot, &proxy)?);
    }
    Ok(Generated { text, words })
}
