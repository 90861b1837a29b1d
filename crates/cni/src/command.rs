//! The command lines: of the agent, which are those of `install-cni`, and of the plugin, which has none.

mod agent;
mod settings;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use canopus_runtime::flags::Flags;
use canopus_runtime::log::{self, LogFlags, Scope, Scopes};
use canopus_runtime::version::{self, BuildInfo, VersionFlags};
use clap::{Parser, Subcommand};

pub use self::settings::{InstallArgs, SettingError};
use crate::install::PLUGIN;
use crate::plugin;

const SCOPES: [Scope; 2] = [
    Scope::new("cni-agent", "The agent: installation, repair, ambient mode"),
    Scope::new("cni-plugin", "What the plugin reports of its calls"),
];

/// The node agent: installs the CNI plugin, repairs pods that started without it, and enrols pods in ambient mode.
///
/// Flags and environment variables are those of Istio's `install-cni`. Called as `istio-cni` the program is the plugin.
#[derive(Debug, Parser)]
#[command(name = "install-cni", disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    install: InstallArgs,
    #[command(flatten)]
    log: LogFlags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the version.
    Version(VersionFlags),
}

/// Runs what the process was called as.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.first().and_then(|path| Path::new(path).file_name());
    if name == Some(OsStr::new(PLUGIN)) {
        return plugin::main();
    }
    let cli = Cli::parse_from(arguments);
    if let Some(Command::Version(flags)) = cli.command {
        let text = version::render(&BuildInfo::current(), flags);
        return match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let scopes = Scopes::new();
    scopes.register(&SCOPES);
    let _guard = match log::install(&scopes, &cli.log) {
        Ok(guard) => guard,
        Err(error) => return fail(&error),
    };
    let flags = Flags::from_env();
    let run = || {
        let settings = cli.install.settle(&flags)?;
        // One thread is enough: the agent waits for the API server, for ztunnel, and for programs that make rules.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(agent::run(settings, &flags));
        runtime.shutdown_background();
        result
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "Error: {error}");
    ExitCode::FAILURE
}
