//! `canopus manifest`: what an installation amounts to, without a cluster.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use canopus_install::{
    Input, Operator, Package, generate, merge_for_install, merge_inputs, to_yaml, translate,
};
use clap::Subcommand;

use crate::exit;
use crate::input;
use crate::output::{print, say};

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
    /// Write the Helm values and scripts that an IstioOperator stands for.
    Translate(TranslateArguments),
}

/// What is installed: charts, files and flags.
#[derive(clap::Args, Debug)]
pub(crate) struct Source {
    /// File with an IstioOperator, or `-` for standard input; may be repeated, the later one counts more.
    #[arg(short, long = "filename", value_name = "FILE", value_delimiter = ',')]
    filenames: Vec<String>,
    /// Setting by its path, such as `values.global.hub=example.com/mesh`; may be repeated.
    #[arg(short, long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Directory with `charts` and `profiles`, as releases of Istio have it; without, the charts that are built in.
    #[arg(short = 'd', long, value_name = "DIR", alias = "charts")]
    manifests: Option<String>,
    /// Revision of the control plane.
    #[arg(short, long, value_name = "REVISION")]
    revision: Option<String>,
}

#[derive(clap::Args, Debug)]
struct GenerateArguments {
    #[command(flatten)]
    source: Source,
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

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.command {
        Command::Generate(arguments) => run_generate(arguments),
        Command::Translate(arguments) => run_translate(arguments),
    };
    result.unwrap_or_else(|error| say(&format!("Error: {error:#}\n"), exit::FAILURE))
}

fn run_generate(arguments: &GenerateArguments) -> anyhow::Result<ExitCode> {
    let (package, operator) = arguments.source.load()?;
    let generated = generate(&package, &operator, arguments.force, None)?;
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

/// How files and flags become one configuration.
type Merge = fn(&Package, &[Input], &[String]) -> Result<Operator, canopus_install::Error>;

impl Source {
    /// What one file says.
    pub(crate) fn from_file(file: &str) -> Self {
        Self { filenames: vec![file.to_owned()], set: Vec::new(), manifests: None, revision: None }
    }

    /// The default profile, with nothing changed.
    pub(crate) fn default_profile() -> Self {
        Self { filenames: Vec::new(), set: Vec::new(), manifests: None, revision: None }
    }

    /// As [`Source::load`]; the default revision also becomes the one that checks objects which name no revision.
    pub(crate) fn load_for_install(&self) -> anyhow::Result<(Package, Operator)> {
        self.merge(&self.read()?, merge_for_install)
    }

    /// The charts and the configuration that flags and files name.
    pub(crate) fn load(&self) -> anyhow::Result<(Package, Operator)> {
        self.merge(&self.read()?, merge_inputs)
    }

    fn read(&self) -> anyhow::Result<Vec<Input>> {
        let mut inputs = Vec::new();
        for input in input::find(&self.filenames) {
            let bytes = input.read().map_err(anyhow::Error::msg)?;
            let text = String::from_utf8(bytes).with_context(|| format!("{}: not a text", input.name()))?;
            inputs.push(Input { file: input.name(), text });
        }
        Ok(inputs)
    }

    fn merge(&self, inputs: &[Input], merge: Merge) -> anyhow::Result<(Package, Operator)> {
        let mut flags = self.set.clone();
        let aliases = [("installPackagePath", &self.manifests), ("revision", &self.revision)];
        flags.extend(aliases.iter().filter_map(|(path, value)| Some(format!("{path}={}", value.as_ref()?))));
        // The directory may be named by a file or by a flag, so it takes a first look to know where profiles are.
        let named = merge_inputs(&Package::built_in(), inputs, &without_profile(&flags)).ok();
        let directory = named.and_then(|operator| {
            let path = operator.to_json().pointer("/spec/installPackagePath")?.as_str()?.to_owned();
            (!path.is_empty()).then_some(path)
        });
        let package = directory.map_or_else(Package::built_in, Package::open);
        let operator = merge(&package, inputs, &flags)?;
        Ok((package, operator))
    }
}

/// The flags without the profile, which may be one that only the directory has.
fn without_profile(flags: &[String]) -> Vec<String> {
    let mut flags: Vec<String> =
        flags.iter().filter(|flag| !flag.trim().starts_with("profile=")).cloned().collect();
    flags.push("profile=default".to_owned());
    flags
}
