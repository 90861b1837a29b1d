//! Arguments as manifests of other versions give them.

use std::ffi::{OsStr, OsString};

use clap::Command;

/// The arguments that mean something, and the flags that do not.
///
/// Parity: a flag nobody knows is passed over together with its value, so that manifests of other versions keep working.
/// This holds for `proxy` alone, which is what manifests start.
pub(super) fn known(root: &Command, arguments: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let command =
        arguments.get(1).filter(|name| *name == "proxy").and_then(|name| root.find_subcommand(name));
    let Some(command) = command else { return (arguments, Vec::new()) };
    let (mut kept, mut unknown) = (Vec::new(), Vec::new());
    let mut rest = arguments.into_iter().peekable();
    while let Some(argument) = rest.next() {
        match flag(&argument).filter(|(name, _)| !is_known(command, name)) {
            None => kept.push(argument),
            Some((name, has_value)) => {
                unknown.push(name);
                if !has_value {
                    rest.next_if(|value| !is_flag(value) && !is_role(value));
                }
            }
        }
    }
    (kept, unknown)
}

/// The name of a long flag, and whether its value is part of the argument.
fn flag(argument: &OsStr) -> Option<(String, bool)> {
    let text = argument.to_string_lossy();
    let name = text.strip_prefix("--").filter(|name| !name.is_empty())?;
    Some(match name.split_once('=') {
        Some((name, _)) => (name.to_owned(), true),
        None => (name.to_owned(), false),
    })
}

fn is_flag(argument: &OsStr) -> bool {
    argument.to_string_lossy().starts_with('-')
}

fn is_role(argument: &OsStr) -> bool {
    ["sidecar", "router", "waypoint"].iter().any(|role| argument == *role)
}

fn is_known(command: &Command, name: &str) -> bool {
    name == "help" || command.get_arguments().any(|known| known.get_long() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn flags_of_other_versions_are_passed_over_with_their_values() {
        let given = "agent proxy --old value --gone sidecar --domain d --older=1 --concurrency 2";
        let given = given.split(' ').map(OsString::from).collect();
        let (kept, unknown) = known(&super::super::Cli::command(), given);
        let kept: Vec<_> = kept.iter().map(|argument| argument.to_string_lossy()).collect();
        assert_eq!(kept.join(" "), "agent proxy sidecar --domain d --concurrency 2");
        assert_eq!(unknown, ["old", "gone", "older"]);
    }
}
