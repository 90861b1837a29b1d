//! The command line.

use std::ffi::OsString;
use std::process::ExitCode;

use canopus_local::launch;
use canopus_runtime::completion::{self, CompletionFlags};
use canopus_runtime::reference::CollateralFlags;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::cluster::KubeArguments;
use crate::global::Global;
use crate::output::{print, say};
use crate::persona::Persona;
use crate::usage::help::{self, Answer};
use crate::{
    analyze, authz, bug_report, ca, check, check_inject, dashboard, debug_pages, describe, diff, exit,
    explain, generate, history, injector, install, kube_inject, local, manifest, mesh_test, precheck,
    proxy_config, proxy_status, remote_clusters, remote_secret, settings, tag, top, usage, validate,
    version_command, wait, waypoint, what_if, why, workload, world, ztunnel_config,
};

/// Look at, check and explain a mesh.
#[derive(Debug, Parser)]
#[command(name = "canopus", disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    kube: KubeArguments,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Analyze objects and print what is wrong with them together.
    Analyze(Box<analyze::Arguments>),
    /// Look at the certificate authority, rotate its root, issue join tokens.
    Ca(ca::Arguments),
    /// Collect what is needed to find out what went wrong.
    BugReport(Box<bug_report::Arguments>),
    /// Check whether everything is healthy.
    Check(check::Arguments),
    /// Write reference pages of all commands.
    #[command(hide = true)]
    Collateral(CollateralFlags),
    /// Print a script that teaches a shell the commands and flags.
    #[command(after_help = "\
Examples:
  source <(canopus completion bash)
  canopus completion zsh > \"${fpath[1]}/_canopus\"
  canopus completion fish > ~/.config/fish/completions/canopus.fish
  canopus completion powershell | Out-String | Invoke-Expression")]
    Completion(CompletionFlags),
    /// Print a Secret that lets a control plane read this cluster.
    CreateRemoteSecret(Box<remote_secret::Arguments>),
    /// Open a web interface of the mesh.
    #[command(visible_aliases = ["dash", "d"])]
    Dashboard(dashboard::Arguments),
    /// Print what changes of each object have cost.
    Cost(history::CostArguments),
    /// Print what changed in a mesh between two moments.
    Diff(diff::Arguments),
    /// End a mesh on this machine and remove everything it made.
    Down(local::DownArguments),
    /// Commands whose output may still change.
    #[command(visible_alias = "x", alias = "exp")]
    Experimental(Experimental),
    /// Follow a request through the configuration of a proxy.
    Explain(Box<explain::Arguments>),
    /// Print what a proxy would receive for the objects in files.
    Generate(Box<generate::Arguments>),
    /// Print the latest pushes and what became of them.
    History(history::Arguments),
    /// Write mesh.yaml for programs.
    Init(local::InitArguments),
    /// Kill a process of a mesh on this machine, as in a crash.
    Kill(local::WorkloadArguments),
    /// Install a mesh, or bring an installed one to another configuration.
    Install(Box<install::InstallArguments>),
    /// Inject proxies into workloads, for clusters without the webhook.
    KubeInject(Box<kube_inject::Arguments>),
    /// Print what the processes of a mesh on this machine write.
    Logs(local::LogsArguments),
    /// Render an installation, or translate it for Helm.
    Manifest(manifest::Arguments),
    /// Look at the configuration that an Envoy has.
    #[command(visible_alias = "pc")]
    ProxyConfig(Box<proxy_config::Arguments>),
    /// Print how far each proxy is, or whether one has what the control plane has for it.
    #[command(visible_alias = "ps")]
    ProxyStatus(Box<proxy_status::Arguments>),
    /// List the clusters that each control plane reads.
    RemoteClusters(remote_clusters::Arguments),
    /// End a process of a mesh on this machine and start it again.
    Restart(local::WorkloadArguments),
    /// Print how a mesh on this machine is.
    Status(local::StatusArguments),
    /// Check where requests would go, against the objects in files.
    Test(mesh_test::Arguments),
    /// Show what a control plane is doing: pushes, proxies, the costliest objects.
    Top(top::Arguments),
    /// Run a mesh on this machine: canopusd, your programs as workloads, a proxy beside each.
    Up(Box<local::UpArguments>),
    /// Look at the revisions of the control plane.
    Revision(tag::RevisionArguments),
    /// Go back to an earlier installation of a revision.
    Rollback(install::RollbackArguments),
    /// Name revisions, so that namespaces move by moving a tag.
    Tag(tag::TagArguments),
    /// Remove a mesh from a cluster.
    Uninstall(Box<install::UninstallArguments>),
    /// Bring an installed mesh to this version, or to another configuration.
    Upgrade(Box<install::InstallArguments>),
    /// Check files of objects before a cluster sees them.
    #[command(visible_alias = "v")]
    Validate(validate::Arguments),
    /// Print the version of this program and of the mesh.
    Version(version_command::Arguments),
    /// Wait until every proxy has a change.
    Wait(wait::Arguments),
    /// Manage waypoints.
    Waypoint(waypoint::Arguments),
    /// Print what a change of objects would change at which proxies.
    WhatIf(Box<what_if::Arguments>),
    /// Name the objects that a resource was made from.
    Why(why::Arguments),
    /// Print what objects add up to: services, endpoints, what a proxy sees.
    World(Box<world::Arguments>),
    /// Look at the configuration and the connections of ztunnel.
    #[command(visible_alias = "zc")]
    ZtunnelConfig(Box<ztunnel_config::Arguments>),
}

