//! From parser events to the tree, within limits.

mod base64;
mod merge;

use std::borrow::Cow;

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use self::merge::Merged;
use super::colon;
use super::resolve::{self, Resolved};
use crate::FastMap;
use crate::tree::{DuplicateKey, Entry, Limits, Map, Node, Pos, ReadError, ReadErrorKind, Value, clamp};

type Result<T> = std::result::Result<T, ReadError>;

/// The namespace of YAML's own tags, `!!str` and so on.
const YAML_TAGS: &str = "tag:yaml.org,2002:";

/// Reads a text of one document that starts at the given line of its stream.
pub(super) fn document(text: &str, first_line: u32, limits: &Limits, keys: RepeatedKeys) -> Result<Node> {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: limits.max_depth.saturating_add(1),
        block_nesting_limit: limits.max_depth.saturating_add(1),
    };
    let masked = colon::mask(text);
    let text = masked.as_deref().unwrap_or(text);
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder { masked: masked.is_some(), keys, ..Builder::new(text, first_line, limits) };
    while let Some((event, span)) = builder.next(&mut parser)? {
        match event {
            Event::DocumentEnd => break,
            event => builder.take(event, &span)?,
        }
    }
    builder.expect_end(&mut parser)?;
    Ok(builder.root.unwrap_or_default())
}

/// What becomes of a key that a map has twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RepeatedKeys {
    /// A repeated key is an error.
    Refused,
    /// The last one counts.
    LastWins,
}

struct Builder<'a> {
    text: &'a str,
    keys: RepeatedKeys,
    /// Whether the text has masked colons.
    masked: bool,
    first_line: u32,
    limits: &'a Limits,
    /// What has been read into the tree or kept for aliases so far.
    nodes: usize,
    /// Text that aliases have repeated so far.
    aliased_text: usize,
    anchors: FastMap<usize, Anchored>,
    /// The lists and maps that are open, outermost first.
    open: Vec<Open>,
    root: Option<Node>,
}

/// A list or map being read.
struct Open {
    at: Pos,
    /// The anchor on it, or 0.
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        /// The key whose value comes next.
        key: Option<Key>,
        /// Set once the map has a merge key.
        merged: Option<Box<Merged>>,
    },
}

enum Key {
    Merge,
    Text(Box<str>, Pos),
}

/// A value that aliases may repeat, and what a repetition costs.
struct Anchored {
    node: Node,
    size: Size,
}

#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    text: usize,
    depth: usize,
}

impl<'a> Builder<'a> {
    fn new(text: &'a str, first_line: u32, limits: &'a Limits) -> Self {
        Self {
            text,
            keys: RepeatedKeys::Refused,
            masked: false,
            first_line,
            limits,
            nodes: 0,
            aliased_text: 0,
            anchors: FastMap::default(),
            open: Vec::new(),
            root: None,
        }
    }

    fn pos(&self, marker: &Marker) -> Pos {
        let line = clamp(marker.line().saturating_sub(1)).saturating_add(self.first_line);
        Pos::new(line, clamp(marker.col()).saturating_add(1))
    }

    fn next(&self, parser: &mut Parser<'a, StrInput<'a>>) -> Result<Option<(Event<'a>, Span)>> {
        parser.next_event().transpose().map_err(|error| self.syntax(&error))
    }

    fn syntax(&self, error: &ScanError) -> ReadError {
        ReadError::new(self.pos(error.marker()), ReadErrorKind::Syntax(error.info().into()))
    }

    /// Checks that nothing follows the document.
    fn expect_end(&self, parser: &mut Parser<'a, StrInput<'a>>) -> Result<()> {
        match self.next(parser)? {
            None | Some((Event::StreamEnd, _)) => Ok(()),
            Some((_, span)) => {
                let message = "did not expect more content after the document".into();
                Err(ReadError::new(self.pos(&span.start), ReadErrorKind::Syntax(message)))
            }
        }
    }

