//! Usage errors, worded like istioctl's.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// The message that istioctl prints for a usage error. The first argument is the program.
pub(crate) fn istioctl(error: &Error, command: &Command, arguments: &[OsString]) -> String {
    let words = match (error.kind(), text(error, ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(argument)) => unknown(argument, &path(command, arguments)),
        (ErrorKind::InvalidSubcommand, _) => {
            let name = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command {name:?} for {:?}", path(command, arguments))
        }
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, Some(argument)) => invalid(error, argument),
        _ => first_line(error),
    };
    format!("Error: {words}\n")
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
