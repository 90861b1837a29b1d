//! Trying rules on an object.

use canopus_base::tree::{Map, Node, Value as Tree};

use super::{OLD_SELF, Rule};
use crate::crd::cel::{EvalError, Meter, Program, Value};
use crate::crd::error::{ErrorKind, FieldError};
use crate::crd::path::Path;
use crate::crd::schema::{ListType, Schema};
use crate::text::quoted;

/// What one rule may cost, and what all rules of an object may cost together, in the API server's units.
const RULE_BUDGET: u64 = 1_000_000;
const OBJECT_BUDGET: u64 = 10_000_000;
/// The longest message an expression may make.
const MAX_MESSAGE: usize = 5 << 10;

/// Every rule that an object breaks. Rules about a change are tried only where there is something to compare with.
pub(in crate::crd) fn check(schema: &Schema, object: &Node, old: Option<&Node>) -> Vec<FieldError> {
    let mut run = Run { errors: Vec::new(), budget: OBJECT_BUDGET };
    // Once the budget is spent there is nothing more to do; why is in the errors.
    let _ = run.value(schema, schema, true, object, old, Path::ROOT);
    run.errors
}

struct Run {
    errors: Vec<FieldError>,
    budget: u64,
}

/// The budget is spent.
struct Spent;

impl Run {
    /// Tries the rules of `rules` on a value that is of the type that `types` says. They differ within `allOf`.
    fn value(
        &mut self,
        rules: &Schema,
        types: &Schema,
        is_object: bool,
        node: &Node,
        old: Option<&Node>,
        path: Path<'_>,
    ) -> Result<(), Spent> {
        // Whether a value may be null, or is there at all, is for rules around it to say.
        if !rules.has_rules || node.is_null() {
            return Ok(());
        }
        let subject = Subject { types, is_object, node, old: old.filter(|old| !old.is_null()), path };
        for rule in &rules.rules {
            self.rule(rule, subject)?;
        }
        for part in &rules.all_of {
            self.value(part, types, is_object, node, old, path)?;
        }
        match &node.value {
            Tree::Map(map) => self.map(rules, types, map, old.and_then(Node::as_map), path),
            Tree::List(items) => self.list(rules, types, items, old, path),
            _ => Ok(()),
        }
    }

    fn map(
        &mut self,
        rules: &Schema,
        types: &Schema,
        map: &Map,
        old: Option<&Map>,
        path: Path<'_>,
    ) -> Result<(), Spent> {
        for entry in map {
            let old = old.and_then(|old| old.get(&entry.key));
            let key = &*entry.key;
            if let (Some(rules), Some(types)) = (rules.properties.get(key), types.properties.get(key)) {
                self.value(rules, types, types.is_embedded_object, &entry.node, old, path.field(key))?;
            } else if let (Some(rules), Some(types)) = (rules.values(), types.values()) {
                self.value(rules, types, types.is_embedded_object, &entry.node, old, path.key(key))?;
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        rules: &Schema,
        types: &Schema,
        items: &[Node],
        old: Option<&Node>,
        path: Path<'_>,
    ) -> Result<(), Spent> {
        let (Some(rules), Some(item_types)) = (&rules.items, &types.items) else { return Ok(()) };
        let old = old.and_then(Node::as_list).unwrap_or_default();
        for (index, item) in items.iter().enumerate() {
            let old = counterpart(types, item, old);
            self.value(rules, item_types, item_types.is_embedded_object, item, old, path.index(index))?;
        }
        Ok(())
    }

    fn rule(&mut self, rule: &Rule, subject: Subject<'_>) -> Result<(), Spent> {
        let program = match &rule.program {
            Ok(program) => program,
            Err(problem) => {
                self.errors.push(subject.invalid(format!("rule compile error: {problem}")));
                return Ok(());
            }
        };
        // A rule about a change has nothing to say about an object that is new.
        if program.uses(OLD_SELF) && subject.old.is_none() && !rule.optional_old_self {
            return Ok(());
        }
        match self.evaluate(program, rule, subject)? {
            Ok(Value::Bool(true)) => Ok(()),
            Ok(Value::Bool(false)) => self.broken(rule, subject),
            Ok(_) => {
                self.errors
                    .push(subject.invalid(format!("rule does not evaluate to a bool: {}", rule.name())));
                Ok(())
            }
            Err(error) => self.failed(&error, rule, subject),
        }
    }

    fn evaluate<'a>(
        &mut self,
        program: &'a Program,
        rule: &Rule,
        subject: Subject<'a>,
    ) -> Result<Result<Value<'a>, EvalError>, Spent> {
        let mut meter = Meter::new(RULE_BUDGET.min(self.budget));
        let value = program.run(subject.variables(rule), &mut meter);
        if meter.used() > self.budget {
            let message = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.errors.push(subject.invalid(message.to_owned()));
            return Err(Spent);
        }
        self.budget -= meter.used();
        Ok(value)
    }

