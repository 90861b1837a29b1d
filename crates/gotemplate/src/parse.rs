//! From tokens to trees. The grammar, the checks and the words of the errors are those of Go's `text/template/parse`.

mod number;
mod unquote;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::ast::{Branch, Command, Expr, List, Node, Pipe, Source, Term, Tree};
use crate::error::ParseError;
use crate::gofmt::quote;
use crate::lex::{Lexer, Token, TokenKind};
use crate::value::Str;

/// How deep blocks and parentheses may nest. Go allows more than our stack does.
const MAX_NESTING: usize = 150;

/// Parses a text and gives every template that it defines, its own included.
pub(crate) fn parse(
    name: &str,
    text: &str,
    has_function: &dyn Fn(&str) -> bool,
) -> Result<BTreeMap<String, Arc<Tree>>, ParseError> {
    let source = Arc::new(Source { name: name.to_owned(), text: text.to_owned() });
    let loop_keywords = !has_function("break") && !has_function("continue");
    let mut parser = Parser {
        lexer: Lexer::new(text, loop_keywords),
        ahead: VecDeque::new(),
        newest_line: 1,
        source: Arc::clone(&source),
        has_function,
        trees: BTreeMap::new(),
        scope: Scope::default(),
        nesting: 0,
    };
    let root = parser.top_level()?;
    parser.add(name.to_owned(), root)?;
    Ok(parser.trees)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// Tokens read and put back, the next one first.
    ahead: VecDeque<Token>,
    /// The line of the token read last, which is where errors are reported.
    newest_line: usize,
    source: Arc<Source>,
    has_function: &'a dyn Fn(&str) -> bool,
    trees: BTreeMap<String, Arc<Tree>>,
    scope: Scope,
    nesting: usize,
}

/// What is known inside one template definition.
struct Scope {
    variables: Vec<Arc<str>>,
    range_depth: usize,
    /// The line of the action being read, or 0.
    action_line: usize,
}

impl Default for Scope {
    fn default() -> Self {
        Self { variables: vec!["$".into()], range_depth: 0, action_line: 0 }
    }
}

/// What ends a list of nodes.
enum End {
    End,
    Else,
}

/// A node, or the end of the list it would stand in.
enum Item {
    Node(Node),
    End(End),
}

type Parsed<T> = Result<T, ParseError>;

