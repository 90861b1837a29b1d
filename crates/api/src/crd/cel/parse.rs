//! From a text to the syntax tree of the `cel` crate.

use std::sync::LazyLock;
use std::thread;

use cel::{Env, IdedExpr};

/// The longest text that is read.
const MAX_BYTES: usize = 16 << 10;
/// The most brackets within each other, and the most operators one after another. Real rules have less than twenty of
/// either; what is left after parsing is bounded again, more tightly.
const MAX_NESTING: usize = 256;
const MAX_CHAIN: usize = 2048;
/// Enough at those limits: the parser is generous with the stack, the more so where it is not optimised.
const STACK_BYTES: usize = 64 << 20;

/// The standard library with its macros and optional values.
static ENVIRONMENT: LazyLock<Env> = LazyLock::new(Env::stdlib);

/// Reads an expression and makes something of it where there is stack enough; the error says what is wrong.
pub(super) fn parse<T: Send>(
    source: &str,
    make: impl FnOnce(&IdedExpr) -> Result<T, String> + Send,
) -> Result<T, String> {
    bounded(source)?;
    let work = || {
        let parser = ENVIRONMENT.parser().enable_ident_escape_syntax(true);
        parser.parse(source).map_err(|errors| errors.to_string()).and_then(|expression| make(&expression))
    };
    let done = thread::scope(|scope| {
        let thread = thread::Builder::new().name("cel".into()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, work).map(thread::ScopedJoinHandle::join)
    });
    match done {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err("the parser gave up on it".to_owned()),
        Err(error) => Err(format!("no thread to parse it in: {error}")),
    }
}

/// Whether a text is an expression, whatever it is about; the error says what is wrong.
pub fn check(source: &str) -> Result<(), String> {
    parse(source, |_| Ok(()))
}

/// Refuses what could exhaust the parser. Texts within the expression are counted too, so it never counts too little.
fn bounded(source: &str) -> Result<(), String> {
    if source.len() > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    let mut nesting = 0_usize;
    let mut chain = 0_usize;
    for c in source.chars() {
        match c {
            '(' | '[' | '{' => nesting += 1,
            ')' | ']' | '}' => nesting = nesting.saturating_sub(1),
            '_' | '&' | '|' | ',' => {}
            _ if c.is_alphanumeric() || c.is_whitespace() => {}
            _ => chain += 1,
        }
        if nesting > MAX_NESTING || chain > MAX_CHAIN {
            return Err("it nests too deeply".to_owned());
        }
    }
    Ok(())
}
