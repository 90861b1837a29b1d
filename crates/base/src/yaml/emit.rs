//! Writing YAML, byte for byte as the tools of Kubernetes print it.
//!
//! Two flags decide where blanks and line breaks go: whether the last thing written was white space, and whether the
//! line so far is but indentation and markers.

mod scalar;

use super::order;
use super::resolve::normalized;
use crate::float;
use crate::tree::{Entry, Node, Number, Value};

/// The indentation of one level.
const INDENT: usize = 2;
/// Scalars with blanks are folded after this column.
const WIDTH: usize = 80;
/// Keys longer than this are written with a question mark before them.
const SIMPLE_KEY_MAX: usize = 128;

/// Writes a document.
pub(super) fn emit(node: &Node) -> String {
    let mut emitter =
        Emitter { out: String::new(), column: 0, indent: None, whitespace: true, indention: true };
    emitter.node(node, NodePosition::Root);
    emitter.new_line();
    emitter.out
}

/// Where a node stands.
#[derive(Clone, Copy, PartialEq)]
enum NodePosition {
    Root,
    Item,
    /// A key on the line of its colon.
    SimpleKey,
    /// A key behind a question mark.
    LongKey,
    Value,
}

struct Emitter {
    out: String,
    column: usize,
    /// The indentation of the open list or map, if one is.
    indent: Option<usize>,
    whitespace: bool,
    indention: bool,
}

impl Emitter {
    fn node(&mut self, node: &Node, place: NodePosition) {
        match &node.value {
            Value::Null => self.word("null"),
            Value::Bool(truth) => self.word(if *truth { "true" } else { "false" }),
            Value::Number(number) => self.word(&number_text(*number)),
            Value::String(text) => self.string(text, place),
            Value::List(items) if items.is_empty() => self.empty("[]"),
            Value::Map(map) if map.is_empty() => self.empty("{}"),
            Value::List(items) => self.list(items, place),
            Value::Map(map) => {
                let mut entries: Vec<&Entry> = map.iter().collect();
                entries.sort_by(|a, b| order::natural(&a.key, &b.key));
                self.map(&entries);
            }
        }
    }

    fn list(&mut self, items: &[Node], place: NodePosition) {
        // A list under a key stands in the key's own column.
        let hangs = matches!(place, NodePosition::Value | NodePosition::LongKey) && !self.indention;
        let outer = self.indent;
        self.indent = Some(match outer {
            None => 0,
            Some(indent) if hangs => indent,
            Some(indent) => indent + INDENT,
        });
        for item in items {
            self.new_line();
            self.marker("-");
            self.node(item, NodePosition::Item);
        }
        self.indent = outer;
    }

    fn map(&mut self, entries: &[&Entry]) {
        let outer = self.indent;
        self.indent = Some(outer.map_or(0, |indent| indent + INDENT));
        for entry in entries {
            self.new_line();
            if entry.key.len() <= SIMPLE_KEY_MAX && !entry.key.contains(scalar::is_break) {
                self.string(&entry.key, NodePosition::SimpleKey);
                self.indicator(":", false);
            } else {
                self.marker("?");
                self.string(&entry.key, NodePosition::LongKey);
                self.new_line();
                self.marker(":");
            }
            self.node(&entry.node, NodePosition::Value);
        }
        self.indent = outer;
    }

    fn empty(&mut self, brackets: &str) {
        self.indicator(brackets, true);
    }

    /// A scalar that needs no quotes and has no blanks.
    fn word(&mut self, text: &str) {
        self.indicator(text, true);
    }

    /// A marker at the head of a line: the line is still but indentation.
    fn marker(&mut self, marker: &str) {
        let indention = self.indention;
        self.indicator(marker, true);
        self.indention = indention;
    }

    /// Writes something that is not white space, after a blank if it needs one.
    fn indicator(&mut self, text: &str, needs_blank: bool) {
        if needs_blank && !self.whitespace {
            self.put(' ');
        }
        self.put_all(text);
        self.whitespace = false;
        self.indention = false;
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_all(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += if text.is_ascii() { text.len() } else { text.chars().count() };
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    /// Starts a line at the current indentation, unless already there.
    fn new_line(&mut self) {
        let indent = self.indent.unwrap_or(0);
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.line_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }
}

fn number_text(number: Number) -> String {
    match normalized(number) {
        Number::Float(float) => float::shortest(float),
        integer => integer.to_string(),
    }
}
