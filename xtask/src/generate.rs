use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell::{root, run};

/// Generates the files in the repository that are made from something else.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Generators to run; all when none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Change nothing; fail if a file is not what its generator makes.
    #[arg(long)]
    check: bool,
}

/// Something that makes files of the repository.
struct Generator {
    name: &'static str,
    /// Where it runs.
    directory: &'static str,
    command: &'static [&'static str],
    /// What it writes, relative to its directory.
    outputs: &'static [&'static str],
}

const GENERATORS: [Generator; 1] = [Generator {
    name: "proto",
    directory: "crates/proto/schema",
    command: &["go", "run", ".", "schema.binpb.gz"],
    outputs: &["schema.binpb.gz"],
}];

pub(crate) fn run_chosen(arguments: &Arguments) -> Result<()> {
    for name in &arguments.names {
        let known = GENERATORS.map(|generator| generator.name).join(", ");
        ensure!(
            GENERATORS.iter().any(|generator| generator.name == name),
            "no generator is called `{name}`; there are: {known}"
        );
    }
    let chosen = |generator: &&Generator| {
        arguments.names.is_empty() || arguments.names.iter().any(|name| name == generator.name)
    };
    for generator in GENERATORS.iter().filter(chosen) {
        if arguments.check { generator.check()? } else { generator.run()? }
    }
    Ok(())
}

impl Generator {
    fn run(&self) -> Result<()> {
        let [program, arguments @ ..] = self.command else {
            bail!("generator `{}` has no command", self.name);
        };
        run(Command::new(program).args(arguments).current_dir(self.directory()))
    }

    /// Runs the generator, compares, and puts back what was there before.
    fn check(&self) -> Result<()> {
        let before = self.read_outputs()?;
        let result = self.run();
        let after = self.read_outputs()?;
        for ((path, old), (_, new)) in before.iter().zip(&after) {
            if old != new {
                restore(path, old.as_deref())?;
            }
        }
        result?;
        let stale: Vec<_> =
            before.iter().zip(&after).filter(|(old, new)| old != new).map(|(old, _)| &old.0).collect();
        ensure!(
            stale.is_empty(),
            "not what the generator makes: {}; run `cargo xtask gen {}` and commit the result",
            stale.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
            self.name
        );
        Ok(())
    }

    fn directory(&self) -> PathBuf {
        root().join(self.directory)
    }

    /// The outputs with their contents, where they exist.
    fn read_outputs(&self) -> Result<Vec<(PathBuf, Option<Vec<u8>>)>> {
        let read = |output: &&str| {
            let path = self.directory().join(output);
            let contents = path.exists().then(|| fs::read(&path)).transpose();
            contents.with_context(|| format!("reading {}", path.display())).map(|contents| (path, contents))
        };
        self.outputs.iter().map(read).collect()
    }
}

fn restore(path: &Path, contents: Option<&[u8]>) -> Result<()> {
    match contents {
        Some(contents) => fs::write(path, contents),
        None => fs::remove_file(path),
    }
    .with_context(|| format!("putting back {}", path.display()))
}
