//! The command line of `canopus-agent`, which is that of `pilot-agent`.

mod arguments;
mod request;
mod wait;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use canopus_runtime::completion::{self, CompletionFlags};
use canopus_runtime::flags::Flags;
use canopus_runtime::log::{self, KlogFlags, LogFlags, LogGuard, Scope, Scopes};
use canopus_runtime::reference::CollateralFlags;
use canopus_runtime::version::{self, BuildInfo, VersionFlags};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use self::request::RequestArgs;
use self::wait::WaitArgs;
use crate::envoy::launch;
use crate::proxy::{self, Prepared, ProxyArgs};

const SCOPES: [Scope; 7] = [
    Scope::new("cache", "The workload's certificate"),
    Scope::new("dns", "Names of the mesh for the workload"),
    Scope::new("healthcheck", "The health of the application on machines"),
    Scope::new("sds", "Secrets for Envoy"),
    Scope::new("sts", "Token exchange for applications"),
    Scope::new("wasm", "Wasm modules for Envoy"),
    Scope::new("xdsproxy", "Streams between Envoy and the control plane"),
];

/// The agent beside a proxy.
///
/// Flags and environment variables are those of Istio's `pilot-agent`, and flags of other versions are ignored.
#[derive(Debug, Parser)]
#[command(name = "canopus-agent", disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    klog: KlogFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start Envoy and be its agent.
    #[command(after_help = PROXY_HELP)]
    Proxy(Box<ProxyArgs>),
    /// Ask Envoy's admin interface or the agent itself, and print the answer.
    Request(RequestArgs),
    /// Wait until Envoy is ready.
    Wait(WaitArgs),
    /// Print the version.
    Version(VersionFlags),
    /// Set up packet rules that send the traffic of a workload to its proxy.
    #[command(name = "istio-iptables")]
    Iptables(Box<canopus_capture::CommandLine>),
    /// Print a script that teaches a shell the commands and flags: `source <(canopus-agent completion bash)`.
    Completion(CompletionFlags),
    /// Write reference pages of all commands.
    #[command(hide = true)]
    Collateral(CollateralFlags),
}

/// What somebody who knows `pilot-agent` looks for beside the flags.
const PROXY_HELP: &str = "\
Environment:
  PROXY_CONFIG                     proxy configuration (YAML or JSON) above that of the mesh file
  POD_NAME, POD_NAMESPACE, SERVICE_ACCOUNT, INSTANCE_IP
                                   who the workload is
  CA_ADDR, XDS_ROOT_CA, CA_ROOT_CA, ISTIOD_SAN
                                   where certificates are asked for, whom to trust, by which name
  PROV_CERT, OUTPUT_CERTS, FILE_MOUNTED_CERTS, CANOPUS_JOIN_TOKEN_FILE
                                   certificates that are files, or a token to get the first with
  ISTIO_META_*, ISTIO_METAJSON_*   what the proxy tells of itself
  ISTIO_META_DNS_CAPTURE           resolve names of the mesh at DNS_PROXY_ADDR (localhost:15053)
  ISTIO_BOOTSTRAP, ISTIO_BOOTSTRAP_OVERRIDE
                                   a template in the place of Envoy's bootstrap, or what is merged over it
  EXIT_ON_ZERO_ACTIVE_CONNECTIONS, MINIMUM_DRAIN_DURATION
                                   end when clients have left, rather than after terminationDrainDuration
  DISABLE_ENVOY, GRPC_XDS_BOOTSTRAP
                                   serve a proxyless gRPC application
  CANOPUS_STATE_DIRECTORY          where the last good configuration is kept; empty for nowhere

Exit codes:
  0    the agent was asked to end, or Envoy ended well
  1    a setting cannot be used; the log names it
  127  Envoy cannot be run
  else that of Envoy, which ended by itself";

/// All commands with their flags. Those of the log may stand before or after the command, as injection puts them.
pub fn tree() -> clap::Command {
    Cli::command().mut_args(|arg| {
        let is_about_the_log = arg.get_long().is_some_and(|name| name.starts_with("log_"));
        if is_about_the_log { arg.global(true) } else { arg }
    })
}

/// Runs the command the process was called with.
pub fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    if given.get(1).is_some_and(|first| first == launch::SUBCOMMAND) {
        return launch::run(&given[2..]);
    }
    if Prepared::is_announced_by(given.last().map(OsString::as_os_str)) {
        return serve();
    }
    let mut root = tree();
    // Only now does each command know the flags of all.
    root.build();
    let (arguments, unknown) = arguments::known(&root, given);
    let matches = root.get_matches_from(arguments);
    let Cli { log, klog, command } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match command {
        Command::Proxy(mut args) => {
            args.log = log;
            proxy(&args, klog, &unknown)
        }
        Command::Request(args) => finish(block_on(request::send(&args))),
        Command::Wait(args) => finish(block_on(wait::until_ready(&args)).map(|()| String::new())),
        Command::Version(flags) => print(version::render(&BuildInfo::current(), flags).as_bytes()),
        Command::Iptables(line) => iptables(*line, &log, klog),
        Command::Completion(flags) => print(completion::render(&tree(), "canopus-agent", flags).as_bytes()),
        Command::Collateral(flags) => match flags.write(&tree()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        },
    }
}

