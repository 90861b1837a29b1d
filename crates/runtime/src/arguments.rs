//! Command lines of manifests that were written for other versions.

use std::ffi::{OsStr, OsString};

use clap::Command;

/// Splits the arguments of `command` into those that it knows and the names of flags that it does not know.
///
/// Parity: an unknown flag is passed over together with its value, so that manifests of other versions keep working. The
/// argument after it is its value unless it is a flag itself, or `is_positional`.
pub fn without_unknown_flags(
    command: &Command,
    arguments: impl IntoIterator<Item = OsString>,
    is_positional: impl Fn(&OsStr) -> bool,
) -> (Vec<OsString>, Vec<String>) {
    let (mut kept, mut unknown) = (Vec::new(), Vec::new());
    let mut rest = arguments.into_iter().peekable();
    while let Some(argument) = rest.next() {
        match long_flag(&argument).filter(|(name, _)| !is_known(command, name)) {
            None => kept.push(argument),
            Some((name, has_value)) => {
                unknown.push(name);
                if !has_value {
                    rest.next_if(|value| !is_flag(value) && !is_positional(value));
                }
            }
        }
    }
    (kept, unknown)
}

/// Whether an argument is a flag.
pub fn is_flag(argument: &OsStr) -> bool {
    argument.to_string_lossy().starts_with('-')
}

/// The name of a long flag, and whether its value is part of the argument.
fn long_flag(argument: &OsStr) -> Option<(String, bool)> {
    let text = argument.to_string_lossy();
    let name = text.strip_prefix("--").filter(|name| !name.is_empty())?;
    Some(match name.split_once('=') {
        Some((name, _)) => (name.to_owned(), true),
        None => (name.to_owned(), false),
    })
}

/// Whether a command has a long flag of this name.
pub fn is_known(command: &Command, name: &str) -> bool {
    name == "help"
        || command.get_arguments().any(|known| {
            let aliases = known.get_all_aliases().unwrap_or_default();
            known.get_long() == Some(name) || aliases.contains(&name)
        })
}
