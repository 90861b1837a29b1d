use anyhow::Result;

use crate::shell::{cargo, run};

/// Simulates a mesh from its sources to its proxies, with faults that a seed decides.
///
/// A seed that fails is named, with the command that repeats it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask simulate --seeds 10000    many runs, optimised
  cargo xtask simulate --seed 7         the run of one seed")]
pub(crate) struct Arguments {
    /// How many seeds to play.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,

    /// Play this seed alone.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// Build without optimisation: quicker for a single seed.
    #[arg(long)]
    debug: bool,
}

pub(crate) fn run_seeds(arguments: &Arguments) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--package", "canopus-daemon", "--lib"]);
    if !arguments.debug && arguments.seed.is_none() {
        command.arg("--release");
    }
    command.args(["simulated_mesh_keeps_its_laws", "--", "--nocapture"]);
    match arguments.seed {
        Some(seed) => command.env("CANOPUS_SIMULATION_SEED", seed.to_string()),
        None => command.env("CANOPUS_SIMULATION_SEEDS", arguments.seeds.to_string()),
    };
    run(&mut command)
}