    /// The rule says no.
    fn broken(&mut self, rule: &Rule, subject: Subject<'_>) -> Result<(), Spent> {
        let made = match &rule.message_expression {
            Some(Ok(program)) => {
                self.evaluate(program, rule, subject)?.ok().and_then(|value| message(&value))
            }
            _ => None,
        };
        let detail = made.unwrap_or_else(|| match &rule.message {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule.source.trim()),
        });
        let mut error = subject.invalid(detail);
        error.kind = rule.reason;
        if let Some(field) = &rule.field {
            let separator = if error.path.is_empty() { "" } else { "." };
            error.path = format!("{}{separator}{field}", error.path);
        }
        match rule.reason {
            ErrorKind::Required | ErrorKind::Forbidden => error.value = None,
            ErrorKind::Duplicate => error.detail.clear(),
            _ => {}
        }
        self.errors.push(error);
        Ok(())
    }

    /// The rule has no answer, which counts as no.
    fn failed(&mut self, error: &EvalError, rule: &Rule, subject: Subject<'_>) -> Result<(), Spent> {
        let name = rule.name();
        self.errors.push(subject.invalid(match error {
            EvalError::NoSuchOverload => format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            ),
            EvalError::TooCostly => format!(
                "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
            ),
            EvalError::Other(_) => format!("{error} evaluating rule: {name}"),
        }));
        if *error == EvalError::TooCostly { Err(Spent) } else { Ok(()) }
    }
}

/// The value that rules are tried on.
#[derive(Clone, Copy)]
struct Subject<'a> {
    types: &'a Schema,
    /// Whether it is a whole object of Kubernetes.
    is_object: bool,
    node: &'a Node,
    old: Option<&'a Node>,
    path: Path<'a>,
}

impl<'a> Subject<'a> {
    fn variables(&self, rule: &Rule) -> Vec<Result<Value<'a>, EvalError>> {
        let (types, is_object) = (self.types, self.is_object);
        let old = self.old.map(|old| Value::from_object_node(old, types, is_object));
        let old = match (old, rule.optional_old_self) {
            (Some(old), false) => old,
            (None, false) => Err(EvalError::Other("no such attribute(s): oldSelf".into())),
            (Some(old), true) => old.map(|old| Value::Optional(Some(old.into()))),
            (None, true) => Ok(Value::Optional(None)),
        };
        vec![Value::from_object_node(self.node, types, is_object), old]
    }

    // Parity: the value is not shown, only what type it is of.
    fn invalid(&self, detail: String) -> FieldError {
        FieldError {
            kind: ErrorKind::Invalid,
            path: self.path.to_string(),
            at: self.node.at,
            value: Some(quoted(self.types.type_name()).into()),
            detail,
        }
    }
}

/// What an item of a list was before: the item with the same keys, where a list has keys.
fn counterpart<'a>(types: &Schema, item: &Node, old: &'a [Node]) -> Option<&'a Node> {
    let ListType::Map(keys) = &types.list_type else { return None };
    old.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
}

/// What an expression made as a message, if it can be one.
fn message(value: &Value<'_>) -> Option<String> {
    let Value::String(text) = value else { return None };
    let text = text.trim();
    let usable = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
    usable.then(|| text.to_owned())
}
