//! `canopus manifest`: what an installation amounts to, without a cluster.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use canopus_install::cluster::Installer;
use canopus_install::{Error, PackageError, generate, to_yaml, translate, type_at};
use clap::Subcommand;

use crate::blocking::block_on;
use crate::cluster::KubeArguments;
use crate::exit;
use crate::install::{self, InstallArguments};
use crate::install_source::Source;
use crate::output::{print, say};
use crate::persona::Persona;

/// Render an installation, or translate it for Helm.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the objects of an installation.
    #[command(after_help = "\
Examples:
  canopus manifest generate
  canopus manifest generate --manifests istio/manifests --set profile=ambient --set values.global.hub=example.com/mesh
  canopus manifest generate --manifests istio/manifests -f operator.yaml -o mesh.yaml")]
    Generate(GenerateArguments),
    /// Install a mesh: the same as `install`.
    #[command(alias = "apply")]
    Install(Box<InstallArguments>),
    /// Write the Helm values and scripts that an IstioOperator stands for.
    Translate(TranslateArguments),
}

#[derive(clap::Args, Debug)]
struct GenerateArguments {
    #[command(flatten)]
    source: Source,
    /// Render for the version of the cluster of the kubeconfig.
    #[arg(long)]
    cluster_specific: bool,
    /// Accepted and ignored, as istioctl does: everything is rendered.
    #[arg(long, value_name = "COMPONENTS", hide = true)]
    filter: Option<String>,
    /// Accepted and ignored: nothing is changed by rendering.
    #[arg(long, hide = true)]
    dry_run: bool,
    /// Go on though the configuration is invalid.
    #[arg(long)]
    force: bool,
    /// File to write to; without, standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct TranslateArguments {
    #[command(flatten)]
    source: Source,
    /// Directory to write to.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

pub(crate) fn run(persona: Persona, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let result = match &arguments.command {
        Command::Generate(arguments) => run_generate(kube, arguments),
        Command::Install(arguments) => return install::run(kube, arguments),
        Command::Translate(arguments) => run_translate(arguments),
    };
    result.unwrap_or_else(|error| {
        let words = match persona {
            Persona::Canopus => format!("{error:#}"),
            Persona::Istioctl => in_istioctl_words(&error),
        };
        say(&format!("Error: {words}\n"), exit::FAILURE)
    })
}

/// Parity: istioctl says less of what is wrong, in these words.
fn in_istioctl_words(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    if let Some(Error::Package(PackageError::UnknownProfile { name, .. })) = error.downcast_ref() {
        return format!(
            "merge inputs: profile {name:?} not found: open profiles/{name}.yaml: file does not exist"
        );
    }
    if let Some((file, reason)) =
        text.strip_prefix("cannot stat file ").and_then(|rest| rest.split_once(": stat "))
    {
        let reason = reason.rsplit(": ").next().unwrap_or(reason);
        return format!("merge inputs: open {}: {reason}", file.trim_matches('"'));
    }
    if text.starts_with("could not unmarshal: ") {
        return text.split(" at spec.").next().unwrap_or(&text).to_owned();
    }
    let unknown = text.split_once(": unknown field ").and_then(|(path, rest)| {
        let field = rest.split(';').next()?;
        Some(format!(
            "could not unmarshal: error unmarshaling JSON: while decoding JSON: unknown field {field} in \
             istio.operator.v1alpha1.{}",
            type_at(path)?
        ))
    });
    unknown.unwrap_or(text)
}

fn run_generate(kube: &KubeArguments, arguments: &GenerateArguments) -> anyhow::Result<ExitCode> {
    let (package, operator) = arguments.source.load()?;
    let version = if arguments.cluster_specific {
        let ask = async { Ok(Installer::new(kube.server().await?).kubernetes_version().await?) };
        Some(block_on(ask).context("--cluster-specific: cannot reach Kubernetes")?)
    } else {
        None
    };
    let generated = generate(&package, &operator, arguments.force, version.as_deref())?;
    for warning in &generated.warnings {
        say(&format!("warning: {warning}\n"), ExitCode::SUCCESS);
    }
    let text = to_yaml(&generated.manifests);
    match &arguments.output {
        None => Ok(print(&text, ExitCode::SUCCESS)),
        Some(file) => {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_translate(arguments: &TranslateArguments) -> anyhow::Result<ExitCode> {
    let (package, operator) = arguments.source.load()?;
    let translated = translate(&package, &operator)?;
    let directory = &arguments.output;
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for (name, text) in &translated.files {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        #[cfg(unix)]
        if name.ends_with(".sh") {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(say(&format!("Wrote {}; start with README.md.\n", directory.display()), ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_also_told_as_istioctl_tells_them() {
        let told = |text: &str| in_istioctl_words(&anyhow::anyhow!(text.to_owned()));
        assert_eq!(
            told("could not unmarshal: json: unknown field \"x\" at spec.x"),
            "could not unmarshal: json: unknown field \"x\""
        );
        assert_eq!(
            told("values.global: unknown field \"x\"; correct the name"),
            "could not unmarshal: error unmarshaling JSON: while decoding JSON: unknown field \"x\" in \
             istio.operator.v1alpha1.GlobalConfig"
        );
        assert_eq!(
            told("cannot stat file \"a.yaml\": stat a.yaml: no such file or directory"),
            "merge inputs: open a.yaml: no such file or directory"
        );
        assert_eq!(told("something else"), "something else");
    }
}
