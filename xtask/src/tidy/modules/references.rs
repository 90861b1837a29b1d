//! References of a file to items of its crate's root, read from its tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::slice::Iter;
use std::str::FromStr;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A name at the crate root that a file refers to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) name: String,
    /// Counted from 1.
    pub(super) line: usize,
}

/// The modules of a crate root, and the names it re-exports from them.
pub(super) struct RootItems {
    modules: BTreeSet<String>,
    reexports: BTreeMap<String, String>,
}

impl RootItems {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let tokens: Vec<TokenTree> = TokenStream::from_str(text).ok()?.into_iter().collect();
        let mut items = Self { modules: BTreeSet::new(), reexports: BTreeMap::new() };
        let mut visitor = Visitor { depth: 0, found: Vec::new(), uses: Vec::new(), modules: Vec::new() };
        visitor.visit(&tokens);
        items.modules.extend(visitor.modules);
        for path in visitor.uses {
            let segments: Vec<_> = path
                .segments
                .iter()
                .filter(|segment| !matches!(segment.as_str(), "self" | "crate"))
                .collect();
            if let [module, ..] = segments[..]
                && items.modules.contains(module)
            {
                items.reexports.insert(path.name, module.clone());
            }
        }
        Some(items)
    }

    /// The top module that a name at the crate root belongs to.
    pub(super) fn module_of(&self, name: &str) -> Option<&str> {
        let module = self.modules.get(name).or_else(|| self.reexports.get(name));
        module.map(String::as_str)
    }
}

/// The references of a file that is `depth` modules below the crate root. A file that is not Rust has none.
pub(super) fn in_file(text: &str, depth: usize) -> Vec<Reference> {
    let Ok(stream) = TokenStream::from_str(text) else { return Vec::new() };
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut visitor = Visitor { depth, found: Vec::new(), uses: Vec::new(), modules: Vec::new() };
    visitor.visit(&tokens);
    visitor.found
}

/// The modules that a file declares for tests only.
pub(super) fn test_modules(text: &str) -> Vec<String> {
    let Ok(stream) = TokenStream::from_str(text) else { return Vec::new() };
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut found = Vec::new();
    for (position, token) in tokens.iter().enumerate() {
        if is_test_attribute(token) {
            found.extend(declared_module(&tokens[position + 1..]));
        }
    }
    found
}

/// The name in `mod name;` at the beginning of tokens, after other attributes and a visibility.
fn declared_module(tokens: &[TokenTree]) -> Option<String> {
    let end = tokens.iter().position(|token| is_punct(token, ';') || is_group(token, Delimiter::Brace))?;
    let at = tokens[..end].iter().position(|token| is_ident(token, "mod"))?;
    is_punct(tokens.get(end)?, ';').then(|| tokens.get(at + 1).map(ToString::to_string)).flatten()
}

/// A path of a `use` item, and the name it is imported as.
struct UsePath {
    segments: Vec<String>,
    name: String,
    line: usize,
}

struct Visitor {
    /// How many modules the tokens are below the crate root.
    depth: usize,
    found: Vec<Reference>,
    uses: Vec<UsePath>,
    /// The modules declared at the top level of the tokens.
    modules: Vec<String>,
}

impl Visitor {
    fn visit(&mut self, tokens: &[TokenTree]) {
        let mut position = 0;
        while let Some(token) = tokens.get(position) {
            position += 1;
            let rest = &tokens[position..];
            if is_test_attribute(token) {
                position += item_length(rest);
            } else if is_ident(token, "use") && !rest.first().is_some_and(|next| is_punct(next, '<')) {
                let end = rest.iter().position(|token| is_punct(token, ';')).unwrap_or(rest.len());
                self.visit_use(&rest[..end]);
                position += end;
            } else if is_ident(token, "mod") {
                position += self.visit_module(rest);
            } else if is_ident(token, "crate") || is_ident(token, "super") {
                position += self.visit_path(token, rest);
            } else if let TokenTree::Group(group) = token {
                self.visit(&content(group));
            }
        }
    }

