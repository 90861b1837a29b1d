//! `canopus-bench`: the load rig as a command.

use std::process::ExitCode;

use canopus_bench::{Options, run};
use clap::Parser as _;

fn main() -> ExitCode {
    let options = Options::parse();
    // One thread: the proxies shall not take more of the machine than they must.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(&options)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the person who started it must see it")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
