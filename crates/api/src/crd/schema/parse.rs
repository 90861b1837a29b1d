//! Reading a schema from the document of a CRD.

use std::collections::BTreeMap;

use canopus_base::tree::{Node, Number, Value};

use super::{Additional, Bound, Bounds, ListType, Schema, Type};
use crate::crd::CrdError;
use crate::crd::path::Path;
use crate::crd::pattern::Pattern;
use crate::crd::rule::Compiler;

type Result<T> = std::result::Result<T, CrdError>;

/// Reads a schema and those within it.
pub(in crate::crd) fn parse(node: &Node, path: Path<'_>, compiler: &mut Compiler) -> Result<Schema> {
    Parser { node, path }.schema(compiler)
}

/// One schema being read.
#[derive(Clone, Copy)]
struct Parser<'a> {
    node: &'a Node,
    path: Path<'a>,
}

impl<'a> Parser<'a> {
    fn schema(self, compiler: &mut Compiler) -> Result<Schema> {
        if self.node.as_map().is_none() {
            return Err(self.wrong(self.path, "a schema is a mapping"));
        }
        if self.get("$ref").is_some() {
            return Err(self.wrong(self.path, "references are not allowed in the schema of a CRD"));
        }
        let mut schema = Schema {
            kind: self.kind()?,
            format: self.text("format")?.map(Into::into),
            nullable: self.flag("nullable")?,
            int_or_string: self.flag("x-kubernetes-int-or-string")?,
            preserves_unknown: self.flag("x-kubernetes-preserve-unknown-fields")?,
            is_embedded_object: self.flag("x-kubernetes-embedded-resource")?,
            default: self.get("default").filter(|default| !default.is_null()).cloned(),
            properties: self.properties(compiler)?,
            additional: self.additional(compiler)?,
            items: self.part("items", compiler)?.map(Box::new),
            list_type: self.list_type()?,
            bounds: self.bounds()?,
            required: self.texts("required")?,
            choices: self.list("enum")?.to_vec(),
            all_of: self.parts("allOf", compiler)?,
            any_of: self.parts("anyOf", compiler)?,
            one_of: self.parts("oneOf", compiler)?,
            not: self.part("not", compiler)?.map(Box::new),
            rules: self.rules(compiler)?,
            has_rules: false,
        };
        schema.has_rules = has_rules(&schema);
        Ok(schema)
    }