    /// Visits what follows `mod` and returns how many tokens that is.
    fn visit_module(&mut self, rest: &[TokenTree]) -> usize {
        match rest {
            [TokenTree::Ident(name), TokenTree::Group(body), ..] if body.delimiter() == Delimiter::Brace => {
                self.modules.push(name.to_string());
                let mut inner =
                    Self { depth: self.depth + 1, found: Vec::new(), uses: Vec::new(), modules: Vec::new() };
                inner.visit(&content(body));
                self.found.append(&mut inner.found);
                2
            }
            [TokenTree::Ident(name), end, ..] if is_punct(end, ';') => {
                self.modules.push(name.to_string());
                2
            }
            _ => 0,
        }
    }

    /// Visits a path outside of `use` items and returns how many further tokens it has.
    fn visit_path(&mut self, first: &TokenTree, rest: &[TokenTree]) -> usize {
        let mut segments = vec![first.to_string()];
        let mut length = 0;
        while let [colon, second, TokenTree::Ident(name), ..] = &rest[length..]
            && is_punct(colon, ':')
            && is_punct(second, ':')
        {
            segments.push(name.to_string());
            length += 3;
        }
        self.add(&segments, first.span().start().line);
        length
    }

    fn visit_use(&mut self, tree: &[TokenTree]) {
        let mut paths = Vec::new();
        expand(&mut tree.iter().peekable(), &[], &mut paths);
        for path in paths {
            self.add(&path.segments, path.line);
            self.uses.push(path);
        }
    }

    /// Adds a reference if a path leads to the crate root.
    fn add(&mut self, segments: &[String], line: usize) {
        let climbed = segments.iter().take_while(|segment| *segment == "super").count();
        let name = match segments {
            [first, name, ..] if first == "crate" => Some(name),
            _ if climbed > 0 && climbed == self.depth => segments.get(climbed),
            _ => None,
        };
        self.found.extend(name.map(|name| Reference { name: name.clone(), line }));
    }
}

/// Expands a `use` tree into its paths.
fn expand(tokens: &mut Peekable<Iter<'_, TokenTree>>, prefix: &[String], paths: &mut Vec<UsePath>) {
    let mut segments = prefix.to_vec();
    let mut line = 0;
    let mut alias = None;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if *word == "as" => {
                alias = tokens.next().map(ToString::to_string);
            }
            TokenTree::Ident(word) => {
                line = word.span().start().line;
                segments.push(word.to_string());
            }
            TokenTree::Group(group) => {
                expand(&mut content(group).iter().peekable(), &segments, paths);
                segments = Vec::new();
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => {
                finish(&mut segments, &mut alias, line, paths);
                segments = prefix.to_vec();
            }
            _ => {}
        }
    }
    if segments.len() > prefix.len() {
        finish(&mut segments, &mut alias, line, paths);
    }
}

fn finish(segments: &mut Vec<String>, alias: &mut Option<String>, line: usize, paths: &mut Vec<UsePath>) {
    let Some(last) = segments.last() else { return };
    let name = alias.take().unwrap_or_else(|| last.clone());
    paths.push(UsePath { segments: std::mem::take(segments), name, line });
}

/// The number of tokens of the item that an attribute is on.
fn item_length(tokens: &[TokenTree]) -> usize {
    let mut is_use = false;
    for (position, token) in tokens.iter().enumerate() {
        is_use |= is_ident(token, "use");
        let ends = is_punct(token, ';') || (!is_use && is_group(token, Delimiter::Brace));
        if ends {
            return position + 1;
        }
    }
    tokens.len()
}

/// Whether a token is the bracket of `#[cfg(test)]`, or of a `cfg` that needs `test` among other conditions.
fn is_test_attribute(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let text = group.to_string().replace(' ', "");
    group.delimiter() == Delimiter::Bracket
        && (text == "[cfg(test)]" || (text.starts_with("[cfg(all(") && text.contains("test")))
}

fn content(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

fn is_ident(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if *ident == text)
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}
