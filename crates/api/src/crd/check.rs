//! Whether an object has the shape its schema asks for.
//!
//! The order of the checks, what each of them says and which alternative of several is blamed are those of the API server.

mod compose;
mod format;
mod number;

use std::collections::BTreeSet;

use canopus_base::tree::{Map, Node, Number, Value};

use self::format::Format;
use super::error::{ErrorKind, FieldError, shown};
use super::path::Path;
use super::schema::{Additional, Schema, Type};
use crate::text::quoted;

pub(super) use self::format::{date, duration, instant};

/// Reports every field of an object that its schema does not allow.
pub(super) fn check(schema: &Schema, object: &Node) -> Vec<FieldError> {
    let mut errors = value(schema, object, Path::ROOT).errors;
    // Alternatives are tried one by one and may find the same.
    let mut seen = BTreeSet::new();
    errors.retain(|error| seen.insert(error.to_string()));
    errors
}

/// What came of checking one value.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    /// How many checks passed; of several alternatives that fail, the one with most is blamed.
    passed: usize,
}

impl Outcome {
    fn merge(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.passed += other.passed;
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    fn add(&mut self, error: FieldError) {
        self.errors.push(error);
    }
}

/// The value being checked.
#[derive(Clone, Copy)]
struct Subject<'a> {
    node: &'a Node,
    path: Path<'a>,
}

impl Subject<'_> {
    fn error(&self, kind: ErrorKind, value: Option<Box<str>>, detail: String) -> FieldError {
        FieldError { kind, path: self.path.to_string(), at: self.node.at, value, detail }
    }

    /// A fault of the value itself: `spec.name in body should …`.
    fn invalid(&self, should: impl std::fmt::Display) -> FieldError {
        self.error(ErrorKind::Invalid, Some(shown(self.node)), self.in_body(should))
    }

    /// A fault in how much there is.
    fn invalid_count(&self, count: usize, should: impl std::fmt::Display) -> FieldError {
        self.error(ErrorKind::Invalid, Some(count.to_string().into()), self.in_body(should))
    }

    fn too_many(&self, count: usize, max: usize) -> FieldError {
        let detail = format!("must have at most {max} {}", plural(max, "item"));
        self.error(ErrorKind::TooMany, Some(count.to_string().into()), detail)
    }

    /// A fault that is not of the value alone, said in a sentence of its own.
    fn plain(&self, detail: String) -> FieldError {
        self.error(ErrorKind::Invalid, Some("\"\"".into()), detail)
    }

    fn wrong_type(&self, expected: &str, found: &str) -> FieldError {
        let found = quoted(found);
        let detail = self.in_body(format_args!("must be of type {expected}: {found}"));
        self.error(ErrorKind::Type, Some(found.into()), detail)
    }

    fn in_body(&self, words: impl std::fmt::Display) -> String {
        format!("{} in body {words}", self.path)
    }
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// Checks one value and those within it.
fn value(schema: &Schema, node: &Node, path: Path<'_>) -> Outcome {
    let subject = Subject { node, path };
    let format = Format::from_schema(schema);
    let mut outcome = Outcome::default();
    if node.is_null() {
        null(schema, subject, &mut outcome);
        return outcome;
    }
    if schema.kind.is_some() || schema.int_or_string || format.is_some() {
        type_of(schema, format, subject, &mut outcome);
    }
    compose::check(schema, subject, &mut outcome);
    match &node.value {
        Value::String(text) => {
            string(schema, text, subject, &mut outcome);
            format::check(format, text, subject, &mut outcome);
        }
        Value::Number(found) => number::check(schema, format, *found, subject, &mut outcome),
        Value::List(items) => list(schema, items, subject, &mut outcome),
        _ => {}
    }
    choice(schema, subject, &mut outcome);
    if let Value::Map(map) = &node.value {
        object(schema, map, subject, &mut outcome);
    }
    outcome.passed += 1;
    outcome
}

fn null(schema: &Schema, subject: Subject<'_>, outcome: &mut Outcome) {
    let name = schema.type_name();
    if !name.is_empty() && !schema.nullable {
        outcome.add(subject.wrong_type(name, "null"));
    }
    choice(schema, subject, outcome);
}

/// Whether the value is of the type, whatever else it is.
fn type_of(schema: &Schema, format: Option<Format>, subject: Subject<'_>, outcome: &mut Outcome) {
    let (found, found_format) = found_type(subject.node);
    let expects = |kind: Type| {
        schema.kind == Some(kind) || (schema.int_or_string && matches!(kind, Type::Integer | Type::String))
    };
    let fits = found.is_some_and(expects)
        || (number::is_whole(subject.node) && expects(Type::Integer))
        || (found == Some(Type::Integer) && expects(Type::Number));
    let is_text_or_list = matches!(found, Some(Type::String | Type::Array));
    let is_numeric = expects(Type::Integer) || expects(Type::Number);
    match format {
        Some(format) if !fits && !is_text_or_list => {
            outcome.add(subject.wrong_type(format.name(), found_format));
        }
        // Parity: the API server leaves texts and lists to the check of the format, which looks at texts alone.
        Some(_) if !is_numeric && is_text_or_list => outcome.passed += 2,
        _ if !fits => outcome.add(subject.wrong_type(schema.type_name(), found.map_or("", Type::name))),
        _ => outcome.passed += 2,
    }
}