    fn get(self, key: &str) -> Option<&'a Node> {
        self.node.get(key)
    }

    fn wrong(self, path: Path<'_>, problem: impl Into<String>) -> CrdError {
        CrdError { path: path.to_string(), at: self.node.at, problem: problem.into() }
    }

    /// What `key` holds, if it holds anything, as `read` reads it.
    fn read<T>(self, key: &str, what: &str, read: impl FnOnce(&'a Node) -> Option<T>) -> Result<Option<T>> {
        match self.get(key).filter(|node| !node.is_null()) {
            None => Ok(None),
            Some(node) => match read(node) {
                Some(value) => Ok(Some(value)),
                None => Err(self.wrong(self.path.field(key), format!("expected {what}"))),
            },
        }
    }

    fn flag(self, key: &str) -> Result<bool> {
        Ok(self.read(key, "true or false", Node::as_bool)?.unwrap_or_default())
    }

    fn text(self, key: &str) -> Result<Option<&'a str>> {
        self.read(key, "a text", Node::as_str)
    }

    fn number(self, key: &str) -> Result<Option<f64>> {
        self.read(key, "a number", Node::as_f64)
    }

    fn count(self, key: &str) -> Result<Option<usize>> {
        self.read(key, "a count", |node| usize::try_from(whole(node)?).ok())
    }

    fn list(self, key: &str) -> Result<&'a [Node]> {
        Ok(self.read(key, "a list", Node::as_list)?.unwrap_or_default())
    }

    fn texts(self, key: &str) -> Result<Vec<Box<str>>> {
        let text = |node: &Node| node.as_str().map(Into::into);
        let texts = self.list(key)?.iter().map(text).collect::<Option<Vec<_>>>();
        texts.ok_or_else(|| self.wrong(self.path.field(key), "expected a list of texts"))
    }

    fn kind(self) -> Result<Option<Type>> {
        let Some(name) = self.text("type")?.filter(|name| !name.is_empty()) else { return Ok(None) };
        let kind = match name {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => return Err(self.wrong(self.path.field("type"), format!("there is no type {name:?}"))),
        };
        Ok(Some(kind))
    }

    fn part(self, key: &str, compiler: &mut Compiler) -> Result<Option<Schema>> {
        let part = self.get(key).filter(|node| !node.is_null());
        part.map(|node| parse(node, self.path.field(key), compiler)).transpose()
    }

    fn parts(self, key: &str, compiler: &mut Compiler) -> Result<Vec<Schema>> {
        let path = self.path.field(key);
        let parts = self.list(key)?.iter().enumerate();
        parts.map(|(index, node)| parse(node, path.index(index), compiler)).collect()
    }

    fn properties(self, compiler: &mut Compiler) -> Result<BTreeMap<Box<str>, Schema>> {
        let path = self.path.field("properties");
        let Some(properties) = self.read("properties", "a mapping", Node::as_map)? else {
            return Ok(BTreeMap::new());
        };
        let property = |entry: &canopus_base::tree::Entry| {
            Ok((entry.key.clone(), parse(&entry.node, path.field(&entry.key), compiler)?))
        };
        properties.iter().map(property).collect()
    }

    fn additional(self, compiler: &mut Compiler) -> Result<Option<Additional>> {
        match self.get("additionalProperties").map(|node| &node.value) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(allowed)) => Ok(Some(Additional::Allowed(*allowed))),
            Some(_) => {
                let schema = self.part("additionalProperties", compiler)?;
                Ok(schema.map(|schema| Additional::Values(Box::new(schema))))
            }
        }
    }

    fn list_type(self) -> Result<ListType> {
        match self.text("x-kubernetes-list-type")? {
            None | Some("atomic") => Ok(ListType::Atomic),
            Some("set") => Ok(ListType::Set),
            Some("map") => Ok(ListType::Map(self.texts("x-kubernetes-list-map-keys")?)),
            Some(other) => {
                let path = self.path.field("x-kubernetes-list-type");
                Err(self.wrong(path, format!("there is no type of list {other:?}")))
            }
        }
    }

    fn bounds(self) -> Result<Bounds> {
        Ok(Bounds {
            minimum: self.bound("minimum", "exclusiveMinimum")?,
            maximum: self.bound("maximum", "exclusiveMaximum")?,
            multiple_of: self.number("multipleOf")?,
            min_length: self.count("minLength")?,
            max_length: self.count("maxLength")?,
            pattern: self.text("pattern")?.filter(|pattern| !pattern.is_empty()).map(Pattern::new),
            min_items: self.count("minItems")?,
            max_items: self.count("maxItems")?,
            unique_items: self.flag("uniqueItems")?,
            min_properties: self.count("minProperties")?,
            max_properties: self.count("maxProperties")?,
        })
    }

    fn bound(self, key: &str, exclusive: &str) -> Result<Option<Bound>> {
        let exclusive = self.flag(exclusive)?;
        Ok(self.number(key)?.map(|limit| Bound { limit, exclusive }))
    }

    fn rules(self, compiler: &mut Compiler) -> Result<Vec<crate::crd::rule::Rule>> {
        let path = self.path.field("x-kubernetes-validations");
        let rules = self.list("x-kubernetes-validations")?.iter().enumerate();
        rules.map(|(index, node)| compiler.rule(node, path.index(index))).collect()
    }
}

/// A whole number, whichever way it is written.
fn whole(node: &Node) -> Option<i64> {
    match node.value {
        Value::Number(Number::Int(int)) => Some(int),
        Value::Number(Number::Float(float)) if float.fract() == 0.0 && float.abs() < 9e15 => {
            Some(float as i64)
        }
        _ => None,
    }
}

fn has_rules(schema: &Schema) -> bool {
    let within = schema
        .properties
        .values()
        .chain(schema.items.as_deref())
        .chain(schema.values())
        .chain(&schema.all_of);
    !schema.rules.is_empty() || within.into_iter().any(|part| part.has_rules)
}
