//! `canopus tag` and `canopus revision`: revisions of the control plane, and names for them.

use std::fmt::Write as _;
use std::io::{self, BufRead as _};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use canopus_api::labels;
use canopus_base::tree::Node;
use canopus_base::yaml;
use canopus_install::cluster::{Installer, TagShape};
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::blocking::block_on;
use crate::cluster::KubeArguments;
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::persona::Persona;

/// Name revisions, so that namespaces move by moving a tag.
#[derive(clap::Args, Debug)]
pub(crate) struct TagArguments {
    #[command(subcommand)]
    command: TagCommand,
}

#[derive(Debug, Subcommand)]
enum TagCommand {
    /// Make a tag stand for a revision.
    Set(SetArguments),
    /// Print the objects that make a tag stand for a revision.
    Generate(SetArguments),
    /// List the tags.
    #[command(visible_alias = "show")]
    List(ListArguments),
    /// Remove a tag.
    #[command(visible_alias = "delete")]
    Remove(RemoveArguments),
}

#[derive(clap::Args, Debug)]
struct SetArguments {
    /// The tag.
    tag: String,
    /// The revision it stands for.
    #[arg(short, long, value_name = "REVISION")]
    revision: String,
    /// Move the tag if it stands for another revision.
    #[arg(long)]
    overwrite: bool,
    /// Set it though its webhooks would ask a service that does not exist.
    #[arg(short = 'y', long = "skip-confirmation")]
    skip_confirmation: bool,
    /// For the tag `default`: also inject pods without any label in namespaces without any.
    #[arg(long)]
    auto_inject_namespaces: bool,
    /// Name of the webhook configuration.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    webhook_name: String,
    /// Accepted and ignored: tags are made from the injector of the revision.
    #[arg(short = 'd', long, value_name = "DIR", hide = true)]
    manifests: Option<String>,
}

#[derive(clap::Args, Debug)]
struct ListArguments {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(clap::Args, Debug)]
struct RemoveArguments {
    /// The tag.
    tag: String,
    /// Remove it though namespaces name it.
    #[arg(short = 'y', long = "skip-confirmation")]
    skip_confirmation: bool,
}

/// Look at the revisions of the control plane.
#[derive(clap::Args, Debug)]
pub(crate) struct RevisionArguments {
    #[command(subcommand)]
    command: RevisionCommand,
}

#[derive(Debug, Subcommand)]
enum RevisionCommand {
    /// List the revisions, with their tags and namespaces.
    List(ListArguments),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub(crate) fn run_tag(
    persona: Persona,
    global: &Global,
    kube: &KubeArguments,
    arguments: &TagArguments,
) -> ExitCode {
    let done = block_on(async {
        match &arguments.command {
            TagCommand::Set(arguments) => set(persona, global, kube, arguments).await,
            TagCommand::Generate(arguments) => generate(persona, global, kube, arguments).await,
            TagCommand::List(arguments) => list_tags(persona, kube, arguments).await,
            TagCommand::Remove(arguments) => remove(persona, kube, arguments).await,
        }
    });
    done.unwrap_or_else(|error| say(&format!("Error: {error:#}\n"), exit::FAILURE))
}

pub(crate) fn run_revision(kube: &KubeArguments, arguments: &RevisionArguments) -> ExitCode {
    let RevisionCommand::List(arguments) = &arguments.command;
    let done = block_on(list_revisions(kube, arguments));
    done.unwrap_or_else(|error| say(&format!("Error: {error:#}\n"), exit::FAILURE))
}

impl SetArguments {
    fn shape(&self) -> TagShape<'_> {
        TagShape {
            injects_unlabelled: self.auto_inject_namespaces,
            name: Some(self.webhook_name.as_str()).filter(|name| !name.is_empty()),
        }
    }
}

