//! `canopus-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    canopus_agent::command::main()
}
