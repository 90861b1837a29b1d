//! `canopus install`, `upgrade` and `uninstall`: a mesh in a cluster.

mod confirm;
mod progress;
mod rollback;
mod show;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use canopus_install::cluster::{Installer, Owner, Plan, Removal};
use canopus_install::{Generated, generate};
use clap::ArgAction;

use self::confirm::confirm;
use self::progress::Reporter;
use crate::blocking::block_on;
use crate::cluster::KubeArguments;
use crate::exit;
use crate::global::Global;
use crate::input::go_duration;
use crate::install_source::Source;
use crate::output::{print, say};

pub(crate) use self::rollback::{RollbackArguments, run_rollback};

/// Install a mesh, or bring an installed one to another configuration.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus install                                    the control plane and an ingress gateway
  canopus install --set profile=minimal --dry-run    what would change, and nothing else
  canopus install --revision canary                  beside the one that is there
  canopus install -d istio/manifests -f operator.yaml")]
pub(crate) struct InstallArguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    waiting: Waiting,
    /// Show what would change, with the lines that do, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(short = 'y', long = "skip-confirmation")]
    skip_confirmation: bool,
    /// Go on though the configuration is invalid or something is in the way.
    #[arg(long)]
    force: bool,
    /// Keep objects of an earlier installation that are not part of this one.
    #[arg(long = "no-prune", action = ArgAction::SetFalse)]
    prune: bool,
}

/// Remove a mesh from a cluster.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus uninstall --revision canary    one control plane
  canopus uninstall --purge              everything, with all definitions and objects of Istio's kinds")]
pub(crate) struct UninstallArguments {
    /// Remove everything: all revisions, the definitions of kinds with all objects of them, and the mesh's namespace.
    #[arg(long, conflicts_with_all = ["revision", "filename"])]
    purge: bool,
    /// Remove the control plane of this revision.
    #[arg(short, long, value_name = "REVISION", conflicts_with = "filename")]
    revision: Option<String>,
    /// Remove what was installed from this IstioOperator.
    #[arg(short, long, value_name = "FILE")]
    filename: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
    /// Show what would be deleted, and delete nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(short = 'y', long = "skip-confirmation")]
    skip_confirmation: bool,
}

#[derive(clap::Args, Debug)]
struct Waiting {
    /// How long a component may take to be ready, such as `90s` or `5m`; `0s` to wait for nothing.
    #[arg(long = "readiness-timeout", value_name = "DURATION", default_value = "300s", value_parser = go_duration)]
    readiness_timeout: Duration,
}

pub(crate) fn run(kube: &KubeArguments, arguments: &InstallArguments) -> ExitCode {
    block_on(install(kube, arguments, false))
        .unwrap_or_else(|error| say(&format!("Error: {error:#}\n"), exit::FAILURE))
}

/// An upgrade is an installation over one that must be there.
pub(crate) fn run_upgrade(kube: &KubeArguments, arguments: &InstallArguments) -> ExitCode {
    block_on(install(kube, arguments, true))
        .unwrap_or_else(|error| say(&format!("Error: {error:#}\n"), exit::FAILURE))
}

pub(crate) fn run_uninstall(
    global: &Global,
    kube: &KubeArguments,
    arguments: &UninstallArguments,
) -> ExitCode {
    let done = block_on(uninstall(global, kube, arguments));
    done.unwrap_or_else(|error| say(&format!("Error: {error:#}\n"), exit::FAILURE))
}

