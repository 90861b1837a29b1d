//! How commands speak: data on standard output, words on standard error.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::exit;

/// Data for programs.
pub(crate) fn print(text: &str, code: ExitCode) -> ExitCode {
    written(io::stdout().lock().write_all(text.as_bytes()), code)
}

/// Words for people; coloured where the terminal wants it.
pub(crate) fn say(text: &str, code: ExitCode) -> ExitCode {
    written(anstream::stderr().lock().write_all(text.as_bytes()), code)
}

/// A reader that closed early, such as `head`, changes nothing.
fn written(result: io::Result<()>, code: ExitCode) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => exit::FAILURE,
        _ => code,
    }
}
