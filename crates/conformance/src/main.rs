//! The conformance runner; see the library for what it does.

use std::process::ExitCode;

use canopus_conformance::tool;

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|program| tool::is_called(&program)) {
        return canopus_cli::command::main();
    }
    canopus_conformance::main(std::env::args_os())
}