    fn take(&mut self, event: Event<'a>, span: &Span) -> Result<()> {
        let at = self.pos(&span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text = self.scalar_text(text, style, span);
                self.scalar(&text, style, anchor, tag.as_deref(), at)
            }
            Event::SequenceStart(_, anchor, _) => self.start(at, anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                self.start(at, anchor, Content::Map { entries: Vec::new(), key: None, merged: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, span, at),
            Event::UnresolvedAlias(name) => {
                Err(ReadError::new(at, ReadErrorKind::UnknownAnchor { name: name.into() }))
            }
            _ => Ok(()),
        }
    }

    /// A scalar's text, set right where the parser has it differently.
    fn scalar_text(&self, text: Cow<'a, str>, style: ScalarStyle, span: &Span) -> Cow<'a, str> {
        match style {
            // An empty plain scalar is reported with the text of null.
            ScalarStyle::Plain if span.start.index() == span.end.index() => Cow::Borrowed(""),
            _ if self.masked => colon::unmask(&text).into(),
            _ => text,
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        at: Pos,
    ) -> Result<()> {
        let fault = |kind| ReadError::new(at, kind);
        let plain = style == ScalarStyle::Plain && tag.is_none();
        let (text, resolved) = meaning(text, plain, tag).map_err(fault)?;
        if !self.expects_key() {
            let node = Node::new(resolved.into_value(&text).map_err(fault)?, at);
            self.keep(anchor, &node)?;
            return self.attach(node);
        }
        if plain && text == "<<" {
            self.set_key(Key::Merge);
            return Ok(());
        }
        if anchor != 0 {
            let node = Node::new(resolved.into_value(&text).map_err(fault)?, at);
            self.keep(anchor, &node)?;
        }
        self.set_key(Key::Text(resolved.into_key(&text).map_err(fault)?, at));
        Ok(())
    }

    fn start(&mut self, at: Pos, anchor: usize, content: Content) -> Result<()> {
        if self.expects_key() {
            let kind = if matches!(content, Content::List(_)) { "a list" } else { "a map" };
            return Err(ReadError::new(at, ReadErrorKind::Key { kind }));
        }
        if self.open.len() >= self.limits.max_depth {
            return Err(self.too_deep(at));
        }
        self.open.push(Open { at, anchor, content });
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(Open { at, anchor, content }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Map { mut entries, .. } => {
                if self.keys == RepeatedKeys::LastWins {
                    entries = last_of_each(entries);
                }
                Value::Map(Map::from_entries(entries).map_err(duplicate)?)
            }
        };
        let node = Node::new(value, at);
        self.keep(anchor, &node)?;
        self.attach(node)
    }

    fn alias(&mut self, anchor: usize, span: &Span, at: Pos) -> Result<()> {
        let Some(Anchored { node, size }) = self.anchors.get(&anchor) else {
            let name = span.slice(self.text).unwrap_or_default().trim_start_matches('*');
            return Err(ReadError::new(at, ReadErrorKind::RecursiveAnchor { name: name.into() }));
        };
        let size = *size;
        let key = match self.open.last().map(|open| &open.content) {
            Some(Content::Map { key: None, .. }) => Some(key_of(&node.value)),
            Some(Content::Map { key: Some(Key::Merge), .. }) if node.as_map().is_none() => {
                return Err(ReadError::new(at, ReadErrorKind::Merge));
            }
            _ => None,
        };
        if let Some(key) = key {
            let key = key.map_err(|kind| ReadError::new(at, kind))?;
            self.set_key(Key::Text(key, at));
            return Ok(());
        }
        self.aliased_text = self.aliased_text.saturating_add(size.text);
        if self.aliased_text > self.limits.max_bytes {
            return Err(ReadError::new(at, ReadErrorKind::TooMuchAliased { max: self.limits.max_bytes }));
        }
        if self.open.len() + size.depth > self.limits.max_depth {
            return Err(self.too_deep(at));
        }
        // The value itself is counted when it is attached.
        self.spend(size.nodes - 1, at)?;
        let value = self.anchors.get(&anchor).map(|anchored| anchored.node.value.clone());
        self.attach(Node::new(value.unwrap_or_default(), at))
    }

    /// Keeps a copy of an anchored value for later aliases.
    fn keep(&mut self, anchor: usize, node: &Node) -> Result<()> {
        if anchor == 0 {
            return Ok(());
        }
        let size = Size::measure(node);
        self.spend(size.nodes, node.at)?;
        self.anchors.insert(anchor, Anchored { node: node.clone(), size });
        Ok(())
    }

    fn spend(&mut self, nodes: usize, at: Pos) -> Result<()> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > self.limits.max_nodes {
            return Err(ReadError::new(at, ReadErrorKind::TooManyNodes { max: self.limits.max_nodes }));
        }
        Ok(())
    }

    fn too_deep(&self, at: Pos) -> ReadError {
        ReadError::new(at, ReadErrorKind::TooDeep { max: self.limits.max_depth })
    }

    /// Whether the next node is the key of a map.
    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Map { key: None, .. }, .. }))
    }

    fn set_key(&mut self, next: Key) {
        if let Some(Open { content: Content::Map { key, .. }, .. }) = self.open.last_mut() {
            *key = Some(next);
        }
    }

    /// Puts a finished value where it belongs.
    fn attach(&mut self, node: Node) -> Result<()> {
        self.spend(1, node.at)?;
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, key, merged }) => match (key.take(), merged) {
                (Some(Key::Text(key, key_at)), None) => entries.push(Entry { key, key_at, node }),
                (Some(Key::Text(key, key_at)), Some(merged)) => {
                    merged.set(entries, Entry { key, key_at, node }).map_err(duplicate)?;
                }
                (Some(Key::Merge), merged) => merge::merge(entries, merged, node)?,
                (None, _) => {}
            },
        }
        Ok(())
    }
}

