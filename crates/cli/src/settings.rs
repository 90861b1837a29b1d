//! `canopus experimental config list`: the defaults of flags, and where they come from.

use std::process::ExitCode;

use canopus_runtime::flags::Flags;
use clap::{Args, Subcommand};

use crate::output::print;
use crate::table::{aligned, row};

/// Flags whose defaults can be set by the environment, with the value that holds otherwise.
const SETTINGS: [(&str, &str); 8] = [
    ("authority", ""),
    ("cert-dir", ""),
    ("insecure", ""),
    ("istioNamespace", "istio-system"),
    ("plaintext", ""),
    ("prefer-experimental", ""),
    ("xds-address", ""),
    ("xds-port", "15012"),
];

/// Look at the defaults of flags.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List flags with their defaults and what sets them: ISTIOCTL_ISTIONAMESPACE and so on.
    List,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let Command::List = arguments.command;
    let flags = Flags::from_env();
    let mut rows = vec![row(["FLAG", "VALUE", "FROM"])];
    for (name, default) in SETTINGS {
        let variable = format!("ISTIOCTL_{}", name.replace('-', "_").to_uppercase());
        let set = flags.variable(&variable).map(str::to_owned);
        let from = if set.is_some() { format!("${variable}") } else { "default".to_owned() };
        rows.push(vec![name.to_owned(), set.unwrap_or_else(|| default.to_owned()), from]);
    }
    print(&aligned(&rows, 5), ExitCode::SUCCESS)
}