/// The type of a value, and what the API server calls its format.
fn found_type(node: &Node) -> (Option<Type>, &'static str) {
    match &node.value {
        Value::Null => (None, ""),
        Value::Bool(_) => (Some(Type::Boolean), ""),
        Value::Number(Number::Int(_)) => (Some(Type::Integer), "int64"),
        Value::Number(_) => (Some(Type::Number), "float64"),
        Value::String(_) => (Some(Type::String), ""),
        Value::List(_) => (Some(Type::Array), ""),
        Value::Map(_) => (Some(Type::Object), ""),
    }
}

fn string(schema: &Schema, text: &str, subject: Subject<'_>, outcome: &mut Outcome) {
    let bounds = &schema.bounds;
    let length = || text.chars().count();
    if let Some(max) = bounds.max_length.filter(|max| length() > *max) {
        let detail = format!("may not be more than {max} {}", plural(max, "byte"));
        outcome.add(subject.error(ErrorKind::TooLong, None, detail));
    } else if let Some(min) = bounds.min_length.filter(|min| length() < *min) {
        outcome.add(subject.invalid(format_args!("should be at least {min} chars long")));
    } else if let Some(pattern) = &bounds.pattern {
        let source = pattern.source();
        match pattern.regex() {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => outcome.add(subject.invalid(format_args!("should match '{source}'"))),
            Err(error) => {
                outcome.add(
                    subject.invalid(format_args!("should match '{source}, but pattern is invalid: {error}'")),
                );
            }
        }
    }
    outcome.passed += 1;
}

fn list(schema: &Schema, items: &[Node], subject: Subject<'_>, outcome: &mut Outcome) {
    if let Some(schema) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            outcome.merge(value(schema, item, subject.path.index(index)));
        }
    }
    let bounds = &schema.bounds;
    if let Some(min) = bounds.min_items.filter(|min| items.len() < *min) {
        outcome.add(subject.invalid_count(items.len(), format_args!("should have at least {min} items")));
    }
    if let Some(max) = bounds.max_items.filter(|max| items.len() > *max) {
        outcome.add(subject.too_many(items.len(), max));
    }
    if bounds.unique_items && !super::lists::are_distinct(items.iter()) {
        outcome.add(subject.plain(subject.in_body("shouldn't contain duplicates")));
    }
    outcome.passed += 2;
}

fn object(schema: &Schema, map: &Map, subject: Subject<'_>, outcome: &mut Outcome) {
    let bounds = &schema.bounds;
    if let Some(min) = bounds.min_properties.filter(|min| map.len() < *min) {
        outcome.add(subject.invalid_count(map.len(), format_args!("should have at least {min} properties")));
    }
    if let Some(max) = bounds.max_properties.filter(|max| map.len() > *max) {
        outcome.add(subject.too_many(map.len(), max));
    }
    for entry in map {
        let path = subject.path.field(&entry.key);
        match (schema.properties.get(&entry.key), &schema.additional) {
            (Some(property), _) => outcome.merge(value(property, &entry.node, path)),
            (None, Some(Additional::Values(values))) => outcome.merge(value(values, &entry.node, path)),
            (None, Some(Additional::Allowed(false))) => {
                let detail = format!("{path} in body is a forbidden property");
                outcome.add(subject.error(ErrorKind::Invalid, Some(quoted(&entry.key).into()), detail));
            }
            (None, _) => {}
        }
    }
    for name in &schema.required {
        if !map.contains_key(name) {
            let missing = Subject { path: subject.path.field(name), ..subject };
            outcome.add(missing.error(ErrorKind::Required, None, String::new()));
        }
    }
    outcome.passed += 1;
}

/// Whether the value is one of those there are.
fn choice(schema: &Schema, subject: Subject<'_>, outcome: &mut Outcome) {
    let choices = &schema.choices;
    let node = subject.node;
    if choices.is_empty() || (!node.is_null() && choices.iter().any(|choice| number::equal(choice, node))) {
        outcome.passed += 1;
        return;
    }
    let text = |choice: &Node| match &choice.value {
        Value::String(text) => quoted(text),
        _ => quoted(&choice.to_json().to_string()),
    };
    let supported = choices.iter().map(text).collect::<Vec<_>>().join(", ");
    let detail = format!("supported values: {supported}");
    outcome.add(subject.error(ErrorKind::Unsupported, Some(shown(node)), detail));
}