/// What a scalar means, and its text, which only a `!!binary` tag changes.
fn meaning<'t>(
    text: &'t str,
    plain: bool,
    tag: Option<&Tag>,
) -> std::result::Result<(Cow<'t, str>, Resolved), ReadErrorKind> {
    let resolved = match tag.and_then(|tag| tag.suffix_in_namespace(YAML_TAGS)) {
        Some(name) if name == "binary" => {
            let decoded = base64::decode(text).ok_or(ReadErrorKind::Base64)?;
            // Parity: bytes that are not text become replacement characters.
            let text = String::from_utf8_lossy(&decoded).into_owned();
            return Ok((text.into(), Resolved::Text));
        }
        Some(name) => resolve::tagged(&name, text)?,
        None if plain => resolve::plain(text),
        None => Resolved::Text,
    };
    Ok((text.into(), resolved))
}

/// The key that an alias to this value stands for.
fn key_of(value: &Value) -> std::result::Result<Box<str>, ReadErrorKind> {
    match value {
        Value::Null => Resolved::Null.into_key(""),
        Value::Bool(truth) => Resolved::Bool(*truth).into_key(""),
        Value::Number(number) => Resolved::Number(*number).into_key(""),
        Value::String(text) => Ok(text.clone()),
        Value::List(_) => Err(ReadErrorKind::Key { kind: "a list" }),
        Value::Map(_) => Err(ReadErrorKind::Key { kind: "a map" }),
    }
}

/// The entries in the places where their keys came first, with the values that came last.
fn last_of_each(entries: Vec<Entry>) -> Vec<Entry> {
    let mut places: FastMap<Box<str>, usize> = FastMap::default();
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        match places.get(&entry.key) {
            Some(at) => kept[*at] = entry,
            None => {
                places.insert(entry.key.clone(), kept.len());
                kept.push(entry);
            }
        }
    }
    kept
}

fn duplicate(twice: DuplicateKey) -> ReadError {
    ReadError::new(twice.at, ReadErrorKind::DuplicateKey { key: twice.key })
}

impl Size {
    fn measure(node: &Node) -> Self {
        let leaf = |text| Self { nodes: 1, text, depth: 0 };
        match &node.value {
            Value::String(text) => leaf(text.len()),
            Value::List(items) => Self::around(items.iter().map(Self::measure)),
            Value::Map(map) => Self::around(map.iter().map(|entry| {
                let size = Self::measure(&entry.node);
                Self { text: size.text + entry.key.len(), ..size }
            })),
            _ => leaf(0),
        }
    }

    fn around(parts: impl Iterator<Item = Self>) -> Self {
        parts.fold(Self { nodes: 1, text: 0, depth: 1 }, |whole, part| Self {
            nodes: whole.nodes + part.nodes,
            text: whole.text + part.text,
            depth: whole.depth.max(part.depth + 1),
        })
    }
}