#[derive(Args, Debug)]
struct Experimental {
    #[command(subcommand)]
    command: ExperimentalCommand,
}

#[derive(Debug, Subcommand)]
enum ExperimentalCommand {
    /// Inspect AuthorizationPolicies.
    Authz(authz::Arguments),
    /// Explain which webhooks inject a pod, and why the others do not.
    CheckInject(check_inject::Arguments),
    /// Look at the defaults of flags.
    Config(settings::Arguments),
    /// Describe a pod or a service and the objects that configure it.
    #[command(visible_alias = "des")]
    Describe(describe::Arguments),
    /// Print the numbers that an Envoy keeps.
    #[command(visible_alias = "es")]
    EnvoyStats(debug_pages::StatsArguments),
    /// Look at the injectors of a cluster.
    Injector(injector::Arguments),
    /// Print a debug page of the control plane.
    InternalDebug(Box<debug_pages::DebugArguments>),
    /// Check whether the cluster is ready for a mesh.
    Precheck(precheck::Arguments),
    /// Print how far each proxy is.
    #[command(visible_alias = "ps")]
    ProxyStatus(Box<proxy_status::Arguments>),
    /// Print the version of this program and of the mesh.
    Version(Box<version_command::ExperimentalArguments>),
    /// Configure workloads outside Kubernetes.
    Workload(Box<workload::Arguments>),
}

/// All commands with their flags.
pub fn tree() -> clap::Command {
    with_exit_codes(Cli::command())
}

/// What exit codes mean where a command says nothing else of them.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 it failed, 64 the command line makes no sense.";

/// Commands that do something say their exit codes.
fn with_exit_codes(command: clap::Command) -> clap::Command {
    if command.has_subcommands() {
        return command.mut_subcommands(with_exit_codes);
    }
    let said = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if said.contains("Exit codes:") {
        return command;
    }
    let separator = if said.is_empty() { "" } else { "\n\n" };
    command.after_help(format!("{said}{separator}{EXIT_CODES}"))
}