async fn set(
    persona: Persona,
    global: &Global,
    kube: &KubeArguments,
    arguments: &SetArguments,
) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    let SetArguments { tag, revision, overwrite, .. } = arguments;
    let namespace = &global.istio_namespace;
    if !arguments.skip_confirmation {
        let conflicts = conflicts(persona, &mut installer, namespace, arguments).await?;
        if !conflicts.is_empty() {
            say(
                &format!("creating tag would conflict, pass --skip-confirmation to proceed:\n{conflicts}\n"),
                ExitCode::SUCCESS,
            );
            print("Apply anyways? [y/N] ", ExitCode::SUCCESS);
            let mut answer = String::new();
            io::stdin().lock().read_line(&mut answer)?;
            if !matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    let done = installer.set_tag(tag, revision, namespace, *overwrite, arguments.shape()).await;
    done.map_err(|error| in_words_of(persona, error.into(), revision, "modify"))?;
    Ok(match persona {
        Persona::Istioctl => print(
            &format!(
                "Revision tag {tag:?} created, referencing control plane revision {revision:?}. To enable injection using \
                 this\nrevision tag, use 'kubectl label namespace <NAMESPACE> istio.io/rev={tag}'\n"
            ),
            ExitCode::SUCCESS,
        ),
        Persona::Canopus => say(
            &format!(
                "The tag {tag} stands for revision {revision}. Namespaces with the label istio.io/rev={tag} get its \
                 proxies when their pods restart.\n"
            ),
            ExitCode::SUCCESS,
        ),
    })
}

/// Why the webhooks of a tag would fail; empty if they would not.
async fn conflicts(
    persona: Persona,
    installer: &mut Installer,
    namespace: &str,
    arguments: &SetArguments,
) -> anyhow::Result<String> {
    let SetArguments { tag, revision, .. } = arguments;
    let objects = installer.tag_objects(tag, revision, namespace, arguments.shape()).await;
    let objects = objects.map_err(|error| in_words_of(persona, error.into(), revision, "modify"))?;
    let mut lines = Vec::new();
    for object in &objects {
        let service = &object["webhooks"][0]["clientConfig"]["service"];
        let (Some(namespace), Some(name)) = (service["namespace"].as_str(), service["name"].as_str()) else {
            continue;
        };
        if !installer.service_exists(namespace, name).await? {
            lines.push(format!(
                "Error [IST0139] ({} {} ) Injector refers to a control plane service that does not exist: \
                 {namespace}/{name}.",
                object["kind"].as_str().unwrap_or_default(),
                object["metadata"]["name"].as_str().unwrap_or_default(),
            ));
        }
    }
    Ok(lines.join("\n"))
}

/// Parity: istioctl's words for what is not there.
fn in_words_of(persona: Persona, error: anyhow::Error, revision: &str, verb: &str) -> anyhow::Error {
    match persona {
        Persona::Istioctl if error.to_string().starts_with("no injector of revision") => anyhow!(
            "cannot {verb} tag: cannot find MutatingWebhookConfiguration or Service with revision {revision:?}"
        ),
        _ => error,
    }
}

async fn generate(
    persona: Persona,
    global: &Global,
    kube: &KubeArguments,
    arguments: &SetArguments,
) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    let (tag, revision) = (&arguments.tag, &arguments.revision);
    let namespace = &global.istio_namespace;
    let objects = installer.tag_objects(tag, revision, namespace, arguments.shape()).await;
    let mut objects = objects.map_err(|error| in_words_of(persona, error.into(), revision, "generate"))?;
    let conflicts = conflicts(persona, &mut installer, namespace, arguments).await?;
    if !conflicts.is_empty() {
        say(
            &format!("creating tag would conflict, pass --skip-confirmation to proceed:\n{conflicts}\n"),
            ExitCode::SUCCESS,
        );
    }
    if persona == Persona::Istioctl {
        objects.iter_mut().for_each(as_istioctl_prints);
    }
    let texts: Vec<String> =
        objects.into_iter().map(|object| yaml::node_to_string(&Node::from(object))).collect();
    Ok(print(&format!("{}\n", texts.join("\n---\n")), ExitCode::SUCCESS))
}

/// Parity: istioctl leaves out what would have an installer take the tag for its own, and Go writes fields of a Service that
/// say nothing.
fn as_istioctl_prints(object: &mut Value) {
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        labels.remove(labels::OPERATOR_COMPONENT.name);
        labels.remove("install.operator.istio.io/owning-resource");
    }
    if object["kind"] != "Service" {
        return;
    }
    object["status"] = json!({"loadBalancer": {}});
    for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
        if port["targetPort"].is_null() {
            port["targetPort"] = json!(0);
        }
    }
}

