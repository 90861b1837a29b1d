//! The command line of `canopusd`.

mod arguments;
mod request;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use canopus_runtime::completion::{self, CompletionFlags};
use canopus_runtime::flags::{self, Flags};
use canopus_runtime::log::KlogFlags;
use canopus_runtime::reference::CollateralFlags;
use canopus_runtime::version::{self, BuildInfo, VersionFlags};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use self::request::RequestArgs;
use crate::discovery::{self, DiscoveryArgs};
use crate::operator::{self, OperatorArgs};

/// The Canopus control plane.
///
/// `canopusd --config DIR` serves a directory of Istio YAML to proxies; no cluster is needed. In a cluster it takes the place
/// of istiod: the flags and environment variables are those of `pilot-discovery`, and flags of other versions are ignored.
#[derive(Debug, Parser)]
#[command(name = "canopusd", disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    klog: KlogFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve configuration to proxies. This is what happens if no command is named.
    Discovery(Box<DiscoveryArgs>),
    /// Keep the cluster as its IstioOperator objects say.
    Operator(OperatorArgs),
    /// Ask the running control plane for one of its debug pages.
    Request(RequestArgs),
    /// List the environment variables that change behaviour, with their defaults and current values.
    Flags {
        /// Output format.
        #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
        output: ListFormat,
    },
    /// Print the version.
    Version(VersionFlags),
    /// Print a script that teaches a shell the commands and flags: `source <(canopusd completion bash)`.
    Completion(CompletionFlags),
    /// Write reference pages of all commands.
    #[command(hide = true)]
    Collateral(CollateralFlags),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ListFormat {
    Table,
    Json,
    Yaml,
}

impl From<ListFormat> for flags::Format {
    fn from(format: ListFormat) -> Self {
        match format {
            ListFormat::Table => Self::Table,
            ListFormat::Json => Self::Json,
            ListFormat::Yaml => Self::Yaml,
        }
    }
}

/// All commands with their flags.
pub fn tree() -> clap::Command {
    Cli::command()
}

/// Runs the command the process was called with.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs the command of these arguments, the first of which is the name of the program.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut root = tree();
    // Only now does each command know the flags of all.
    root.build();
    let (arguments, unknown) = arguments::known(&root, arguments);
    arguments::report(&unknown);
    let matches = root.get_matches_from(arguments);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Discovery(args) => discovery::main(*args, cli.klog),
        Command::Operator(args) => operator::main(args),
        Command::Request(args) => match request::send(&args) {
            Ok(answer) => print(&answer),
            Err(error) => discovery::fail(&error),
        },
        Command::Flags { output } => print(&flags::render(&Flags::from_env().list(), output.into())),
        Command::Version(flags) => print(&version::render(&BuildInfo::current(), flags)),
        Command::Completion(flags) => print(&completion::render(&tree(), "canopusd", flags)),
        Command::Collateral(flags) => match flags.write(&tree()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => discovery::fail(&error.into()),
        },
    }
}

/// Writes to standard output. A reader that closed early, such as `head`, is no failure.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
