//! This crate beside Go's own `text/template` and sprig, on tables and on generated templates.
//!
//! The Go program in `tests/oracle` is a part of the project (`cargo xtask parts gotemplate`), built the first time.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test may panic, print and read the environment"
)]

mod generate;
mod oracle;
mod table;

use oracle::{Oracle, Request};
use proptest::test_runner::{Config, TestRunner};

/// Asks both and gives a description if they disagree.
fn compare(oracle: &mut Oracle, request: &Request) -> Option<String> {
    let (go, ours) = (oracle.ask(request), request.render());
    if go == ours {
        return None;
    }
    Some(format!("{}\n  data: {}\n  go:   {go:?}\n  ours: {ours:?}", request.template, request.data))
}

#[test]
fn tables_agree_with_go() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut compared = 0;
    let mut differences = Vec::new();
    for request in table::requests() {
        compared += 1;
        differences.extend(compare(&mut oracle, &request));
    }
    println!("{compared} templates compared");
    assert!(differences.is_empty(), "{} of {compared} differ\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn generated_templates_agree_with_go() {
    let Some(mut oracle) = Oracle::start() else { return };
    let cases =
        std::env::var("CANOPUS_TEMPLATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let oracle = std::cell::RefCell::new(&mut oracle);
    let result = TestRunner::new(config).run(&generate::request(), |request| {
        match compare(&mut oracle.borrow_mut(), &request) {
            None => Ok(()),
            Some(difference) => Err(proptest::test_runner::TestCaseError::fail(difference)),
        }
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
