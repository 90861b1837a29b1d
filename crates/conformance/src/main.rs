//! The conformance runner; see the library for what it does.

use std::process::ExitCode;

fn main() -> ExitCode {
    canopus_conformance::main(std::env::args_os())
}
