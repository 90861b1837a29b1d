use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use canopus_parts::{Part, ensure as ensure_parts};
use cargo_metadata::{Metadata, MetadataCommand};

use crate::images::build_agent;
use crate::shell::{cargo, root, run};

/// The name under which the load rig is asked for.
const RIG: &str = "rig";

/// Runs the benchmarks of the crates that have some, or the load rig.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench                     every benchmark
  cargo xtask bench proto               those of one crate
  cargo xtask bench -- --save-baseline before
  cargo xtask bench --quick             the load rig, canopusd alone, in minutes
  cargo xtask bench --quick --peer PATH the same, beside a program with the flags of pilot-discovery
  cargo xtask bench rig -- --fleet uniform
                                        the load rig with proxies that are all alike
  cargo xtask bench process -- --agent PATH
                                        the agent's process, with another program that takes the flags of pilot-agent
  cargo xtask bench rig -- --help       the load rig with flags of its own")]
pub(crate) struct Arguments {
    /// Crates (`proto`) or benchmarks (`encode`) to run, or `rig`; all but the rig when none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Runs the load rig with few proxies and events.
    #[arg(long)]
    quick: bool,

    /// Runs the load rig also against this program, which takes the flags of `pilot-discovery`.
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,

    /// Arguments for the benchmarks themselves, or for the rig.
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// A benchmark of a crate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bench {
    package: String,
    name: String,
}

pub(crate) fn run_chosen(arguments: &Arguments) -> Result<()> {
    if arguments.quick || arguments.peer.is_some() || arguments.names == [RIG] {
        return run_rig(arguments);
    }
    let chosen = choose(benches()?, &arguments.names)?;
    for bench in chosen {
        let mut command = cargo();
        command.args(["bench", "--package", &bench.package, "--bench", &bench.name, "--"]);
        // What is measured of the agent's process is what is released.
        if bench.name == "process" && !arguments.arguments.iter().any(|argument| argument == "--agent") {
            command.arg("--agent").arg(build_agent("release")?);
        }
        run(command.args(&arguments.arguments))?;
    }
    Ok(())
}

/// Builds canopusd and the rig as they would be released, and runs the rig.
fn run_rig(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.names.iter().all(|name| name == RIG),
        "--quick and --peer are for the load rig alone, which `{}` is not part of",
        arguments.names.join(" ")
    );
    ensure_parts(&[Part::Kube])?;
    let programs = ["--package", "canopus-daemon", "--package", "canopus-bench"];
    let names = ["--bin", "canopusd", "--bin", "canopus-bench"];
    run(cargo().args(["build", "--release"]).args(programs).args(names))?;
    let mut rig = Command::new(metadata()?.target_directory.join("release/canopus-bench"));
    rig.args(arguments.quick.then_some("--quick"));
    if let Some(peer) = &arguments.peer {
        rig.arg("--peer").arg(std::path::absolute(peer)?);
    }
    run(rig.args(&arguments.arguments))
}

fn metadata() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).no_deps();
    command.exec().context("asking cargo for the workspace")
}

fn benches() -> Result<Vec<Bench>> {
    let metadata = metadata()?;
    let benches = metadata.workspace_packages().into_iter().flat_map(|package| {
        let benches = package.targets.iter().filter(|target| target.is_bench());
        benches.map(|target| Bench { package: package.name.to_string(), name: target.name.clone() })
    });
    Ok(benches.collect())
}

fn choose(benches: Vec<Bench>, names: &[String]) -> Result<Vec<Bench>> {
    let called = |bench: &Bench, name: &String| {
        bench.name == *name || bench.package == *name || bench.package.strip_prefix("canopus-") == Some(name)
    };
    for name in names {
        let known: Vec<_> = benches.iter().map(|bench| format!("{}/{}", bench.package, bench.name)).collect();
        ensure!(
            benches.iter().any(|bench| called(bench, name)),
            "no crate with benchmarks and no benchmark is called `{name}`; there are: {}",
            known.join(", ")
        );
    }
    let wanted = |bench: &Bench| names.is_empty() || names.iter().any(|name| called(bench, name));
    Ok(benches.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Result<Vec<String>> {
        let bench = |package: &str, name: &str| Bench { package: package.to_owned(), name: name.to_owned() };
        let all = vec![
            bench("canopus-proto", "encode"),
            bench("canopus-proto", "merge"),
            bench("canopus-engine", "apply"),
        ];
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        Ok(choose(all, &names)?.into_iter().map(|bench| bench.name).collect())
    }

    #[test]
    fn all_are_run_when_none_is_named() {
        assert_eq!(chosen(&[]).unwrap(), ["encode", "merge", "apply"]);
    }

    #[test]
    fn names_are_of_crates_or_benchmarks() {
        assert_eq!(chosen(&["proto"]).unwrap(), ["encode", "merge"]);
        assert_eq!(chosen(&["merge", "canopus-engine"]).unwrap(), ["merge", "apply"]);
    }

    #[test]
    fn unknown_name_is_answered_with_the_known_ones() {
        let message = chosen(&["xds"]).unwrap_err().to_string();
        assert!(
            message.ends_with("canopus-proto/encode, canopus-proto/merge, canopus-engine/apply"),
            "{message}"
        );
    }
}
