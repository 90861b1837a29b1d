use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// What the laws are checked against: the crates of the workspace and the text files of the repository.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) crates: Vec<Crate>,
    pub(super) files: Vec<TextFile>,
}

/// A member of the workspace.
#[derive(Debug)]
pub(super) struct Crate {
    /// Package name.
    pub(super) package: String,
    /// Directory, relative to the root of the repository.
    pub(super) directory: String,
    /// Root files of its libraries and binaries.
    pub(super) roots: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
}

/// A direct dependency, as the manifest (with what it inherits) asks for it.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) package: String,
    pub(super) kind: DependencyKind,
    pub(super) features: Vec<String>,
    pub(super) default_features: bool,
}

/// A text file of the repository.
#[derive(Debug)]
pub(super) struct TextFile {
    /// Path, relative to the root of the repository.
    pub(super) path: String,
    pub(super) text: String,
}

impl Tree {
    /// Reads the repository this tool was built from: files that are tracked or would be if added now.
    pub(super) fn read() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let metadata = MetadataCommand::new()
            .manifest_path(manifest)
            .no_deps()
            .exec()
            .context("asking cargo for the workspace")?;
        let root = metadata.workspace_root.as_std_path();
        Ok(Self { crates: crates(&metadata), files: files(root)? })
    }

    pub(super) fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl Crate {
    /// Name in the crate table: the package name without the project's prefix.
    pub(super) fn name(&self) -> &str {
        self.package.strip_prefix("canopus-").unwrap_or(&self.package)
    }

    pub(super) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.directory)
    }
}

impl TextFile {
    /// Lines with their numbers, counted from 1.
    pub(super) fn numbered_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

fn crates(metadata: &Metadata) -> Vec<Crate> {
    let relative = |path: &cargo_metadata::camino::Utf8Path| {
        path.strip_prefix(&metadata.workspace_root).unwrap_or(path).to_string()
    };
    let described = metadata.workspace_packages().into_iter().map(|package| Crate {
        package: package.name.to_string(),
        directory: package.manifest_path.parent().map(relative).unwrap_or_default(),
        roots: package
            .targets
            .iter()
            .filter(|target| target.is_lib() || target.is_bin() || target.is_proc_macro())
            .map(|target| relative(&target.src_path))
            .collect(),
        dependencies: package
            .dependencies
            .iter()
            .map(|dependency| Dependency {
                package: dependency.name.clone(),
                kind: dependency.kind,
                features: dependency.features.clone(),
                default_features: dependency.uses_default_features,
            })
            .collect(),
    });
    described.collect()
}

fn files(root: &Path) -> Result<Vec<TextFile>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("listing the repository's files with `git`")?;
    ensure!(
        listed.status.success(),
        "`git ls-files` failed: {}",
        String::from_utf8_lossy(&listed.stderr).trim()
    );
    let mut files = Vec::new();
    for path in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
        // A file that is gone from the working tree is gone from the next commit; one that is not text has no words.
        let Ok(bytes) = fs::read(root.join(path)) else {
            continue;
        };
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        files.push(TextFile { path: path.to_owned(), text });
    }
    Ok(files)
}
