//! `canopus kube-inject`: workloads with their proxies written out, from files alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

use anyhow::{Context as _, bail};
use canopus_admission::injection::workload::Rewritten;
use canopus_admission::injection::{Config, Injector, Values};
use canopus_api::mesh_config;
use canopus_base::tree::Node;
use canopus_install::{Input, Package, merge_inputs};
use canopus_runtime::flags::{ENABLE_NATIVE_SIDECARS, Flags};

use crate::exit;
use crate::input;
use crate::output::{print, say};

/// Inject proxies into workloads, for clusters without the webhook.
///
/// Documents of other kinds are passed on as they are, so a file may hold a whole application.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  # What the webhook would use, captured once
  kubectl -n istio-system get cm istio-sidecar-injector -o jsonpath='{.data.config}' > inject-config.yaml
  kubectl -n istio-system get cm istio-sidecar-injector -o jsonpath='{.data.values}' > inject-values.json
  kubectl -n istio-system get cm istio -o jsonpath='{.data.mesh}' > mesh.yaml

  canopus kube-inject -f deployment.yaml --injectConfigFile inject-config.yaml \\
    --meshConfigFile mesh.yaml --valuesFile inject-values.json | kubectl apply -f -")]
pub(crate) struct Arguments {
    /// File with workloads, or `-` for standard input.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true,
        overrides_with = "filename"
    )]
    filename: String,
    /// File to write to; without, standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// File with the mesh configuration.
    #[arg(long = "meshConfigFile", value_name = "FILE")]
    mesh_config_file: Option<String>,
    /// File with the injector's configuration, or with the template of the sidecar alone.
    #[arg(long = "injectConfigFile", value_name = "FILE")]
    inject_config_file: Option<String>,
    /// File with the values of the installation.
    #[arg(long = "valuesFile", value_name = "FILE")]
    values_file: Option<String>,
    /// File with an IstioOperator, in the place of the mesh configuration and the values.
    #[arg(long = "operatorFileName", value_name = "FILE")]
    operator_file: Option<String>,
    /// ConfigMap with the mesh configuration: clusters are not asked, give --meshConfigFile.
    #[arg(long = "meshConfigMapName", value_name = "NAME", default_value = "istio", hide = true)]
    mesh_config_map: String,
    /// Webhook configuration: clusters are not asked, give --injectConfigFile.
    #[arg(
        long = "webhookConfig",
        value_name = "NAME",
        default_value = "istio-sidecar-injector",
        hide = true
    )]
    webhook_config: String,
    /// Revision of the control plane.
    #[arg(short, long, value_name = "REVISION", default_value = "", hide_default_value = true)]
    revision: String,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match inject(arguments) {
        Ok(rewritten) => {
            for warning in &rewritten.warnings {
                say(&format!("\n{warning}"), ExitCode::SUCCESS);
            }
            write(arguments.output.as_deref(), &rewritten.text)
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn write(file: Option<&str>, text: &str) -> ExitCode {
    let Some(file) = file else { return print(text, ExitCode::SUCCESS) };
    match fs::write(file, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => say(&format!("Error: cannot write {file}: {error}\n"), exit::FAILURE),
    }
}

fn inject(arguments: &Arguments) -> anyhow::Result<Rewritten> {
    if arguments.filename.is_empty() {
        bail!("filename not specified (see --filename or -f)");
    }
    let text = read(&arguments.filename)?;
    let flags = Flags::from_env();
    let native = flags.get(ENABLE_NATIVE_SIDECARS) == "true";
    injector(arguments)?.rewrite(&text, native).map_err(Into::into)
}

/// The injector that the files describe.
fn injector(arguments: &Arguments) -> anyhow::Result<Injector> {
    let (mut values, mut mesh) = (None, None);
    if let Some(file) = &arguments.operator_file {
        let inputs = [Input { file: file.clone(), text: read(file)? }];
        let operator = merge_inputs(&Package::built_in(), &inputs, &[])?;
        values = Some(operator.values().to_string());
        mesh = operator.mesh_config().map(|mesh| Node::from(mesh.clone()));
    }
    let defaults = mesh_config::default_mesh_config();
    let mesh = match (mesh, &arguments.mesh_config_file) {
        (Some(mesh), _) => mesh_config::apply_node(&mesh, &defaults)?.value,
        (None, Some(file)) => {
            mesh_config::apply(&read(file)?, &defaults).with_context(|| file.clone())?.value
        }
        (None, None) => bail!("no mesh configuration: give --meshConfigFile or --operatorFileName"),
    };
    let Some(file) = &arguments.inject_config_file else {
        bail!("no injector configuration: give --injectConfigFile");
    };
    let config = Config::read_file(&read(file)?, &BTreeMap::new()).with_context(|| file.clone())?;
    let values = match (values, &arguments.values_file) {
        (Some(values), _) => values,
        (None, Some(file)) => read(file)?,
        (None, None) => bail!("no values: give --valuesFile or --operatorFileName"),
    };
    // Templates know the default revision by an empty name.
    let revision = if arguments.revision == "default" { "" } else { &arguments.revision };
    Ok(Injector::new(config, Values::read(&values)?, mesh, revision))
}

fn read(file: &str) -> anyhow::Result<String> {
    if file != "-"
        && let Err(error) = fs::metadata(Path::new(file))
        && error.kind() == io::ErrorKind::NotFound
    {
        bail!("open {file}: no such file or directory");
    }
    let inputs = input::find(&[file.to_owned()]);
    let Some(input) = inputs.first() else { bail!("{file}: there is no file in this directory") };
    let bytes = input.read().map_err(anyhow::Error::msg)?;
    String::from_utf8(bytes).with_context(|| format!("{file}: not a text"))
}
