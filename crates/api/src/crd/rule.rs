//! The rules of a schema: `x-kubernetes-validations`.

mod run;

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_base::tree::Node;

use super::CrdError;
use super::cel::Program;
use super::error::ErrorKind;
use super::path::Path;

pub(super) use run::check;

/// The variables of a rule, in their places.
const VARIABLES: [&str; 2] = ["self", "oldSelf"];
const OLD_SELF: usize = 1;

/// A rule that values of a schema have to keep.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    source: Box<str>,
    /// What is said when it is broken.
    message: Option<Box<str>>,
    message_expression: Option<Compiled>,
    reason: ErrorKind,
    /// The field below the value that is blamed.
    field: Option<Box<str>>,
    optional_old_self: bool,
    program: Compiled,
}

/// A program, or what is wrong with its text.
type Compiled = Result<Arc<Program>, Arc<str>>;

impl Rule {
    /// The rule as messages name it.
    fn name(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.source).trim()
    }
}

/// Compiles rules. The same few stand in many places of a CRD, so each is compiled once.
#[derive(Default)]
pub(super) struct Compiler {
    programs: BTreeMap<Box<str>, Compiled>,
}

impl Compiler {
    pub(super) fn rule(&mut self, node: &Node, path: Path<'_>) -> Result<Rule, CrdError> {
        let wrong =
            |problem: &str| CrdError { path: path.to_string(), at: node.at, problem: problem.to_owned() };
        let text = |key: &str| node.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
        let source = text("rule").ok_or_else(|| wrong("a rule has an expression"))?;
        let reason = match text("reason") {
            None | Some("FieldValueInvalid") => ErrorKind::Invalid,
            Some("FieldValueForbidden") => ErrorKind::Forbidden,
            Some("FieldValueRequired") => ErrorKind::Required,
            Some("FieldValueDuplicate") => ErrorKind::Duplicate,
            Some(_) => return Err(wrong("there is no such reason")),
        };
        let field =
            text("fieldPath").map(|path| field_path(path).ok_or_else(|| wrong("not a path to a field")));
        Ok(Rule {
            source: source.into(),
            message: text("message").map(Into::into),
            message_expression: text("messageExpression").map(|source| self.compile(source)),
            reason,
            field: field.transpose()?,
            optional_old_self: node.get("optionalOldSelf").and_then(Node::as_bool).unwrap_or_default(),
            program: self.compile(source),
        })
    }

    fn compile(&mut self, source: &str) -> Compiled {
        if let Some(known) = self.programs.get(source) {
            return known.clone();
        }
        let compiled: Compiled = Program::compile(source, &VARIABLES).map(Arc::new).map_err(Into::into);
        self.programs.insert(source.into(), compiled.clone());
        compiled
    }
}

/// A path such as `.a['b.c']` as messages have it: `a.b.c`.
fn field_path(text: &str) -> Option<Box<str>> {
    let mut names = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = match rest.strip_prefix("['") {
            Some(quoted) => quoted.split_once("']")?,
            None => {
                let name = rest.strip_prefix('.')?;
                name.split_at(name.find(['.', '[']).unwrap_or(name.len()))
            }
        };
        if name.is_empty() {
            return None;
        }
        names.push(name);
        rest = after;
    }
    Some(names.join(".").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_to_a_field_is_read() {
        assert_eq!(field_path(".a.b").as_deref(), Some("a.b"));
        assert_eq!(field_path(".a['b.c'].d").as_deref(), Some("a.b.c.d"));
        for bad in ["a", ".", ".a.", ".a[b]", ".a['b"] {
            assert_eq!(field_path(bad), None, "{bad}");
        }
    }
}