impl Parser<'_> {
    fn next(&mut self) -> Token {
        if let Some(token) = self.ahead.pop_front() {
            return token;
        }
        let token = self.lexer.next_token();
        self.newest_line = token.line;
        token
    }

    fn back(&mut self, token: Token) {
        self.ahead.push_front(token);
    }

    fn peek(&mut self) -> Token {
        let token = self.next();
        self.back(token.clone());
        token
    }

    fn next_non_space(&mut self) -> Token {
        loop {
            let token = self.next();
            if token.kind != TokenKind::Space {
                return token;
            }
        }
    }

    /// Skips blanks and looks at what follows.
    fn peek_non_space(&mut self) -> Token {
        let token = self.next_non_space();
        self.back(token.clone());
        token
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError { name: self.source.name.clone(), line: self.newest_line, message: message.into() }
    }

    fn unexpected(&self, token: &Token, context: &str) -> ParseError {
        if token.kind != TokenKind::Error {
            return self.error(format!("unexpected {} in {context}", token.describe()));
        }
        let action_line = self.scope.action_line;
        let mut hint = String::new();
        if action_line != 0 && action_line != token.line {
            // "unclosed action in action" would read badly.
            let lead = if token.text.ends_with(" action") { "" } else { " in action" };
            hint = format!("{lead} started at {}:{action_line}", self.source.name);
        }
        self.error(format!("{}{hint}", token.text))
    }

    fn expect(&mut self, kind: TokenKind, context: &str) -> Parsed<Token> {
        let token = self.next_non_space();
        if token.kind == kind { Ok(token) } else { Err(self.unexpected(&token, context)) }
    }

    fn enter(&mut self) -> Parsed<()> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING { Err(self.error("max expression depth exceeded")) } else { Ok(()) }
    }

    /// Keeps a definition. A blank one does not replace another; two that say something are an error.
    fn add(&mut self, name: String, root: List) -> Parsed<()> {
        if self.trees.get(&name).is_some_and(|present| !present.root.is_blank()) {
            if root.is_blank() {
                return Ok(());
            }
            let name = quote::quoted(name.as_bytes());
            return Err(self.error(format!("template: multiple definition of template {name}")));
        }
        let tree = Tree { name: name.as_str().into(), source: Arc::clone(&self.source), root };
        self.trees.insert(name, Arc::new(tree));
        Ok(())
    }

    fn top_level(&mut self) -> Parsed<List> {
        let mut root = List::default();
        loop {
            let token = self.next();
            if token.kind == TokenKind::Eof {
                return Ok(root);
            }
            if token.kind == TokenKind::LeftDelim && self.peek_non_space().kind == TokenKind::Define {
                self.next();
                self.definition()?;
                continue;
            }
            self.back(token);
            match self.text_or_action()? {
                Item::Node(node) => root.nodes.push(node),
                Item::End(End::End) => return Err(self.error("unexpected {{end}}")),
                Item::End(End::Else) => return Err(self.error("unexpected {{else}}")),
            }
        }
    }

    fn definition(&mut self) -> Parsed<()> {
        const CONTEXT: &str = "define clause";
        let outer = std::mem::take(&mut self.scope);
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        self.expect(TokenKind::RightDelim, CONTEXT)?;
        let root = self.body(CONTEXT)?;
        self.add(name.to_text().into_owned(), root)?;
        self.scope = outer;
        Ok(())
    }

    /// The nodes up to `{{end}}`.
    fn body(&mut self, context: &str) -> Parsed<List> {
        match self.item_list()? {
            (list, End::End) => Ok(list),
            (_, End::Else) => Err(self.error(format!("unexpected {{{{else}}}} in {context}"))),
        }
    }

    fn item_list(&mut self) -> Parsed<(List, End)> {
        self.enter()?;
        let mut list = List::default();
        while self.peek_non_space().kind != TokenKind::Eof {
            match self.text_or_action()? {
                Item::Node(node) => list.nodes.push(node),
                Item::End(end) => {
                    self.nesting -= 1;
                    return Ok((list, end));
                }
            }
        }
        Err(self.error("unexpected EOF"))
    }

    fn text_or_action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        match token.kind {
            TokenKind::Text => Ok(Item::Node(Node::Text(token.text))),
            TokenKind::LeftDelim => {
                self.scope.action_line = token.line;
                let item = self.action();
                if item.is_ok() {
                    self.scope.action_line = 0;
                }
                item
            }
            _ => Err(self.unexpected(&token, "input")),
        }
    }

    fn action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        let node = match token.kind {
            TokenKind::Block => self.block()?,
            TokenKind::Break => self.loop_exit(Node::Break, "{{break}}")?,
            TokenKind::Continue => self.loop_exit(Node::Continue, "{{continue}}")?,
            TokenKind::Else => return self.else_clause(),
            TokenKind::End => {
                self.expect(TokenKind::RightDelim, "end")?;
                return Ok(Item::End(End::End));
            }
            TokenKind::If => Node::If(self.control("if")?),
            TokenKind::With => Node::With(self.control("with")?),
            TokenKind::Range => Node::Range(self.control("range")?),
            TokenKind::Template => self.template()?,
            _ => {
                let pos = token.pos;
                self.back(token);
                Node::Action { pos, pipe: self.pipeline("command", TokenKind::RightDelim)? }
            }
        };
        Ok(Item::Node(node))
    }

    fn loop_exit(&mut self, node: Node, text: &str) -> Parsed<Node> {
        let token = self.next_non_space();
        if token.kind != TokenKind::RightDelim {
            return Err(self.unexpected(&token, text));
        }
        if self.scope.range_depth == 0 {
            return Err(self.error(format!("{text} outside {{{{range}}}}")));
        }
        Ok(node)
    }

    /// `{{else}}`, or the start of `{{else if …}}`, whose keyword is left to be read.
    fn else_clause(&mut self) -> Parsed<Item> {
        if !matches!(self.peek_non_space().kind, TokenKind::If | TokenKind::With) {
            self.expect(TokenKind::RightDelim, "else")?;
        }
        Ok(Item::End(End::Else))
    }

    fn control(&mut self, context: &str) -> Parsed<Branch> {
        let known = self.scope.variables.len();
        let pipe = self.pipeline(context, TokenKind::RightDelim)?;
        let in_range = usize::from(context == "range");
        self.scope.range_depth += in_range;
        let (list, end) = self.item_list()?;
        self.scope.range_depth -= in_range;
        let otherwise = match end {
            End::End => None,
            End::Else => Some(self.otherwise(context)?),
        };
        self.scope.variables.truncate(known);
        Ok(Branch { pos: pipe.pos, pipe, list, otherwise })
    }

    /// What follows `else`. `else if` is an `if` of its own that shares the `end`.
    fn otherwise(&mut self, context: &str) -> Parsed<List> {
        let next = self.peek().kind;
        let chained = match (context, next) {
            ("if", TokenKind::If) => Node::If,
            ("with", TokenKind::With) => Node::With,
            _ => {
                let (list, end) = self.item_list()?;
                return match end {
                    End::End => Ok(list),
                    End::Else => Err(self.error("expected end; found {{else}}")),
                };
            }
        };
        self.next();
        self.enter()?;
        let node = chained(self.control(context)?);
        self.nesting -= 1;
        Ok(List { nodes: vec![node] })
    }

    fn block(&mut self) -> Parsed<Node> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, TokenKind::RightDelim)?;
        let outer = std::mem::take(&mut self.scope);
        let root = self.body(CONTEXT)?;
        self.add(name.to_text().into_owned(), root)?;
        self.scope = outer;
        Ok(Node::Template { pos: token.pos, name, pipe: Some(pipe) })
    }

    fn template(&mut self) -> Parsed<Node> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let next = self.next_non_space();
        let pipe = if next.kind == TokenKind::RightDelim {
            None
        } else {
            self.back(next);
            Some(self.pipeline(CONTEXT, TokenKind::RightDelim)?)
        };
        Ok(Node::Template { pos: token.pos, name, pipe })
    }

    fn template_name(&mut self, token: &Token, context: &str) -> Parsed<Str> {
        match token.kind {
            TokenKind::String | TokenKind::RawString => {
                unquote::unquote(&token.text).map_err(|error| self.error(error))
            }
            _ => Err(self.unexpected(token, context)),
        }
    }

    fn pipeline(&mut self, context: &str, end: TokenKind) -> Parsed<Pipe> {
        let pos = self.peek_non_space().pos;
        let (variables, assigns) = self.declarations(context)?;
        let mut commands = Vec::new();
        loop {
            let token = self.next_non_space();
            if token.kind == end {
                break;
            }
            if !starts_operand(token.kind) {
                return Err(self.unexpected(&token, context));
            }
            self.back(token);
            commands.push(self.command()?);
        }
        self.check_pipeline(&commands, context)?;
        Ok(Pipe { pos, assigns, variables, commands })
    }

    /// Reads `$x :=`, `$x =` or, in a range, `$i, $x :=`.
    fn declarations(&mut self, context: &str) -> Parsed<(Vec<Arc<str>>, bool)> {
        let mut variables: Vec<Arc<str>> = Vec::new();
        loop {
            if self.peek_non_space().kind != TokenKind::Variable {
                return Ok((variables, false));
            }
            let variable = self.next();
            let after = self.next();
            let next = if after.kind == TokenKind::Space { self.next_non_space() } else { after.clone() };
            match next.kind {
                TokenKind::Assign | TokenKind::Declare => {
                    self.declare(&variable, &mut variables);
                    return Ok((variables, next.kind == TokenKind::Assign));
                }
                TokenKind::Char if next.text == "," => {
                    self.declare(&variable, &mut variables);
                    if context != "range" || variables.len() >= 2 {
                        return Err(self.error(format!("too many declarations in {context}")));
                    }
                    let follows = self.peek_non_space().kind;
                    if !matches!(follows, TokenKind::Variable | TokenKind::RightDelim | TokenKind::RightParen)
                    {
                        return Err(self.error("range can only initialize variables"));
                    }
                }
                _ => {
                    // A variable that is an argument: put back all that was looked at.
                    let spaced = after.kind == TokenKind::Space;
                    self.back(next);
                    if spaced {
                        self.back(after);
                    }
                    self.back(variable);
                    return Ok((variables, false));
                }
            }
        }
    }

    fn declare(&mut self, variable: &Token, variables: &mut Vec<Arc<str>>) {
        let name: Arc<str> = variable.text.as_str().into();
        self.scope.variables.push(Arc::clone(&name));
        variables.push(name);
    }

    fn check_pipeline(&self, commands: &[Command], context: &str) -> Parsed<()> {
        if commands.is_empty() {
            return Err(self.error(format!("missing value for {context}")));
        }
        for (stage, command) in commands.iter().enumerate().skip(1) {
            if let Some(Term::Bool(_) | Term::Dot | Term::Nil | Term::Number(_) | Term::String { .. }) =
                command.args.first().map(|expr| &expr.term)
            {
                let message = format!("non executable command in pipeline stage {}", stage + 1);
                return Err(self.error(message));
            }
        }
        Ok(())
    }

    fn command(&mut self) -> Parsed<Command> {
        let pos = self.peek_non_space().pos;
        let mut args = Vec::new();
        loop {
            self.peek_non_space();
            args.extend(self.operand()?);
            let token = self.next();
            match token.kind {
                TokenKind::Space => {}
                TokenKind::RightDelim | TokenKind::RightParen => {
                    self.back(token);
                    break;
                }
                TokenKind::Pipe => break,
                _ => return Err(self.unexpected(&token, "operand")),
            }
        }
        if args.is_empty() { Err(self.error("empty command")) } else { Ok(Command { pos, args }) }
    }

    /// A term and the fields after it; nothing if no term follows.
    fn operand(&mut self) -> Parsed<Option<Expr>> {
        let Some(expr) = self.term()? else { return Ok(None) };
        let first = self.peek();
        if first.kind != TokenKind::Field {
            return Ok(Some(expr));
        }
        let mut fields = Vec::new();
        while self.peek().kind == TokenKind::Field {
            fields.push(self.next().text[1..].to_owned());
        }
        let term = match expr.term {
            Term::Field(mut names) => {
                names.extend(fields);
                Term::Field(names)
            }
            Term::Variable(name, mut names) => {
                names.extend(fields);
                Term::Variable(name, names)
            }
            Term::Bool(_) | Term::String { .. } | Term::Number(_) | Term::Nil | Term::Dot => {
                let term = quote::quoted(expr.to_string().as_bytes());
                return Err(self.error(format!("unexpected . after term {term}")));
            }
            _ => Term::Chain(Box::new(expr), fields),
        };
        Ok(Some(Expr { pos: first.pos, term }))
    }

    fn term(&mut self) -> Parsed<Option<Expr>> {
        let token = self.next_non_space();
        let pos = token.pos;
        let term = match token.kind {
            TokenKind::Identifier if !(self.has_function)(&token.text) => {
                let name = quote::quoted(token.text.as_bytes());
                return Err(self.error(format!("function {name} not defined")));
            }
            TokenKind::Identifier => Term::Function(token.text),
            TokenKind::Dot => Term::Dot,
            TokenKind::Nil => Term::Nil,
            TokenKind::Variable => self.variable(&token)?,
            TokenKind::Field => Term::Field(vec![token.text[1..].to_owned()]),
            TokenKind::Bool => Term::Bool(token.text == "true"),
            TokenKind::CharConstant | TokenKind::Complex | TokenKind::Number => {
                Term::Number(number::number(&token).map_err(|error| self.error(error))?)
            }
            TokenKind::LeftParen => {
                self.enter()?;
                let pipe = self.pipeline("parenthesized pipeline", TokenKind::RightParen)?;
                self.nesting -= 1;
                return Ok(Some(Expr { pos: pipe.pos, term: Term::Pipe(pipe) }));
            }
            TokenKind::String | TokenKind::RawString => {
                let text = unquote::unquote(&token.text).map_err(|error| self.error(error))?;
                Term::String { quoted: token.text, text }
            }
            _ => {
                self.back(token);
                return Ok(None);
            }
        };
        Ok(Some(Expr { pos, term }))
    }

    fn variable(&self, token: &Token) -> Parsed<Term> {
        let known = self.scope.variables.iter().find(|name| ***name == *token.text);
        match known {
            Some(name) => Ok(Term::Variable(Arc::clone(name), Vec::new())),
            None => {
                let name = quote::quoted(token.text.as_bytes());
                Err(self.error(format!("undefined variable {name}")))
            }
        }
    }
}

fn starts_operand(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Bool
            | TokenKind::CharConstant
            | TokenKind::Complex
            | TokenKind::Dot
            | TokenKind::Field
            | TokenKind::Identifier
            | TokenKind::Number
            | TokenKind::Nil
            | TokenKind::RawString
            | TokenKind::String
            | TokenKind::Variable
            | TokenKind::LeftParen
    )
}
