//! The conformance runner; see the library for what it does.

use std::process::ExitCode;

use canopus_conformance::tool;

fn main() -> ExitCode {
    if let Some(program) = std::env::args_os().next().and_then(|name| tool::called_as(&name)) {
        return program();
    }
    canopus_conformance::main(std::env::args_os())
}
