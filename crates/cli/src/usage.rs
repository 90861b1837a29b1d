//! Usage errors and help of groups, worded like istioctl's.

mod groups;
pub(crate) mod help;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::exit;

/// Commands that count their words themselves.
const COUNTING: [&str; 3] = ["istioctl install", "istioctl upgrade", "istioctl manifest install"];

/// The message that istioctl prints for a usage error, and its exit code. The first argument is the program.
pub(crate) fn istioctl(error: &Error, command: &Command, arguments: &[OsString]) -> (String, ExitCode) {
    let path = path(command, arguments);
    let invalid_argument = text(error, ContextKind::InvalidArg);
    let words = match (error.kind(), invalid_argument) {
        (ErrorKind::MissingRequiredArgument, _) if !missing_flags(error).is_empty() => {
            let words = format!("required flag(s) {} not set", missing_flags(error).join(", "));
            return (format!("Error: {words}\n"), exit::FAILURE);
        }
        (ErrorKind::UnknownArgument, Some(argument))
            if !argument.starts_with('-') && COUNTING.contains(&path.as_str()) =>
        {
            return ("Error: accepts 0 arg(s), received 1\n".to_owned(), exit::FAILURE);
        }
        (ErrorKind::UnknownArgument, Some(argument)) => unknown(argument, &path),
        (ErrorKind::InvalidSubcommand, _) => {
            let name = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command {name:?} for {path:?}")
        }
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, Some(argument)) => invalid(error, argument),
        _ => first_line(error),
    };
    (format!("Error: {words}\n"), exit::usage())
}

/// The flags that a command needs and was not given, in quotes; not its words.
fn missing_flags(error: &Error) -> Vec<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return Vec::new() };
    let flags = missing.iter().filter_map(|one| one.strip_prefix("--"));
    flags.map(|flag| format!("{:?}", flag.split([' ', '=']).next().unwrap_or(flag))).collect()
}

fn unknown(argument: &str, path: &str) -> String {
    match argument.strip_prefix('-') {
        None => format!("unknown command {argument:?} for {path:?}"),
        Some(long) if long.starts_with('-') => format!("unknown flag: {argument}"),
        Some(short) => {
            format!("unknown shorthand flag: '{}' in {argument}", short.chars().next().unwrap_or_default())
        }
    }
}

/// A value that a flag cannot have, in the words of Go's flag library.
fn invalid(error: &Error, argument: &str) -> String {
    let flag = argument.split(' ').next().unwrap_or(argument);
    let value = text(error, ContextKind::InvalidValue).unwrap_or_default();
    let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("invalid argument {value:?} for {flag:?} flag: {reason}")
}

fn text(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        _ => None,
    }
}

/// The command that arguments lead to, such as `istioctl validate`.
fn path(command: &Command, arguments: &[OsString]) -> String {
    let mut path = "istioctl".to_owned();
    let mut command = command;
    for argument in arguments.iter().skip(1).filter_map(|argument| argument.to_str()) {
        let Some(found) = command.find_subcommand(argument) else { continue };
        command = found;
        path = format!("{path} {}", found.get_name());
    }
    path
}

/// The first line of clap's message, without its hints.
fn first_line(error: &Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}
