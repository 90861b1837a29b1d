//! Help of groups of commands, in the layout of the library that istioctl is written with.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::{Arg, Command};

use super::groups::{Flag, GLOBALS, GROUPS, Group, HELP_ONLY};

/// The shortest column of command names.
const MIN_NAME_WIDTH: usize = 11;

/// Groups that Istio's tool can run without a further command, beside those it is described for.
const RUNNABLE: [&str; 4] = ["admin", "experimental describe", "experimental injector", "bug-report"];

/// What a command line that stops at a group gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Help(String),
    /// The group does not have a command of this name.
    Unknown(String),
}

/// The answer to a command line that ends at a group or asks for its help; `None` for all others, which are parsed.
pub(crate) fn group(root: &Command, arguments: &[OsString]) -> Option<Answer> {
    let mut walk = Walk { chain: vec![root], path: Vec::new(), asks_help: false, extra: None };
    walk.follow(arguments.get(1..)?)?;
    let command = *walk.chain.last()?;
    let is_group = command.has_subcommands() && command.get_name() != "bug-report";
    if !is_group {
        return None;
    }
    let path = walk.path.join(" ");
    let known = GROUPS.iter().find(|group| group.path == path);
    match (walk.extra, known.and_then(|group| group.unknown)) {
        _ if walk.asks_help => {}
        // The program itself knows its commands, and says so of others.
        (Some(_), _) if path.is_empty() => return None,
        (Some(name), Some(words)) => return Some(Answer::Unknown(format!("{words} {name:?}"))),
        _ => {}
    }
    Some(Answer::Help(help(command, &path, known)))
}

/// The commands that a command line leads to.
struct Walk<'a> {
    chain: Vec<&'a Command>,
    path: Vec<String>,
    asks_help: bool,
    /// The first word that is no command.
    extra: Option<String>,
}

impl Walk<'_> {
    /// Follows the words; `None` if one cannot be understood.
    fn follow(&mut self, words: &[OsString]) -> Option<()> {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let word = word.to_str()?;
            if matches!(word, "--help" | "-h") {
                self.asks_help = true;
            } else if let Some(flag) = word.strip_prefix("--") {
                let (name, value) = flag.split_once('=').map_or((flag, None), |(n, v)| (n, Some(v)));
                let found = self.find(|arg| arg.get_long() == Some(name))?;
                if value.is_none() && takes_value(found) {
                    words.next()?;
                }
            } else if let Some(flag) = word.strip_prefix('-').filter(|flag| !flag.is_empty()) {
                let short = flag.chars().next()?;
                let found = self.find(|arg| arg.get_short() == Some(short))?;
                if flag.chars().count() == 1 && takes_value(found) {
                    words.next()?;
                }
            } else if self.extra.is_some() {
                continue;
            } else if let Some(next) = self.chain.last()?.find_subcommand(word) {
                self.path.push(next.get_name().to_owned());
                self.chain.push(next);
            } else {
                self.extra = Some(word.to_owned());
            }
        }
        Some(())
    }

    /// A flag of the commands so far.
    fn find(&self, is_meant: impl Fn(&Arg) -> bool) -> Option<&Arg> {
        self.chain.iter().rev().flat_map(|command| command.get_arguments()).find(|arg| is_meant(arg))
    }
}