/// `help COMMAND` asks for what `COMMAND --help` does.
fn with_help_flag(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|word| word == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

/// Runs the command the process was called with.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    // Processes of a mesh are started by this program, with nothing that could be taken for a user's command.
    if let [_, command, specification] = arguments.as_slice()
        && command == launch::SUBCOMMAND
    {
        return launch::run(&specification.to_string_lossy());
    }
    let persona = Persona::from_program(arguments.first().map(AsRef::as_ref));
    let arguments = with_help_flag(arguments);
    if persona == Persona::Istioctl {
        match help::group(&tree(), &arguments) {
            Some(Answer::Help(text)) => return print(&text, ExitCode::SUCCESS),
            Some(Answer::Unknown(words)) => return say(&format!("Error: {words}\n"), exit::FAILURE),
            None => {}
        }
    }
    let mut root = tree();
    let matches = root.try_get_matches_from_mut(&arguments);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            // The reader of the help may have closed the pipe.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            return match persona {
                Persona::Canopus => {
                    // The code tells the same as the message.
                    let _ = error.print();
                    exit::usage()
                }
                Persona::Istioctl => {
                    let (words, code) = usage::istioctl(&error, &tree(), &arguments);
                    say(&words, code)
                }
            };
        }
    };
    match cli.command {
        Command::Analyze(arguments) => analyze::run(persona, &cli.global, &cli.kube, &arguments),
        Command::Ca(arguments) => ca::run(&cli.global, &cli.kube, &arguments),
        Command::Down(arguments) => local::down(&arguments),
        Command::Init(arguments) => local::init(&arguments),
        Command::Kill(arguments) => local::kill(&arguments),
        Command::Logs(arguments) => local::logs(&arguments),
        Command::Restart(arguments) => local::restart(&arguments),
        Command::Status(arguments) => local::status(&arguments),
        Command::Up(arguments) => local::up(&arguments),
        Command::Check(arguments) => check::run(&cli.global, &cli.kube, &arguments),
        Command::Cost(arguments) => history::cost(&cli.global, &cli.kube, &arguments),
        Command::Experimental(Experimental { command }) => match command {
            ExperimentalCommand::Authz(arguments) => authz::run(&cli.global, &cli.kube, &arguments),
            ExperimentalCommand::CheckInject(arguments) => {
                check_inject::run(persona, &cli.global, &cli.kube, &arguments)
            }
            ExperimentalCommand::Config(arguments) => settings::run(&arguments),
            ExperimentalCommand::Describe(arguments) => describe::run(&cli.global, &cli.kube, &arguments),
            ExperimentalCommand::EnvoyStats(arguments) => {
                debug_pages::stats(&cli.global, &cli.kube, &arguments)
            }
            ExperimentalCommand::Injector(arguments) => injector::run(&cli.kube, &arguments),
            ExperimentalCommand::InternalDebug(arguments) => {
                debug_pages::debug(&cli.global, &cli.kube, &arguments)
            }
            ExperimentalCommand::Precheck(arguments) => precheck::run(&cli.global, &cli.kube, &arguments),
            ExperimentalCommand::ProxyStatus(arguments) => {
                proxy_status::run(&cli.global, &cli.kube, &arguments)
            }
            ExperimentalCommand::Version(arguments) => {
                version_command::run_experimental(&cli.global, &cli.kube, &arguments)
            }
            ExperimentalCommand::Workload(arguments) => workload::run(&cli.global, &cli.kube, &arguments),
        },
        Command::Diff(arguments) => diff::run(&cli.global, &cli.kube, &arguments),
        Command::Top(arguments) => top::run(&cli.global, &cli.kube, &arguments),
        Command::Explain(arguments) => explain::run(&cli.global, &cli.kube, &arguments),
        Command::Generate(arguments) => generate::run(&cli.global, &arguments),
        Command::History(arguments) => history::run(&cli.global, &cli.kube, &arguments),
        Command::KubeInject(arguments) => kube_inject::run(&arguments),
        Command::Manifest(arguments) => manifest::run(persona, &cli.kube, &arguments),
        Command::ProxyConfig(arguments) => proxy_config::run(persona, &cli.global, &cli.kube, &arguments),
        Command::ProxyStatus(arguments) => proxy_status::run(&cli.global, &cli.kube, &arguments),
        Command::Test(arguments) => mesh_test::run(&cli.global, &arguments),
        Command::Install(arguments) => install::run(&cli.kube, &arguments),
        Command::Revision(arguments) => tag::run_revision(&cli.kube, &arguments),
        Command::Tag(arguments) => tag::run_tag(persona, &cli.global, &cli.kube, &arguments),
        Command::Uninstall(arguments) => install::run_uninstall(&cli.global, &cli.kube, &arguments),
        Command::Upgrade(arguments) => install::run_upgrade(&cli.kube, &arguments),
        Command::Rollback(arguments) => install::run_rollback(&cli.kube, &arguments),
        Command::Validate(arguments) => validate::run(persona, &cli.global, &arguments),
        Command::Wait(arguments) => wait::run(&cli.global, &cli.kube, &arguments),
        Command::WhatIf(arguments) => what_if::run(&cli.global, &cli.kube, &arguments),
        Command::Why(arguments) => why::run(&cli.global, &cli.kube, &arguments),
        Command::World(arguments) => world::run(&cli.global, &arguments),
        Command::BugReport(arguments) => bug_report::run(persona, &cli.global, &cli.kube, &arguments),
        Command::Collateral(arguments) => match arguments.write(&tree()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => say(&format!("Error: {error}\n"), exit::FAILURE),
        },
        Command::Completion(flags) => {
            print(&completion::render(&tree(), persona.program(), flags), ExitCode::SUCCESS)
        }
        Command::CreateRemoteSecret(arguments) => remote_secret::run(&cli.global, &cli.kube, &arguments),
        Command::Dashboard(arguments) => dashboard::run(&cli.global, &cli.kube, &arguments),
        Command::RemoteClusters(arguments) => remote_clusters::run(&cli.global, &cli.kube, &arguments),
        Command::Version(arguments) => version_command::run(&cli.global, &cli.kube, &arguments),
        Command::Waypoint(arguments) => waypoint::run(&cli.global, &cli.kube, &arguments),
        Command::ZtunnelConfig(arguments) => ztunnel_config::run(&cli.global, &cli.kube, &arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_commands_do_not_clash() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_is_also_a_word() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(with_help_flag(words("canopus help tag set")), words("canopus tag set --help"));
        assert_eq!(with_help_flag(words("canopus tag help")), words("canopus tag help"));
    }
}
