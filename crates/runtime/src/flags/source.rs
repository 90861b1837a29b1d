//! Where settings come from: the environment of the process, or a map in tests and scenarios.

use std::collections::BTreeMap;
use std::env;

/// Named texts.
pub trait Source {
    /// All names and their texts.
    fn variables(&self) -> BTreeMap<String, String>;
}

/// The environment of the process. Names and texts that are not UTF-8 are read with replacement characters.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnvironment;

impl Source for ProcessEnvironment {
    fn variables(&self) -> BTreeMap<String, String> {
        let text = |raw: std::ffi::OsString| raw.to_string_lossy().into_owned();
        env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
    }
}

impl Source for BTreeMap<String, String> {
    fn variables(&self) -> BTreeMap<String, String> {
        self.clone()
    }
}

impl<const N: usize> Source for [(&str, &str); N] {
    fn variables(&self) -> BTreeMap<String, String> {
        self.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}
