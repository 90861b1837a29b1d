//! `canopus tag` and `canopus revision`: revisions of the control plane, and names for them.

use std::fmt::Write as _;
use std::process::ExitCode;

use canopus_base::tree::Node;
use canopus_base::yaml;
use canopus_install::cluster::Installer;
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::cluster::{KubeArguments, block_on};
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};

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

pub(crate) fn run_tag(global: &Global, kube: &KubeArguments, arguments: &TagArguments) -> ExitCode {
    let done = block_on(async {
        match &arguments.command {
            TagCommand::Set(arguments) => set(global, kube, arguments).await,
            TagCommand::Generate(arguments) => generate(global, kube, arguments).await,
            TagCommand::List(arguments) => list_tags(kube, arguments).await,
            TagCommand::Remove(arguments) => remove(kube, arguments).await,
        }
    });
    done.unwrap_or_else(|error| say(&format!("Error: {error:#}\n"), exit::FAILURE))
}

pub(crate) fn run_revision(kube: &KubeArguments, arguments: &RevisionArguments) -> ExitCode {
    let RevisionCommand::List(arguments) = &arguments.command;
    let done = block_on(list_revisions(kube, arguments));
    done.unwrap_or_else(|error| say(&format!("Error: {error:#}\n"), exit::FAILURE))
}

async fn set(global: &Global, kube: &KubeArguments, arguments: &SetArguments) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    let SetArguments { tag, revision, overwrite, .. } = arguments;
    installer.set_tag(tag, revision, &global.istio_namespace, *overwrite).await?;
    let advice = format!(
        "The tag {tag} stands for revision {revision}. Namespaces with the label istio.io/rev={tag} get its proxies when their pods restart.\n"
    );
    Ok(say(&advice, ExitCode::SUCCESS))
}

async fn generate(
    global: &Global,
    kube: &KubeArguments,
    arguments: &SetArguments,
) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    let objects = installer.tag_objects(&arguments.tag, &arguments.revision, &global.istio_namespace).await?;
    let texts: Vec<String> =
        objects.into_iter().map(|object| yaml::node_to_string(&Node::from(object))).collect();
    Ok(print(&format!("{}\n", texts.join("\n---\n")), ExitCode::SUCCESS))
}

async fn remove(kube: &KubeArguments, arguments: &RemoveArguments) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    installer.remove_tag(&arguments.tag, arguments.skip_confirmation).await?;
    Ok(say(&format!("The tag {} is removed.\n", arguments.tag), ExitCode::SUCCESS))
}

async fn list_tags(kube: &KubeArguments, arguments: &ListArguments) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    let tags = installer.tags().await?;
    let rows: Vec<[String; 3]> =
        tags.into_iter().map(|tag| [tag.name, tag.revision, tag.namespaces.join(",")]).collect();
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
