//! Commands and flags of the control plane and of the agent, against those of Istio's programs.

use anyhow::{Context as _, bail};

use super::Suite;
use super::live_istioctl::flags;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::dump::Dump;

pub(super) struct LiveFlags;

impl Suite for LiveFlags {
    fn name(&self) -> &str {
        "live-flags"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let program = case.file.file_stem().and_then(|name| name.to_str()).context("no program")?;
    let tree = match program {
        "pilot-agent" => canopus_agent::command::tree(),
        "pilot-discovery" => canopus_daemon::command::tree(),
        other => bail!("{other}: no program of ours takes its place"),
    };
    flags::compare(case, &tree, program)
}
