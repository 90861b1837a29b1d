//! `canopus`.

use std::process::ExitCode;

fn main() -> ExitCode {
    canopus_cli::command::main()
}
