//! `canopus-cni`.

use std::process::ExitCode;

fn main() -> ExitCode {
    canopus_cni::command::main()
}
