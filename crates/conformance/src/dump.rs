//! Writing what was generated, for looking at it with other tools.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Where generated files go, if anywhere.
pub(crate) struct Dump {
    root: Option<PathBuf>,
    /// The suite that writes.
    suite: Box<str>,
}

impl Dump {
    pub(crate) fn new(root: Option<PathBuf>) -> Self {
        Self { root, suite: Box::default() }
    }

    /// The same for one suite: what it makes of files that belong to another does not go to where the other writes.
    pub(crate) fn for_suite(&self, suite: &str) -> Self {
        Self { root: self.root.clone(), suite: suite.into() }
    }

    /// Writes a generated file under its name in the corpus. `content` is made only if it is wanted.
    pub(crate) fn write(&self, file: &Path, content: impl FnOnce() -> String) -> anyhow::Result<()> {
        let Some(root) = &self.root else { return Ok(()) };
        let is_own = self.suite.is_empty() || file.starts_with(&*self.suite);
        let path = if is_own { root.join(file) } else { root.join(&*self.suite).join(file) };
        let directory = path.parent().unwrap_or(root);
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        std::fs::write(&path, content()).with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_written_under_its_name_in_the_corpus() {
        let root = tempfile::tempdir().unwrap();
        let dump = Dump::new(Some(root.path().to_owned()));
        dump.write(Path::new("xds/a/b.json"), || "[]".into()).unwrap();
        let written = std::fs::read_to_string(root.path().join("xds/a/b.json")).unwrap();
        assert_eq!(written, "[]");
    }

    #[test]
    fn suites_that_read_the_same_file_write_different_ones() {
        let root = tempfile::tempdir().unwrap();
        let dump = Dump::new(Some(root.path().to_owned()));
        for suite in ["xds", "proto-json"] {
            dump.for_suite(suite).write(Path::new("xds/a.json"), || suite.into()).unwrap();
        }
        let read = |file: &str| std::fs::read_to_string(root.path().join(file)).unwrap();
        assert_eq!((read("xds/a.json"), read("proto-json/xds/a.json")), ("xds".into(), "proto-json".into()));
    }

    #[test]
    fn content_is_not_made_when_nobody_wants_it() {
        Dump::new(None).write(Path::new("a"), || unreachable!("nobody asked")).unwrap();
    }
}
