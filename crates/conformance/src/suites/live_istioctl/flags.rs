//! Tables of commands and flags against those of a program of ours.
//!
//! Everything in the table has to be there: commands with their aliases, flags with their short forms and defaults. What we
//! have beside it is ours.

use anyhow::Context as _;
use canopus_base::tree::Node;
use clap::{Arg, Command};

use crate::case::Case;
use crate::compare::{ABSENT, Difference};
use crate::record;

/// What a recorded table has and our program has not.
pub(crate) fn compare(case: &Case, root: &Command, program: &str) -> anyhow::Result<Vec<Difference>> {
    let mut root = root.clone();
    // Flags of every command are known to each of them only now.
    root.build();
    let recorded = record::read(&case.corpus, &case.path(&case.file))?;
    let commands = recorded.get("commands").and_then(Node::as_map).context("no commands")?;
    let mut found = Vec::new();
    for entry in commands {
        let path = entry.key.strip_prefix(program).unwrap_or(&entry.key).trim();
        let at = |what: &str| format!("/{}/{what}", path.replace(' ', "/"));
        let Some(command) = find(&root, path) else {
            found.push(Difference::new(at("command"), &entry.key, ABSENT));
            continue;
        };
        let texts = |key: &str| {
            let list = entry.node.get(key).and_then(Node::as_list).into_iter().flatten();
            list.filter_map(Node::as_str).collect::<Vec<_>>()
        };
        for alias in texts("aliases") {
            let is_known = command.get_name() == alias || command.get_all_aliases().any(|own| own == alias);
            if !is_known {
                found.push(Difference::new(at("aliases"), alias, ABSENT));
            }
        }
        for flag in entry.node.get("flags").and_then(Node::as_list).into_iter().flatten() {
            let text = |key: &str| flag.get(key).and_then(Node::as_str).unwrap_or_default();
            found.extend(missing(command, &text).map(|what| {
                Difference::new(at(&format!("flags/{}", text("name"))), format!("{what:?}"), ABSENT)
            }));
        }
    }
    Ok(found)
}

fn find<'a>(root: &'a Command, path: &str) -> Option<&'a Command> {
    path.split_whitespace().try_fold(root, |command, word| command.find_subcommand(word))
}

/// What of a flag our command does not have.
fn missing<'a>(command: &Command, text: &impl Fn(&str) -> &'a str) -> Option<String> {
    let (name, short, default) = (text("name"), text("shorthand"), text("default"));
    if name == "help" {
        return None;
    }
    let has_name = |arg: &&Arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().into_iter().flatten().any(|own| own == name)
    };
    let Some(arg) = command.get_arguments().find(has_name) else { return Some(name.to_owned()) };
    let own_short = arg.get_short().map(String::from).unwrap_or_default();
    if !short.is_empty() && own_short != short {
        return Some(format!("-{short}"));
    }
    let own: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    // A flag without any default leaves it to the command, which knows what else was given.
    (!own.is_empty() && !is_same_default(&own.join(","), default))
        .then(|| format!("default {default}, not {}", own.join(",")))
}

/// Whether defaults mean the same: Go prints lists in brackets, durations in units, and zero values as they are.
fn is_same_default(own: &str, recorded: &str) -> bool {
    let plain = recorded.trim_start_matches(['[', '"']).trim_end_matches([']', '"']);
    let duration = |text: &str| {
        text.parse::<canopus_base::duration::Duration>().ok().filter(|_| text.ends_with(['s', 'm', 'h']))
    };
    own.eq_ignore_ascii_case(plain)
        || [own, plain].iter().all(|text| matches!(*text, "" | "0" | "false" | "0s"))
        || duration(own).is_some_and(|own| duration(plain) == Some(own))
}
