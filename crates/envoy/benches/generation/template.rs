//! As much of Go's templates as the inputs use: ranges over numbers, variables, `div` and `mod`.

use std::collections::BTreeMap;

/// Numbers by the name a template has them under.
type Scope<'a> = BTreeMap<&'a str, usize>;

/// A template with its ranges and variables replaced.
pub(crate) fn render(template: &str, services: usize, instances: usize) -> String {
    let scope = Scope::from([(".Services", services), ("$.Services", services), (".Instances", instances)]);
    let mut rendered = String::new();
    part(template, &scope, &mut rendered);
    rendered
}

/// Renders up to the end of the range that this is the body of, and gives what follows it.
fn part<'a>(mut rest: &'a str, scope: &Scope<'a>, rendered: &mut String) -> &'a str {
    while let Some((before, after)) = rest.split_once("{{") {
        let (action, following) = after.split_once("}}").unwrap();
        match action.strip_prefix('-') {
            Some(_) => rendered.push_str(before.trim_end()),
            None => rendered.push_str(before),
        }
        rest = following;
        let words: Vec<&str> = action.trim_start_matches('-').split_whitespace().collect();
        match words[..] {
            ["end"] => return rest,
            ["range", variable, ":=", "until", limit] => {
                rest = range(rest, scope, variable, scope[limit], rendered);
            }
            ["div", left, right] => {
                rendered.push_str(&(number(scope, left) / number(scope, right)).to_string());
            }
            ["mod", left, right] => {
                rendered.push_str(&(number(scope, left) % number(scope, right)).to_string());
            }
            [variable] => rendered.push_str(&number(scope, variable).to_string()),
            _ => panic!("no input has {{{{{action}}}}}"),
        }
    }
    rendered.push_str(rest);
    ""
}

fn range<'a>(
    body: &'a str,
    scope: &Scope<'a>,
    variable: &'a str,
    limit: usize,
    rendered: &mut String,
) -> &'a str {
    let mut inner = scope.clone();
    for at in 0..limit {
        inner.insert(variable, at);
        part(body, &inner, rendered);
    }
    inner.insert(variable, 0);
    part(body, &inner, &mut String::new())
}

fn number(scope: &Scope<'_>, word: &str) -> usize {
    word.parse().unwrap_or_else(|_| scope[word])
}