/// Whether the word after a flag is its value.
fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn help(command: &Command, path: &str, known: Option<&Group>) -> String {
    let about = known.map_or_else(
        || command.get_about().map(ToString::to_string).unwrap_or_default(),
        |group| group.about.to_owned(),
    );
    let full = if path.is_empty() { "istioctl".to_owned() } else { format!("istioctl {path}") };
    let mut text = format!("{}\n\nUsage:\n", about.trim_end());
    if known.map_or(RUNNABLE.contains(&path), |group| group.unknown.is_some()) {
        let _ = writeln!(text, "  {full} [flags]");
    }
    let _ = writeln!(text, "  {full} [command]");
    let mut names: Vec<&str> = command.get_all_aliases().collect();
    if !names.is_empty() {
        names.insert(0, command.get_name());
        let _ = writeln!(text, "\nAliases:\n  {}", names.join(", "));
    }
    if let Some(example) = known.map(|group| group.example).filter(|example| !example.is_empty()) {
        let _ = writeln!(text, "\nExamples:\n{example}");
    }
    let commands: Vec<(String, String)> = match known {
        Some(group) => group.commands.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        None => {
            let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
            let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
            visible.map(|command| (command.get_name().to_owned(), about(command))).collect()
        }
    };
    let width = commands.iter().map(|(name, _)| name.len()).max().unwrap_or_default().max(MIN_NAME_WIDTH);
    text.push_str("\nAvailable Commands:\n");
    for (name, about) in &commands {
        let _ = writeln!(text, "  {name:<width$} {about}");
    }
    let name = if path.is_empty() { "istioctl" } else { command.get_name() };
    let _ = write!(text, "\nFlags:\n{}", flags(known.map_or(&HELP_ONLY, |group| group.flags), name));
    let globals = known.map_or(&GLOBALS[..], |group| group.globals);
    if !globals.is_empty() {
        let _ = write!(text, "\nGlobal Flags:\n{}", flags(globals, name));
    }
    if path.is_empty() {
        let width = full.len() + 1 + width;
        let _ = writeln!(
            text,
            "\nAdditional help topics:\n  {:<width$} Displays istioctl global options",
            "istioctl options"
        );
    }
    let _ = writeln!(text, "\nUse \"{full} [command] --help\" for more information about a command.");
    text
}

/// Flags in two columns.
fn flags(flags: &[Flag], command: &str) -> String {
    let heads: Vec<String> = flags
        .iter()
        .map(|flag| {
            let short = flag.short.map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
            let kind = if flag.kind.is_empty() { String::new() } else { format!(" {}", flag.kind) };
            format!("  {short}--{}{kind}", flag.name)
        })
        .collect();
    let width = heads.iter().map(String::len).max().unwrap_or_default();
    let mut text = String::new();
    for (head, flag) in heads.iter().zip(flags) {
        let usage = if flag.name == "help" { format!("help for {command}") } else { flag.usage.to_owned() };
        let default =
            if flag.default.is_empty() { String::new() } else { format!(" (default {})", flag.default) };
        let _ = writeln!(text, "{head:<width$}   {usage}{default}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(line: &str) -> Option<Answer> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        group(&crate::command::tree(), &words)
    }

    #[test]
    fn groups_without_a_command_print_their_help() {
        let Some(Answer::Help(text)) = answer("istioctl -n shop tag") else { panic!("no help") };
        assert!(text.contains("\nUsage:\n  istioctl tag [flags]\n  istioctl tag [command]\n"), "{text}");
        assert!(
            text.ends_with("Use \"istioctl tag [command] --help\" for more information about a command.\n")
        );
        let Some(Answer::Help(text)) = answer("istioctl x banana") else { panic!("no help") };
        assert!(text.contains("\nAliases:\n  experimental, x, exp\n"), "{text}");
        let Some(Answer::Help(text)) = answer("istioctl x workload entry") else { panic!("no help") };
        assert!(text.contains("\nAvailable Commands:\n  configure   "), "{text}");
    }

    #[test]
    fn groups_that_take_no_words_refuse_them() {
        assert_eq!(
            answer("istioctl dashboard nope"),
            Some(Answer::Unknown("unknown dashboard \"nope\"".to_owned()))
        );
        assert_eq!(
            answer("istioctl waypoint --name=a x"),
            Some(Answer::Unknown("unknown subcommand \"x\"".to_owned()))
        );
    }

    #[test]
    fn command_lines_that_lead_to_a_command_are_left_to_the_parser() {
        for line in [
            "istioctl tag set x",
            "istioctl nope",
            "istioctl analyze",
            "istioctl --banana",
            "istioctl bug-report",
        ] {
            assert_eq!(answer(line), None, "{line}");
        }
    }

    /// What istioctl lists and this program does not have; `help` is a word rather than a command.
    fn is_missing(path: &str, name: &str) -> bool {
        matches!((path, name), ("", "help" | "admin" | "authz") | ("experimental", "metrics"))
    }

    #[test]
    fn every_described_command_exists() {
        let tree = crate::command::tree();
        for described in &GROUPS {
            let mut command = &tree;
            for word in described.path.split_whitespace() {
                command = command.find_subcommand(word).unwrap_or_else(|| panic!("{word}"));
            }
            for (name, _) in described.commands {
                let is_here = command.find_subcommand(name).is_some();
                assert_ne!(is_here, is_missing(described.path, name), "{} {name}", described.path);
            }
        }
    }
}
