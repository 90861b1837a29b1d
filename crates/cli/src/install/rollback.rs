//! `canopus rollback`: back to what was installed before.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use canopus_install::cluster::{Installation, Installer, Plan};

use super::confirm::confirm;
use super::{Waiting, carry_out, remember, show};
use crate::blocking::block_on;
use crate::cluster::KubeArguments;
use crate::exit;
use crate::output::{print, say};

/// Go back to an earlier installation of a revision.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Without --to, this is the newest installation that differs from what the cluster has: the one before an upgrade, whether that upgrade
succeeded or stopped half-way.

Examples:
  canopus rollback --list              what there is to go back to
  canopus rollback --dry-run           what would change, and nothing else
  canopus rollback --to 2              to this installation")]
pub(crate) struct RollbackArguments {
    /// The revision.
    #[arg(short, long, value_name = "REVISION", default_value = "default")]
    revision: String,
    /// The number of the installation to go back to.
    #[arg(long, value_name = "NUMBER")]
    to: Option<u32>,
    /// List the installations that are remembered.
    #[arg(long, conflicts_with = "to")]
    list: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Show what would change, with the lines that do, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(short = 'y', long = "skip-confirmation")]
    skip_confirmation: bool,
}

pub(crate) fn run_rollback(kube: &KubeArguments, arguments: &RollbackArguments) -> ExitCode {
    block_on(rollback(kube, arguments))
        .unwrap_or_else(|error| say(&format!("Error: {error:#}\n"), exit::FAILURE))
}

async fn rollback(kube: &KubeArguments, arguments: &RollbackArguments) -> anyhow::Result<ExitCode> {
    let mut installer = Installer::new(kube.server().await?);
    let revision = &arguments.revision;
    let known = installer.installations(revision).await.context("cannot see what was installed")?;
    if known.is_empty() {
        bail!(
            "no installation of revision {revision} is remembered; `canopus install` and `canopus upgrade` remember theirs"
        );
    }
    if arguments.list {
        return Ok(print(&listed(&known), ExitCode::SUCCESS));
    }
    let (target, plan) = find_target(&mut installer, known, arguments.to).await?;
    if arguments.dry_run {
        return Ok(print(&show::plan(&plan), ExitCode::SUCCESS));
    }
    if plan.is_empty() {
        return Ok(say(
            &format!("The cluster is as installation {} has it.\n", target.number),
            ExitCode::SUCCESS,
        ));
    }
    say(&show::summary(&plan), ExitCode::SUCCESS);
    let question =
        format!("Go back to installation {} of revision {revision}, from {}?", target.number, target.time);
    if !arguments.skip_confirmation && !confirm(&question)? {
        return Ok(say("Nothing was changed.\n", exit::FAILURE));
    }
    carry_out(&mut installer, &plan, &arguments.waiting).await?;
    remember(&mut installer, &target.generated, &target.owner).await;
    Ok(say(&format!("✔ As installation {} had it.\n", target.number), ExitCode::SUCCESS))
}

/// The installation that is asked for, else the newest that differs from what there is; with the way there.
async fn find_target(
    installer: &mut Installer,
    known: Vec<Installation>,
    asked: Option<u32>,
) -> anyhow::Result<(Installation, Plan)> {
    let numbers: Vec<String> = known.iter().map(|installation| installation.number.to_string()).collect();
    for installation in known {
        if asked.is_some_and(|number| number != installation.number) {
            continue;
        }
        let plan = installer.plan(&installation.generated, &installation.owner).await?;
        if asked.is_some() || !plan.is_empty() {
            return Ok((installation, plan));
        }
    }
    match asked {
        Some(number) => bail!("installation {number} is not remembered; there are: {}", numbers.join(", ")),
        None => bail!("all installations that are remembered are as the cluster is: {}", numbers.join(", ")),
    }
}

fn listed(known: &[Installation]) -> String {
    let mut text = "NUMBER  TIME                  VERSION  OBJECTS\n".to_owned();
    for Installation { number, time, version, generated, .. } in known {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number:<6}  {time:<20}  {version:<7}  {}", generated.manifests.len());
    }
    text
}
