//! Sets of templates.

use std::sync::Arc;

use canopus_base::FastMap;

use crate::ast::Tree;
use crate::error::ParseError;
use crate::limits::Limits;
use crate::parse;
use crate::value::Functions;

/// Named templates that can call each other, with the functions they may use.
///
/// Copies share the parsed templates; parsing into a copy leaves the original as it was.
#[derive(Clone, Debug)]
pub struct Templates {
    name: String,
    functions: Arc<Functions>,
    trees: Arc<FastMap<String, Arc<Tree>>>,
    missing_key: MissingKey,
    limits: Limits,
}

/// What a key that a map does not have gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissingKey {
    /// The key has no value, which prints as `<no value>`; keys of it have none either.
    #[default]
    Default,
    /// The zero value of the map's element type. For `interface {}` that is nil, of which no key can be taken.
    Zero,
    /// An error.
    Error,
}

impl Templates {
    /// An empty set. The name stands in a few errors, and for the text that `tpl` renders.
    pub fn new(name: impl Into<String>, functions: Functions) -> Self {
        Self {
            name: name.into(),
            functions: Arc::new(functions),
            trees: Arc::default(),
            missing_key: MissingKey::default(),
            limits: Limits::default(),
        }
    }

    /// Says what missing keys give.
    #[must_use]
    pub fn with_missing_key(mut self, missing_key: MissingKey) -> Self {
        self.missing_key = missing_key;
        self
    }

    /// Bounds each rendering.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Parses a text as the template `name`, along with what it defines. A template that exists is replaced, unless the new
    /// one is blank.
    pub fn parse(&mut self, name: &str, text: &str) -> Result<(), ParseError> {
        self.parse_own(name, text).map(|_| ())
    }

    /// Parses a text and gives its own template, which may be blank and thus not in the set.
    pub(crate) fn parse_own(&mut self, name: &str, text: &str) -> Result<Arc<Tree>, ParseError> {
        let functions = Arc::clone(&self.functions);
        let parsed = parse::parse(name, text, &|function| functions.contains(function))?;
        let mut own = None;
        for (defined, tree) in parsed {
            if defined == name {
                own = Some(Arc::clone(&tree));
            }
            let trees = Arc::make_mut(&mut self.trees);
            if !tree.root.is_blank() || !trees.contains_key(&defined) {
                trees.insert(defined, tree);
            }
        }
        own.ok_or_else(|| ParseError { name: name.to_owned(), line: 1, message: "no template".to_owned() })
    }

    /// The names of the templates, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.trees.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Whether there is a template of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.trees.contains_key(name)
    }

    pub(crate) fn tree(&self, name: &str) -> Option<&Tree> {
        self.trees.get(name).map(|tree| &**tree)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    pub(crate) fn missing_key(&self) -> MissingKey {
        self.missing_key
    }
}
