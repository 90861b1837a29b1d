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

mod bench;
mod conformance;
mod demo;
mod fuzz;
mod gateway_conformance;
mod generate;
mod images;
mod parts;
mod picture;
mod shell;
mod simulate;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of Canopus.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Test(test::Arguments),
    Demo(demo::Arguments),
    Picture(picture::Arguments),
    Conformance(conformance::Arguments),
    GatewayConformance(gateway_conformance::Arguments),
    Tidy(tidy::Arguments),
    Parts(parts::Arguments),
    Bench(bench::Arguments),
    Fuzz(fuzz::Arguments),
    Simulate(simulate::Arguments),
    Gen(generate::Arguments),
    Images(images::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Test(arguments) => test::run_all(&arguments),
        Command::Demo(arguments) => demo::run_it(&arguments),
        Command::Picture(arguments) => picture::run_it(&arguments),
        Command::Conformance(arguments) => conformance::run_with(&arguments),
        Command::GatewayConformance(arguments) => gateway_conformance::run_it(&arguments),
        Command::Tidy(_) => tidy::run(),
        Command::Parts(arguments) => parts::run(&arguments),
        Command::Bench(arguments) => bench::run_chosen(&arguments),
        Command::Fuzz(arguments) => fuzz::run_chosen(&arguments),
        Command::Simulate(arguments) => simulate::run_seeds(&arguments),
        Command::Images(arguments) => images::run_it(&arguments),
        Command::Gen(arguments) => generate::run_chosen(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
