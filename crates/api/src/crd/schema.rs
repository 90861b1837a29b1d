//! A structural schema: what a CRD says an object may look like.

mod parse;

use std::collections::BTreeMap;

use canopus_base::tree::Node;

use super::pattern::Pattern;
use super::rule::Rule;

pub(super) use parse::parse;

/// The schema of one value, with those of the values within it.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub(super) kind: Option<Type>,
    pub(super) format: Option<Box<str>>,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    pub(super) preserves_unknown: bool,
    /// A whole object of Kubernetes with its own `apiVersion`, `kind` and `metadata`.
    pub(super) is_embedded_object: bool,
    pub(super) default: Option<Node>,
    pub(super) properties: BTreeMap<Box<str>, Schema>,
    pub(super) additional: Option<Additional>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) list_type: ListType,
    pub(super) bounds: Bounds,
    pub(super) required: Vec<Box<str>>,
    pub(super) choices: Vec<Node>,
    pub(super) all_of: Vec<Schema>,
    pub(super) any_of: Vec<Schema>,
    pub(super) one_of: Vec<Schema>,
    pub(super) not: Option<Box<Schema>>,
    pub(super) rules: Vec<Rule>,
    /// Whether this schema or one within it has rules.
    pub(super) has_rules: bool,
}

/// The types of JSON, numbers with and without fraction apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// What an object may hold besides its properties.
#[derive(Clone, Debug)]
pub(super) enum Additional {
    /// Anything, or nothing.
    Allowed(bool),
    /// Values of one schema under any key.
    Values(Box<Schema>),
}

/// What makes two items of a list the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ListType {
    /// Nothing: items may repeat.
    #[default]
    Atomic,
    /// Being equal.
    Set,
    /// Having equal values in these fields.
    Map(Vec<Box<str>>),
}

/// Limits on a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) pattern: Option<Pattern>,
    pub(super) min_items: Option<usize>,
    pub(super) max_items: Option<usize>,
    pub(super) unique_items: bool,
    pub(super) min_properties: Option<usize>,
    pub(super) max_properties: Option<usize>,
}

/// One end of a range of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    pub(super) limit: f64,
    pub(super) exclusive: bool,
}

impl Type {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

impl Schema {
    /// The type as messages name it.
    pub(super) const fn type_name(&self) -> &'static str {
        match self.kind {
            Some(kind) => kind.name(),
            None if self.int_or_string => "integer,string",
            None => "",
        }
    }

    /// The schema of the values under keys that are not properties.
    pub(super) fn values(&self) -> Option<&Self> {
        match &self.additional {
            Some(Additional::Values(schema)) => Some(schema),
            _ => None,
        }
    }

    /// The schema of what stands under a key, if the key is known.
    pub(super) fn under(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or_else(|| self.values())
    }
}
