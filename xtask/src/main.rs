//! `cargo xtask`: everything a developer or CI runs.
//!
//! Owns the order of the steps and how they are reported; the work itself is done by cargo, by the ordinary clients and by
//! the crates it calls. Must not depend on a product crate, so that it compiles in seconds and cannot be broken by the code
//! it checks.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks on its standard streams"
)]

mod parts;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of Canopus.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Parts(parts::Arguments),
    Tidy(tidy::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Parts(arguments) => parts::run(&arguments),
        Command::Tidy(_) => tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