async fn install(
    kube: &KubeArguments,
    arguments: &InstallArguments,
    is_upgrade: bool,
) -> anyhow::Result<ExitCode> {
    let (package, operator) = arguments.source.load_for_install()?;
    let mut installer = Installer::new(kube.server().await?);
    let version = installer.kubernetes_version().await.context("cannot reach Kubernetes")?;
    let generated = generate(&package, &operator, arguments.force, Some(&version))?;
    let owner = Owner::new(&operator);
    if is_upgrade {
        ensure_installed(&mut installer, &owner).await?;
    }
    let mut is_blocked = false;
    for finding in installer.precheck(&generated, &owner).await? {
        let word = if finding.is_error && !arguments.force { "error" } else { "warning" };
        is_blocked |= word == "error";
        say(&format!("{word}: {}\n", finding.message), ExitCode::SUCCESS);
    }
    for warning in &generated.warnings {
        say(&format!("warning: {warning}\n"), ExitCode::SUCCESS);
    }
    if is_blocked {
        bail!("nothing was changed; go on all the same with --force");
    }
    let mut plan = installer.plan(&generated, &owner).await?;
    if !arguments.prune {
        plan.prune.clear();
    }
    if arguments.dry_run {
        return Ok(print(&show::plan(&plan), ExitCode::SUCCESS));
    }
    if plan.is_empty() {
        say("The cluster is as it should be.\n", ExitCode::SUCCESS);
    } else {
        say(&show::summary(&plan), ExitCode::SUCCESS);
        let question = format!("Install revision {} into {}?", owner.revision, owner.namespace);
        if !arguments.skip_confirmation && !confirm(&question)? {
            return Ok(say("Nothing was changed.\n", exit::FAILURE));
        }
    }
    let is_change = !plan.is_empty();
    carry_out(&mut installer, &plan, &arguments.waiting).await?;
    if is_change {
        remember(&mut installer, &generated, &owner).await;
    }
    Ok(say(&show::finished(&owner), ExitCode::SUCCESS))
}

/// Records an installation. It is there all the same if that cannot be done.
async fn remember(installer: &mut Installer, generated: &Generated, owner: &Owner) {
    if let Err(error) = installer.record(generated, owner).await {
        say(&format!("warning: this installation cannot be gone back to: {error}\n"), ExitCode::SUCCESS);
    }
}

async fn ensure_installed(installer: &mut Installer, owner: &Owner) -> anyhow::Result<()> {
    let revisions = installer.revisions().await?;
    if !revisions.contains(&owner.revision) {
        bail!(
            "revision {} is not installed (there are: {}); install it with `canopus install`",
            owner.revision,
            if revisions.is_empty() { "none".to_owned() } else { revisions.join(", ") }
        );
    }
    Ok(())
}

async fn carry_out(installer: &mut Installer, plan: &Plan, waiting: &Waiting) -> anyhow::Result<()> {
    let mut reporter = Reporter::new();
    let done = installer.carry_out(plan, waiting.readiness_timeout, &mut reporter).await;
    reporter.finish();
    Ok(done?)
}

async fn uninstall(
    global: &Global,
    kube: &KubeArguments,
    arguments: &UninstallArguments,
) -> anyhow::Result<ExitCode> {
    let removal = arguments.removal(global)?;
    let mut installer = Installer::new(kube.server().await?);
    let objects = installer.to_remove(&removal).await.context("cannot see what is installed")?;
    if objects.is_empty() {
        return Ok(say("Nothing of it is installed.\n", ExitCode::SUCCESS));
    }
    let lines: String = objects.iter().map(|object| format!("  - {object}\n")).collect();
    if arguments.dry_run {
        return Ok(print(&format!("Would delete:\n{lines}"), ExitCode::SUCCESS));
    }
    say(&format!("This deletes {} objects:\n{lines}", objects.len()), ExitCode::SUCCESS);
    if let Removal::Revision(revision) = &removal {
        let namespaces = installer.namespaces_of(revision).await?;
        if !namespaces.is_empty() {
            let names = namespaces.join(", ");
            say(
                &format!("warning: pods of {names} lose their control plane and get no new configuration\n"),
                ExitCode::SUCCESS,
            );
        }
    }
    if !arguments.skip_confirmation && !confirm("Delete them?")? {
        return Ok(say("Nothing was changed.\n", exit::FAILURE));
    }
    let mut reporter = Reporter::new();
    let done = installer.remove(&objects, arguments.waiting.readiness_timeout, &mut reporter).await;
    reporter.finish();
    done?;
    Ok(say("Uninstalled.\n", ExitCode::SUCCESS))
}

impl UninstallArguments {
    fn removal(&self, global: &Global) -> anyhow::Result<Removal> {
        if self.purge {
            return Ok(Removal::Purge { namespace: global.istio_namespace.clone() });
        }
        if let Some(revision) = &self.revision {
            return Ok(Removal::Revision(revision.clone()));
        }
        let Some(file) = &self.filename else {
            bail!("say what to remove: --revision REVISION, --filename FILE, or --purge for everything");
        };
        let (_, operator) = Source::from_file(file).load()?;
        Ok(Removal::Owner(Owner::new(&operator)))
    }
}
