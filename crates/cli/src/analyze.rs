//! `canopus analyze`: what is wrong with objects together, of files, of a cluster, or of a cluster with files applied to it.

mod print;
mod report;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use canopus_analysis::analyzer;
use canopus_analysis::world::{HOME_CLUSTER, Parsed, read_text};
use canopus_analysis::{Level, Outcome, Selection, Suppression, World, analyze, catalogue, generation};
use canopus_api::registry::Category;
use canopus_api::{Kind, mesh_config};
use clap::ValueEnum;

use crate::cluster::{Cluster, KubeArguments};
use crate::exit;
use crate::global::Global;
use crate::input::{self, Input};
use crate::output::{print, say};
use crate::persona::Persona;
use report::{FileError, Report};

/// Kinds that exist only in clusters. Istio does not read them from files, so that a route to a service of the cluster is not
/// reported only because the service is not in the file.
const RUNTIME_KINDS: [Kind; 5] = [Kind::Service, Kind::Namespace, Kind::Node, Kind::Pod, Kind::Secret];

/// Analyze objects of files, of the cluster, or of both.
///
/// Reports what is wrong with objects together: references to nothing, conflicts, policies that select nobody. With files
/// and a cluster, the files are looked at as if they had been applied.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus analyze                                the cluster, in the namespace of the context
  canopus analyze -A                             all namespaces
  canopus analyze -A routes.yaml mesh/           the cluster as if the files had been applied
  canopus analyze --use-kube=false mesh/         files alone
  canopus analyze -S \"IST0103=Pod shop/*\"        without a code for some objects
  canopus analyze -L                             the analyzers there are

Exit codes: 0 nothing as bad as --failure-threshold, 79 something was, 65 a file could not be read, 1 the analysis failed,
64 the command line makes no sense. With -o json or yaml the code is 0 whatever was found.")]
pub(crate) struct Arguments {
    /// Files, directories, or `-` for standard input.
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// List the analyzers available to run. Suppresses normal execution.
    #[arg(short = 'L', long)]
    list_analyzers: bool,
    /// Use live Kubernetes cluster for analysis. Set --use-kube=false to analyze files only.
    #[arg(short = 'k', long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    use_kube: Option<bool>,
    /// Use colour; by default where the terminal has it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    color: Option<bool>,
    /// Also print which analyzers ran.
    #[arg(short, long)]
    verbose: bool,
    /// The level from which on the exit code tells of it: Info, Warning or Error.
    #[arg(long, value_name = "LEVEL", default_value = "Error", value_parser = level)]
    failure_threshold: Level,
    /// The level from which on messages are printed: Info, Warning or Error.
    #[arg(long, value_name = "LEVEL", default_value = "Info", value_parser = level)]
    output_threshold: Level,
    /// Output format: log, json or yaml.
    #[arg(short, long, default_value = "log")]
    output: String,
    /// Mesh configuration that takes the place of the cluster's.
    #[arg(long = "meshConfigFile", alias = "mesh-config", value_name = "FILE")]
    mesh_config: Option<String>,
    /// Analyze all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Do not report a code for some objects: `CODE=Kind namespace/name`, where `*` stands for any characters.
    #[arg(short = 'S', long, value_name = "CODE=OBJECTS")]
    suppress: Vec<String>,
    /// How long the cluster may take to answer.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: String,
    /// Removed: directories are always read with all below them.
    #[arg(short = 'R', long, hide = true)]
    recursive: bool,
    /// Do not fail on documents that cannot be read.
    #[arg(long)]
    ignore_unknown: bool,
    /// The revision of the control plane.
    #[arg(short, long, default_value = "default")]
    revision: String,
    /// Contexts of further clusters, to find services that differ between clusters.
    #[arg(long, value_name = "CONTEXT")]
    remote_contexts: Vec<String>,
    /// Run only these analyzers; may be repeated.
    #[arg(long, value_name = "NAME")]
    analyzer: Vec<String>,
}

fn level(text: &str) -> Result<Level, String> {
    Level::parse(text).ok_or_else(|| "invalid level option".to_owned())
}

/// How messages are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Log,
    Json,
    Yaml,
}