fn proxy(args: &ProxyArgs, klog: KlogFlags, unknown: &[String]) -> ExitCode {
    let _log = match install_log(&args.log, klog) {
        Ok(guard) => guard,
        Err(error) => return fail(&format!("{error:#}")),
    };
    for flag in unknown {
        tracing::warn!("--{flag}: there is no such flag; it is ignored");
    }
    let flags = Flags::from_env();
    let prepared = match block_on(Prepared::new(args, &flags)) {
        Ok(prepared) => prepared,
        Err(error) => {
            tracing::error!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    let error = prepared.hand_over();
    tracing::warn!("the agent cannot begin anew, and keeps the memory of its start: {error}");
    finish_proxy(block_on(proxy::serve(&prepared, &flags)))
}

/// Continues, after `exec`, with what the process prepared before.
fn serve() -> ExitCode {
    let prepared = match Prepared::take_over() {
        Ok(prepared) => prepared,
        Err(error) => return fail(&format!("{error:#}")),
    };
    let _log = match install_log(&prepared.log, KlogFlags::default()) {
        Ok(guard) => guard,
        Err(error) => return fail(&format!("{error:#}")),
    };
    finish_proxy(block_on(proxy::serve(&prepared, &Flags::from_env())))
}

fn finish_proxy(result: anyhow::Result<u8>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn iptables(line: canopus_capture::CommandLine, log: &LogFlags, klog: KlogFlags) -> ExitCode {
    let _log = match install_log(log, klog) {
        Ok(guard) => guard,
        Err(error) => return fail(&format!("{error:#}")),
    };
    let flags = Flags::from_env();
    let environment = |name: &str| flags.variable(name).map(str::to_owned);
    match canopus_capture::run(line, &environment, &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = fail(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

fn install_log(flags: &LogFlags, klog: KlogFlags) -> Result<LogGuard, log::LogError> {
    let scopes = Scopes::new();
    scopes.register(&SCOPES);
    klog.apply(&scopes);
    log::install(&scopes, flags)
}

/// One thread is enough: the agent passes bytes on and waits. It also keeps the promise of [`launch`], whose kernel setting
/// is bound to the thread that starts Envoy.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    // Look-ups of names may still be under way.
    runtime.shutdown_background();
    result
}

fn finish(result: anyhow::Result<String>) -> ExitCode {
    match result {
        Ok(text) => print(text.as_bytes()),
        Err(error) => fail(&format!("{error:#}")),
    }
}

/// Writes to standard output and nothing else: `istioctl` parses what `request` prints.
fn print(bytes: &[u8]) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

#[expect(clippy::print_stderr, reason = "there is no log, or not for this")]
fn fail(message: &str) -> ExitCode {
    eprintln!("Error: {message}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_log_count_before_and_after_the_command() {
        for line in ["a --log_output_level=dns:debug wait", "a wait --log_output_level=dns:debug --vklog=4"] {
            let matches = tree().get_matches_from(line.split(' '));
            let cli = Cli::from_arg_matches(&matches).unwrap();
            assert_eq!(cli.log.log_output_level, "dns:debug", "{line}");
        }
    }

    #[test]
    fn help_names_flags_variables_and_exit_codes_that_there_are() {
        let mut root = tree();
        root.build();
        let help = root.find_subcommand_mut("proxy").unwrap().render_long_help().to_string();
        for flag in [
            "--domain",
            "--meshConfig",
            "--stsPort",
            "--proxyLogLevel",
            "--concurrency",
            "--log_output_level",
        ] {
            assert!(help.contains(flag), "{flag}: {help}");
        }
        assert!(help.contains("Exit codes:"), "{help}");
        let (_, variables) = PROXY_HELP.split_once("Environment:").unwrap();
        let (variables, _) = variables.split_once("Exit codes:").unwrap();
        let is_name =
            |word: &&str| word.len() > 3 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let words = variables.split([' ', ',', '\n']).filter(is_name);
        let known = Flags::defaults().list();
        let names: Vec<&str> = words.filter(|word| !["YAML", "JSON"].contains(word)).collect();
        assert!(names.len() > 15, "{names:?}");
        for name in names {
            assert!(known.iter().any(|flag| flag.name == name), "{name} is not a flag");
        }
    }
}
