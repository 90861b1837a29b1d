//! Kubernetes label selectors: `matchLabels` and `matchExpressions`, and the text form of `kubectl -l`.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use super::{InvalidLabel, LABEL_MAX, Labels, is_qualified_name_or_empty, validate_key};

/// A conjunction of requirements; without any it selects everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Selector {
    /// Sorted by key.
    requirements: Vec<Requirement>,
}

/// One condition on one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Requirement {
    key: Box<str>,
    operator: Operator,
    /// Sorted, without repeats.
    values: Vec<Box<str>>,
}

/// How a requirement relates key and values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operator {
    /// Written `=`: the label has the one value.
    Equals,
    /// Written `==`: the same.
    DoubleEquals,
    /// The label is absent or has another value.
    NotEquals,
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer above the value.
    GreaterThan,
    /// The label is an integer below the value.
    LessThan,
}

/// Why a selector is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SelectorError {
    /// The text has something else where the grammar wants something.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// What stands there; empty at the end of the text.
        found: Box<str>,
        /// What may stand there.
        expected: &'static str,
    },
    /// A requirement of the text cannot be read.
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<SelectorError>),
    /// `matchExpressions` has an operator that Kubernetes does not know.
    #[error("{operator:?} is not a valid label selector operator")]
    Operator {
        /// The operator's text.
        operator: Box<str>,
    },
    /// The number of values does not suit the operator.
    #[error("key {key:?}: {rule}")]
    Values {
        /// The key.
        key: Box<str>,
        /// The rule that is broken.
        rule: &'static str,
    },
    /// A value is longer than 63 bytes.
    #[error("key {key:?}: value {value:?} must be no more than 63 bytes")]
    LongValue {
        /// The key.
        key: Box<str>,
        /// The value.
        value: Box<str>,
    },
    /// The value of `>` or `<` is not an integer.
    #[error("key {key:?}: for 'Gt', 'Lt' operators, the value must be an integer, not {value:?}")]
    NotInteger {
        /// The key.
        key: Box<str>,
        /// The value.
        value: Box<str>,
    },
    /// A key or value is not a well-formed label.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
}

impl Selector {
    /// The selector that selects everything.
    pub const fn everything() -> Self {
        Self { requirements: Vec::new() }
    }

    /// The selector of exactly these label values.
    pub fn from_labels(labels: &Labels) -> Self {
        let requirement = |(key, value): (&str, &str)| Requirement {
            key: key.into(),
            operator: Operator::Equals,
            values: vec![value.into()],
        };
        Self { requirements: labels.iter().map(requirement).collect() }
    }

    /// A selector of these requirements, all of which must hold.
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }

    /// The selector of an object's `matchLabels` and `matchExpressions`, the latter as (key, operator, values).
    pub fn from_parts<'a>(
        match_labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        match_expressions: impl IntoIterator<Item = (&'a str, &'a str, Vec<&'a str>)>,
    ) -> Result<Self, SelectorError> {
        let labels = match_labels
            .into_iter()
            .map(|(key, value)| Requirement::new(key, Operator::In, vec![value.into()]));
        let expressions = match_expressions.into_iter().map(|(key, operator, values)| {
            let operator = Operator::parse_expression(operator)?;
            Requirement::new(key, operator, values.into_iter().map(Box::from).collect())
        });
        Ok(Self::new(labels.chain(expressions).collect::<Result<_, _>>()?))
    }

    /// Reads the text form: `app=web,tier in (a, b),!legacy,weight>3`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::requirements(text).map(Self::new)
    }

    /// Whether every requirement holds for these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether this selects everything.
    pub const fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

impl Requirement {
    /// A requirement, checked: the key and values must be well formed and as many as the operator wants.
    pub fn new(key: &str, operator: Operator, mut values: Vec<Box<str>>) -> Result<Self, SelectorError> {
        validate_selector_key(key)?;
        if let Some(rule) = operator.broken_arity(values.len()) {
            return Err(SelectorError::Values { key: key.into(), rule });
        }
        for value in &values {
            validate_value(key, operator, value)?;
        }
        values.sort();
        values.dedup();
        Ok(Self { key: key.into(), operator, values })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The operator.
    pub const fn operator(&self) -> Operator {
        self.operator
    }

    /// The values, sorted.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &str> {
        self.values.iter().map(|value| &**value)
    }

    /// Whether the requirement holds for these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        let actual = labels.get(&self.key);
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => {
                actual.is_some_and(|value| self.has_value(value))
            }
            Operator::NotEquals | Operator::NotIn => actual.is_none_or(|value| !self.has_value(value)),
            Operator::Exists => actual.is_some(),
            Operator::DoesNotExist => actual.is_none(),
            Operator::GreaterThan => self.compares(actual, |actual, bound| actual > bound),
            Operator::LessThan => self.compares(actual, |actual, bound| actual < bound),
        }
    }

    fn has_value(&self, value: &str) -> bool {
        self.values.iter().any(|candidate| **candidate == *value)
    }

    fn compares(&self, actual: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let integers = actual.and_then(parse_integer).zip(self.values.first().and_then(|b| parse_integer(b)));
        integers.is_some_and(|(actual, bound)| holds(actual, bound))
    }
}

/// Checks a key as the API server does, which wants the DNS prefix in lower case.
fn validate_selector_key(key: &str) -> Result<(), InvalidLabel> {
    validate_key(key)?;
    match key.split_once('/') {
        Some((prefix, _)) if prefix.bytes().any(|b| b.is_ascii_uppercase()) => {
            Err(InvalidLabel::Key { key: key.into() })
        }
        _ => Ok(()),
    }
}

fn parse_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn validate_value(key: &str, operator: Operator, value: &str) -> Result<(), SelectorError> {
    let compares = matches!(operator, Operator::GreaterThan | Operator::LessThan);
    if compares && parse_integer(value).is_none() {
        return Err(SelectorError::NotInteger { key: key.into(), value: value.into() });
    }
    if value.len() > LABEL_MAX {
        return Err(SelectorError::LongValue { key: key.into(), value: value.into() });
    }
    if !is_qualified_name_or_empty(value) {
        return Err(InvalidLabel::Value { value: value.into() }.into());
    }
    Ok(())
}

impl Operator {
    /// The operators of `matchExpressions`, by the names they have there.
    fn parse_expression(name: &str) -> Result<Self, SelectorError> {
        match name {
            "In" => Ok(Self::In),
            "NotIn" => Ok(Self::NotIn),
            "Exists" => Ok(Self::Exists),
            "DoesNotExist" => Ok(Self::DoesNotExist),
            _ => Err(SelectorError::Operator { operator: name.into() }),
        }
    }

    /// The rule that so many values break, if they break one.
    fn broken_arity(self, values: usize) -> Option<&'static str> {
        let (fits, rule) = match self {
            Self::In | Self::NotIn => (values > 0, "for 'in', 'notin' operators, values set can't be empty"),
            Self::Equals | Self::DoubleEquals | Self::NotEquals => {
                (values == 1, "exact-match compatibility requires one single value")
            }
            Self::Exists | Self::DoesNotExist => {
                (values == 0, "values set must be empty for exists and does not exist")
            }
            Self::GreaterThan | Self::LessThan => {
                (values == 1, "for 'Gt', 'Lt' operators, exactly one value is required")
            }
        };
        (!fits).then_some(rule)
    }
}

impl fmt::Display for Selector {
    /// The text form, which [`Selector::parse`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let values = values.join(",");
        match operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}
