use anyhow::Result;

use crate::demo::{Mesh, build, sample};
use crate::shell::{root, run};

/// Makes the moving picture of the live view in the documentation from a real run.
///
/// Runs the sample in the background, takes every step of its tour, and writes what the live view showed after each to
/// docs/local-mesh.svg.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Use loopback mode even where network namespaces are permitted.
    #[arg(long)]
    loopback: bool,
}

pub(crate) fn run_it(arguments: &Arguments) -> Result<()> {
    build()?;
    let mesh = Mesh::prepare(arguments.loopback)?;
    run(mesh.up().arg("--detach"))?;
    let picture = root().join("docs/local-mesh.svg");
    let taken = run(mesh.canopus(&["up", "--attach", "--tour", "--picture"]).arg(picture).arg(sample()));
    let ended = run(mesh.canopus(&["down"]).arg(sample()));
    taken.and(ended)
}
