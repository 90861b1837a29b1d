//! The corpus on disk: directories of suites, and reading their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use canopus_base::hash::{ContentHash, Hasher};
use canopus_base::tree::{Limits, Node};
use canopus_base::{json, yaml};
use rayon::prelude::*;

/// A directory whose sub-directories are suites.
#[derive(Clone, Debug)]
pub(crate) struct Corpus {
    root: Arc<Path>,
}

impl Corpus {
    pub(crate) fn open(root: &Path) -> anyhow::Result<Self> {
        if !root.is_dir() {
            bail!("{} is not a directory", root.display());
        }
        Ok(Self { root: root.into() })
    }

    /// The names of the suites, sorted.
    pub(crate) fn suites(&self) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in
            fs::read_dir(&self.root).with_context(|| format!("cannot list {}", self.root.display()))?
        {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() && !name.starts_with('.') {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Every file below a directory of the corpus, sorted, relative to that directory.
    pub(crate) fn files(&self, directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let base = self.root.join(directory);
        let mut files = Vec::new();
        let mut folders = vec![base.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path.strip_prefix(&base)?.to_owned());
                }
            }
        }
        files.sort();
        Ok(files)
    }

    pub(crate) fn exists(&self, file: &Path) -> bool {
        self.root.join(file).is_file()
    }

    /// Where a file or directory of the corpus is.
    pub(crate) fn absolute(&self, file: &Path) -> PathBuf {
        self.root.join(file)
    }

    pub(crate) fn bytes(&self, file: &Path) -> anyhow::Result<Vec<u8>> {
        let path = self.root.join(file);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The documents of a YAML or JSON file.
    pub(crate) fn documents(&self, file: &Path) -> anyhow::Result<Vec<Node>> {
        let bytes = self.bytes(file)?;
        let documents = if has_extension(file, "json") {
            json::parse(&bytes, &Limits::default()).map(|node| vec![node])
        } else {
            let documents = yaml::parse_all(&bytes, &Limits::default()).into_iter();
            documents.map(|document| Ok(document?.node)).collect()
        };
        documents.with_context(|| format!("in {}", file.display()))
    }

    /// The first document of a YAML or JSON file; null if there is none.
    pub(crate) fn document(&self, file: &Path) -> anyhow::Result<Node> {
        Ok(self.documents(file)?.into_iter().next().unwrap_or_default())
    }

    /// A hash of every path and every byte: equal for equal corpora.
    pub(crate) fn fingerprint(&self) -> anyhow::Result<ContentHash> {
        let files = self.files(Path::new(""))?;
        let contents = files
            .par_iter()
            .map(|file| Ok(ContentHash::compute(&self.bytes(file)?).to_string()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut hasher = Hasher::new();
        for (file, content) in files.iter().zip(&contents) {
            hasher.field(file.to_string_lossy().as_bytes());
            hasher.field(content.as_bytes());
        }
        Ok(hasher.finish())
    }
}

/// The extension of a file; empty if it has none.
pub(crate) fn extension(file: &Path) -> &str {
    file.extension().and_then(|e| e.to_str()).unwrap_or_default()
}

pub(crate) fn has_extension(file: &Path, wanted: &str) -> bool {
    extension(file) == wanted
}
