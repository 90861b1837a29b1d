use std::collections::{BTreeMap, BTreeSet};
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

/// Makes files of the repository.
struct Generator {
    name: &'static str,
    /// Where it runs.
    directory: &'static str,
    command: &'static [&'static str],
    /// What it writes, relative to its directory: files, or directories with nothing else in them.
    outputs: &'static [&'static str],
}

const GENERATORS: [Generator; 3] = [
    Generator {
        name: "proto",
        directory: "crates/proto/schema",
        command: &["go", "run", ".", "schema.binpb.gz"],
        outputs: &["schema.binpb.gz"],
    },
    Generator {
        name: "crds",
        directory: "",
        command: &["cargo", "run", "-q", "-p", "canopus-api", "--example", "crds", "--", "manifests/crds"],
        outputs: &["manifests/crds"],
    },
    Generator {
        name: "kubernetes",
        directory: "crates/api/schema/kubernetes",
        command: &["go", "run", ".", "../../src/builtin/types.txt"],
        outputs: &["../../src/builtin/types.txt"],
    },
];

/// The contents of files.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

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
        let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
        let stale: Vec<&PathBuf> =
            paths.into_iter().filter(|path| before.get(*path) != after.get(*path)).collect();
        for path in &stale {
            restore(path, before.get(*path).map(Vec::as_slice))?;
        }
        result?;
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

    /// The outputs that exist.
    fn read_outputs(&self) -> Result<Contents> {
        let mut contents = Contents::new();
        for output in self.outputs {
            let path = self.directory().join(output);
            let files = if path.is_dir() { files_in(&path)? } else { vec![path] };
            for file in files.into_iter().filter(|file| file.exists()) {
                let bytes = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
                contents.insert(file, bytes);
            }
        }
        Ok(contents)
    }
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn restore(path: &Path, contents: Option<&[u8]>) -> Result<()> {
    match contents {
        Some(contents) => fs::write(path, contents),
        None => fs::remove_file(path),
    }
    .with_context(|| format!("putting back {}", path.display()))
}