async fn remove(
    persona: Persona,
    kube: &KubeArguments,
    arguments: &RemoveArguments,
) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    let tag = &arguments.tag;
    if persona == Persona::Istioctl && !installer.tags().await?.iter().any(|known| known.name == *tag) {
        bail!("cannot remove tag {tag:?}: cannot find MutatingWebhookConfiguration or Service for tag");
    }
    installer.remove_tag(tag, arguments.skip_confirmation).await?;
    Ok(match persona {
        Persona::Istioctl => print(&format!("Revision tag {tag} removed\n"), ExitCode::SUCCESS),
        Persona::Canopus => say(&format!("The tag {tag} is removed.\n"), ExitCode::SUCCESS),
    })
}

async fn list_tags(
    persona: Persona,
    kube: &KubeArguments,
    arguments: &ListArguments,
) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    let tags = installer.tags().await?;
    let mut rows: Vec<[String; 3]> =
        tags.into_iter().map(|tag| [tag.name, tag.revision, tag.namespaces.join(",")]).collect();
    if persona == Persona::Istioctl {
        // Parity: revisions without a tag are listed under an empty one.
        for revision in installer.revisions().await? {
            if !rows.iter().any(|row| row[1] == revision) {
                rows.push([String::new(), revision, String::new()]);
            }
        }
        if rows.is_empty() {
            return Ok(print("No Istio revision tags found.\n", ExitCode::SUCCESS));
        }
        if matches!(arguments.output, Format::Table) {
            let head = crate::table::row(["TAG", "REVISION", "NAMESPACES"]);
            let all: Vec<Vec<String>> =
                std::iter::once(head).chain(rows.iter().map(|row| row.to_vec())).collect();
            return Ok(print(&crate::table::aligned(&all, 1), ExitCode::SUCCESS));
        }
    }
    Ok(render(["TAG", "REVISION", "NAMESPACES"], ["tag", "revision", "namespaces"], &rows, arguments.output))
}

async fn list_revisions(kube: &KubeArguments, arguments: &ListArguments) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    let tags = installer.tags().await?;
    let mut rows = Vec::new();
    for revision in installer.revisions().await? {
        let own: Vec<&str> =
            tags.iter().filter(|tag| tag.revision == revision).map(|tag| tag.name.as_str()).collect();
        let mut namespaces = installer.namespaces_of(&revision).await?;
        for tag in tags.iter().filter(|tag| tag.revision == revision) {
            namespaces.extend(tag.namespaces.iter().cloned());
        }
        namespaces.sort();
        namespaces.dedup();
        rows.push([revision, own.join(","), namespaces.join(",")]);
    }
    Ok(render(
        ["REVISION", "TAGS", "NAMESPACES"],
        ["revision", "tags", "namespaces"],
        &rows,
        arguments.output,
    ))
}

fn render(head: [&str; 3], fields: [&str; 3], rows: &[[String; 3]], format: Format) -> ExitCode {
    if matches!(format, Format::Json) {
        let list =
            |text: &str| text.split(',').filter(|part| !part.is_empty()).map(Value::from).collect::<Vec<_>>();
        let row = |row: &[String; 3]| {
            let cell = |at: usize| {
                if matches!(fields[at], "tags" | "namespaces") {
                    json!(list(&row[at]))
                } else {
                    json!(row[at])
                }
            };
            json!({fields[0]: cell(0), fields[1]: cell(1), fields[2]: cell(2)})
        };
        return print(
            &format!("{:#}\n", Value::from(rows.iter().map(row).collect::<Vec<_>>())),
            ExitCode::SUCCESS,
        );
    }
    let width = |at: usize| {
        rows.iter().map(|row| row[at].chars().count()).chain([head[at].len()]).max().unwrap_or_default() + 3
    };
    let mut text = String::new();
    let cells = std::iter::once(head.map(str::to_owned)).chain(rows.iter().cloned());
    for [first, second, third] in cells {
        let line = format!("{first:<one$}{second:<two$}{third}", one = width(0), two = width(1));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    print(&text, ExitCode::SUCCESS)
}