pub(crate) fn run(
    persona: Persona,
    global: &Global,
    kube: &KubeArguments,
    arguments: &Arguments,
) -> ExitCode {
    let Ok(format) = Format::from_str(&arguments.output, true) else {
        let output = arguments.output.to_lowercase();
        let words = format!("Error: {output} not a valid option for format. See istioctl analyze --help\n");
        return say(&words, exit::usage());
    };
    if arguments.list_analyzers {
        return print(&list_analyzers(), ExitCode::SUCCESS);
    }
    if arguments.recursive {
        let words = "The recursive flag has been removed and is hardcoded to true without explicitly specifying it.\n";
        return print(words, ExitCode::SUCCESS);
    }
    match analyzed(persona, global, kube, arguments) {
        Ok(Some(report)) => print::print(&report, arguments, format),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

/// The analyzers by name, with what they check.
fn list_analyzers() -> String {
    let mut lines: Vec<String> =
        analyzer::ALL.iter().map(|one| format!("* {}:\n    {}\n", one.name(), one.about())).collect();
    lines.sort();
    lines.concat()
}

/// Reads everything and runs the analyzers; `None` if there is nothing to analyze and the user was told so.
fn analyzed(
    persona: Persona,
    global: &Global,
    kube: &KubeArguments,
    arguments: &Arguments,
) -> anyhow::Result<Option<Report>> {
    let (inputs, skipped) = files(&arguments.files)?;
    let mut report = Report { notes: skipped, ..Report::default() };
    let cluster = connect(persona, kube, arguments)?;
    report.namespace = match (&cluster, arguments.all_namespaces) {
        (_, true) => String::new(),
        (Some(cluster), false) => cluster.namespace(&global.namespace),
        (None, false) if global.namespace.is_empty() => "default".to_owned(),
        (None, false) => global.namespace.clone(),
    };
    if let Some(cluster) = &cluster
        && !report.namespace.is_empty()
        && !cluster.exists(Kind::Namespace, "", &report.namespace)?
    {
        say(&format!("namespace {:?} not found\n", global.namespace), ExitCode::SUCCESS);
        return Ok(None);
    }
    let selection = Selection {
        analyzers: arguments.analyzer.clone(),
        namespace: report.namespace.clone(),
        suppressions: suppressions(&arguments.suppress, &mut report)?,
    };
    let mut world = World::new(
        mesh_config::default_mesh_config(),
        mesh_config::default_networks(),
        &global.istio_namespace,
    );
    let is_alone = cluster.is_none();
    // Parity: istioctl takes what runs from the cluster alone.
    let reads = |kind: Kind| !(persona == Persona::Istioctl && RUNTIME_KINDS.contains(&kind));
    read_files(&inputs, reads, &mut world, &mut report);
    if let Some(cluster) = &cluster {
        cluster.fill(&mut world, HOME_CLUSTER, &arguments.revision)?;
        for context in &arguments.remote_contexts {
            Cluster::connect(&kube.with_context(context))?.fill_remote(&mut world, context)?;
        }
    }
    if let Some(file) = &arguments.mesh_config {
        // Parity: Istio goes on with the defaults when this file cannot be read; a user who names one wants to know.
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
        let base = mesh_config::default_mesh_config();
        world.mesh_config = mesh_config::apply(&text, &base).with_context(|| file.clone())?.value;
    }
    // What a cluster could have is known, even if it has none of it; of files alone that holds for what is in them.
    let counts = |kind: Kind| {
        !is_alone || reads(kind) && !(RUNTIME_KINDS.contains(&kind) && world.objects_of_kind(kind).is_empty())
    };
    report.with_clusters = !arguments.remote_contexts.is_empty();
    report.outcome = outcome(persona, &world, &selection, counts)?;
    Ok(Some(report))
}

/// What the analyzers say, and under our own name also what generation found out.
fn outcome(
    persona: Persona,
    world: &World,
    selection: &Selection,
    counts: impl Fn(Kind) -> bool,
) -> anyhow::Result<Outcome> {
    let mut outcome = analyze(world, selection, counts);
    if persona == Persona::Canopus && selection.analyzers.is_empty() {
        let found = generation::diagnose(world)?;
        outcome.messages.extend(found.into_iter().filter(|message| selection.reports(message)));
        outcome.messages.sort_by(canopus_analysis::Message::print_order);
    }
    Ok(outcome)
}

/// The cluster, unless only files are wanted. Under our own name, files without a kubeconfig are analyzed alone.
fn connect(persona: Persona, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<Option<Cluster>> {
    match arguments.use_kube {
        Some(false) => Ok(None),
        None if persona == Persona::Canopus && !arguments.files.is_empty() && !kube.is_configured() => {
            Ok(None)
        }
        // Parity: in istioctl, --timeout is not about single requests.
        _ if persona == Persona::Istioctl => Cluster::connect(kube).map(Some),
        _ => Cluster::connect(&kube.with_timeout(&arguments.timeout)).map(Some),
    }
}

fn suppressions(given: &[String], report: &mut Report) -> anyhow::Result<Vec<Suppression>> {
    let mut suppressions = Vec::new();
    for text in given {
        let suppression = Suppression::parse(text)
            .ok_or_else(|| anyhow!("{text} is not a valid suppression value. See istioctl analyze --help"))?;
        if !catalogue::ALL.iter().any(|message| message.code == suppression.code) {
            report.notes.push(format!(
                "Warning: Supplied message code '{}' is an unknown message code and will not have any effect.",
                suppression.code
            ));
        }
        suppressions.push(suppression);
    }
    Ok(suppressions)
}

/// The files to read, and notes about those that are passed over.
fn files(names: &[String]) -> anyhow::Result<(Vec<Input>, Vec<String>)> {
    let mut inputs = Vec::new();
    let mut notes = Vec::new();
    for input in input::find_all(names) {
        match &input {
            Input::Missing(path, error) => {
                bail!("stat {}: {}", path.display(), input::reason(error));
            }
            Input::File(path, _) if !input::is_document(path) => notes.push(format!(
                "Skipping file {}, recognized file extensions are: [.json .yaml .yml]",
                path.display()
            )),
            _ => inputs.push(input),
        }
    }
    Ok((inputs, notes))
}

fn read_files(inputs: &[Input], reads: impl Fn(Kind) -> bool, world: &mut World, report: &mut Report) {
    let cluster: Arc<str> = HOME_CLUSTER.into();
    let counts = |kind: Kind| reads(kind) && is_analyzed(kind);
    for input in inputs {
        let name = input.name();
        report.files.push(name.clone());
        let text = match input.read() {
            Ok(text) => text,
            Err(error) => {
                report.errors.push(FileError { file: name, documents: vec![(0, error)] });
                continue;
            }
        };
        let mut broken = Vec::new();
        for parsed in read_text(&name, &text, &report.namespace, &cluster, counts) {
            match parsed {
                Parsed::Resource(resource) => world.insert(*resource),
                Parsed::Skipped => {}
                Parsed::Broken { document, error } => broken.push((document, error)),
            }
        }
        if !broken.is_empty() {
            report.errors.push(FileError { file: name, documents: broken });
        }
    }
}

/// Whether an analyzer reads objects of a kind.
fn is_analyzed(kind: Kind) -> bool {
    let category = kind.info().category;
    category == Category::Istio || matches!(category, Category::GatewayApi) || analyzer::reads(kind)
}
