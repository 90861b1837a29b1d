//! `canopusd`.

use std::process::ExitCode;

fn main() -> ExitCode {
    canopus_daemon::command::main()
}
