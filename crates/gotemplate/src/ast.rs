//! The syntax tree of a template, and its text as Go's error messages show it.

use std::fmt;
use std::sync::Arc;

use crate::gofmt::quote;
use crate::value::Str;

/// One named template.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) name: Arc<str>,
    /// The text's own name; a `define` inside it has another name but the same positions.
    pub(crate) source: Arc<Source>,
    pub(crate) root: List,
}

/// A text that was parsed.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Source {
    /// A position as `name:line:column`, the column in bytes from 0.
    pub(crate) fn location(&self, pos: usize) -> String {
        let before = &self.text.as_bytes()[..pos.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count();
        format!("{}:{line}:{column}", self.name)
    }
}

#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug)]
pub(crate) enum Node {
    Text(String),
    Action { pos: usize, pipe: Pipe },
    If(Branch),
    With(Branch),
    Range(Branch),
    Template { pos: usize, name: Str, pipe: Option<Pipe> },
    Break,
    Continue,
}

/// `if`, `with` or `range`.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) pos: usize,
    pub(crate) pipe: Pipe,
    pub(crate) list: List,
    pub(crate) otherwise: Option<List>,
}

#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) pos: usize,
    /// `=` rather than `:=`.
    pub(crate) assigns: bool,
    pub(crate) variables: Vec<Arc<str>>,
    pub(crate) commands: Vec<Command>,
}

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) pos: usize,
    pub(crate) args: Vec<Expr>,
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) pos: usize,
    pub(crate) term: Term,
}

#[derive(Debug)]
pub(crate) enum Term {
    Bool(bool),
    Nil,
    Dot,
    Number(Number),
    String {
        quoted: String,
        text: Str,
    },
    Field(Vec<String>),
    /// The variable, with its dollar sign, and the fields after it.
    Variable(Arc<str>, Vec<String>),
    Chain(Box<Expr>, Vec<String>),
    Function(String),
    Pipe(Pipe),
}

/// A number under every type that can represent it, for which one is meant depends on who receives it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Number {
    pub(crate) int: Option<i64>,
    pub(crate) uint: Option<u64>,
    pub(crate) float: Option<f64>,
    pub(crate) complex: Option<(f64, f64)>,
    pub(crate) text: String,
}

impl Node {
    pub(crate) fn pos(&self) -> usize {
        match self {
            Self::Action { pos, .. } | Self::Template { pos, .. } => *pos,
            Self::If(branch) | Self::With(branch) | Self::Range(branch) => branch.pos,
            Self::Text(_) | Self::Break | Self::Continue => 0,
        }
    }
}

impl List {
    /// Whether nothing but blanks is there; such a definition does not replace another.
    pub(crate) fn is_blank(&self) -> bool {
        self.nodes.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()))
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.iter().try_for_each(|node| node.fmt(f))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Action { pipe, .. } => write!(f, "{{{{{pipe}}}}}"),
            Self::If(branch) => branch.write(f, "if"),
            Self::With(branch) => branch.write(f, "with"),
            Self::Range(branch) => branch.write(f, "range"),
            Self::Template { name, pipe, .. } => {
                write!(f, "{{{{template {}", quote::quoted(name.as_bytes()))?;
                if let Some(pipe) = pipe {
                    write!(f, " {pipe}")?;
                }
                f.write_str("}}")
            }
            Self::Break => f.write_str("{{break}}"),
            Self::Continue => f.write_str("{{continue}}"),
        }
    }
}

impl Branch {
    fn write(&self, f: &mut fmt::Formatter<'_>, keyword: &str) -> fmt::Result {
        write!(f, "{{{{{keyword} {}}}}}{}", self.pipe, self.list)?;
        if let Some(otherwise) = &self.otherwise {
            write!(f, "{{{{else}}}}{otherwise}")?;
        }
        f.write_str("{{end}}")
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let operator = if self.assigns { "=" } else { ":=" };
            write!(f, "{} {operator} ", self.variables.join(", "))?;
        }
        for (at, command) in self.commands.iter().enumerate() {
            f.write_str(if at > 0 { " | " } else { "" })?;
            command.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, arg) in self.args.iter().enumerate() {
            f.write_str(if at > 0 { " " } else { "" })?;
            match &arg.term {
                Term::Pipe(pipe) => write!(f, "({pipe})")?,
                _ => arg.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.term {
            Term::Bool(truth) => truth.fmt(f),
            Term::Nil => f.write_str("nil"),
            Term::Dot => f.write_str("."),
            Term::Number(number) => f.write_str(&number.text),
            Term::String { quoted, .. } => f.write_str(quoted),
            Term::Field(names) => write_fields(f, names),
            Term::Variable(name, fields) => {
                f.write_str(name)?;
                write_fields(f, fields)
            }
            Term::Chain(inner, fields) => {
                match &inner.term {
                    Term::Pipe(pipe) => write!(f, "({pipe})")?,
                    _ => inner.fmt(f)?,
                }
                write_fields(f, fields)
            }
            Term::Function(name) => f.write_str(name),
            Term::Pipe(pipe) => pipe.fmt(f),
        }
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, names: &[String]) -> fmt::Result {
    names.iter().try_for_each(|name| write!(f, ".{name}"))
}
