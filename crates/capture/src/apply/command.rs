use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

/// One call of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invocation {
    /// The program's name.
    pub program: String,
    /// Arguments of the command.
    pub arguments: Vec<String>,
    /// Standard input for the command.
    pub input: Option<String>,
    /// Whether it takes the lock of legacy iptables.
    pub takes_lock: bool,
}

impl Invocation {
    /// A call without input.
    pub fn new(program: impl Into<String>, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { program: program.into(), arguments, input: None, takes_lock: false }
    }

    fn line(&self) -> String {
        std::iter::once(self.program.as_str())
            .chain(self.arguments.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Runs programs.
pub trait Runner {
    /// Runs one to its end and returns what it printed.
    fn run(&mut self, call: &Invocation) -> Result<String, CommandError>;
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program is not installed.
    #[error(
        "{program} is not installed: install the Debian package {package}, or what it is called here, in this image"
    )]
    NotFound {
        /// The program.
        program: String,
        /// The package that has it.
        package: &'static str,
    },
    /// The kernel refused.
    #[error(
        "`{line}`: not permitted ({reason}); it needs the capabilities NET_ADMIN and NET_RAW in this network namespace"
    )]
    NotPermitted {
        /// The call.
        line: String,
        /// What the program said.
        reason: String,
    },
    /// The program failed.
    #[error("`{line}`: {kind}: {reason}")]
    Failed {
        /// The call.
        line: String,
        /// What its exit status means.
        kind: String,
        /// What the program said.
        reason: String,
    },
    /// The program could not be run.
    #[error("cannot run {program}: {source}")]
    Io {
        /// The program.
        program: String,
        /// Why not.
        source: io::Error,
    },
}

/// Runs programs for real.
#[derive(Clone, Debug, Default)]
pub struct System {
    directory: Option<PathBuf>,
    lock_file: Option<PathBuf>,
}

impl System {
    /// Takes programs from a directory instead of `PATH`.
    #[must_use]
    pub fn with_directory(mut self, directory: Option<PathBuf>) -> Self {
        self.directory = directory;
        self
    }

    /// Makes iptables lock this file instead of the machine's.
    #[must_use]
    pub fn with_lock_file(mut self, file: Option<PathBuf>) -> Self {
        self.lock_file = file;
        self
    }

    fn command(&self, call: &Invocation) -> Command {
        let program = self.directory.as_deref().unwrap_or(Path::new("")).join(&call.program);
        let mut command = Command::new(program);
        command.args(&call.arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if call.input.is_some() { Stdio::piped() } else { Stdio::null() });
        if let Some(file) = self.lock_file.as_ref().filter(|_| call.takes_lock) {
            command.env("XTABLES_LOCKFILE", file);
        }
        command
    }
}

/// Runs a command, feeding it while it prints.
fn output(mut command: Command, input: Option<&str>) -> io::Result<Output> {
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    thread::scope(|scope| {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // A program that stops reading says why by its exit status.
            scope.spawn(move || drop(stdin.write_all(input.as_bytes())));
        }
        child.wait_with_output()
    })
}

impl Runner for System {
    fn run(&mut self, call: &Invocation) -> Result<String, CommandError> {
        tracing::debug!("running {}", call.line());
        match output(self.command(call), call.input.as_deref()) {
            Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(output) => Err(failure(call, &output)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let package = if call.program == "nft" { "nftables" } else { "iptables" };
                Err(CommandError::NotFound { program: call.program.clone(), package })
            }
            Err(source) => Err(CommandError::Io { program: call.program.clone(), source }),
        }
    }
}

fn failure(call: &Invocation, output: &Output) -> CommandError {
    let said = String::from_utf8_lossy(&output.stderr);
    // `iptables v1.8.9 (legacy): reason`: the version is of no use to the reader.
    let reason = match said.split_once(": ") {
        Some((name, reason)) if name.contains("tables") => reason,
        _ => &said,
    };
    let reason = reason.trim().replace('\n', " ");
    let line = call.line();
    let is_denied = ["Permission denied", "Operation not permitted", "must be root"];
    if is_denied.iter().any(|text| said.contains(text)) {
        return CommandError::NotPermitted { line, reason };
    }
    let kind = match output.status.code() {
        Some(2) => "xtables parameter problem".to_owned(),
        Some(3) => "xtables version problem".to_owned(),
        Some(4) => "xtables resource problem".to_owned(),
        _ => output.status.to_string(),
    };
    CommandError::Failed { line, kind, reason }
}

/// Writes calls down instead of running them. Of a call with input, the input is what counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recorder {
    lines: Vec<String>,
}

impl Recorder {
    /// What was to be run, in order.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Adds a line.
    pub fn note(&mut self, line: impl ToString) {
        self.lines.push(line.to_string());
    }
}

impl Runner for Recorder {
    fn run(&mut self, call: &Invocation) -> Result<String, CommandError> {
        match &call.input {
            Some(input) => self.lines.extend(input.lines().map(str::to_owned)),
            None => self.lines.push(call.line()),
        }
        Ok(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(program: &str, arguments: &[&str]) -> CommandError {
        System::default().run(&Invocation::new(program, arguments.iter().copied())).unwrap_err()
    }

    #[test]
    fn missing_program_is_answered_with_its_package() {
        let message = fail("iptables-of-nobody", &[]).to_string();
        assert!(
            message.contains("iptables-of-nobody is not installed: install the Debian package iptables"),
            "{message}"
        );
    }

    #[test]
    fn refusal_names_the_capabilities() {
        let message =
            fail("sh", &["-c", "echo 'iptables v1: Permission denied (you must be root)' >&2; exit 4"])
                .to_string();
        assert!(message.contains("NET_ADMIN and NET_RAW"), "{message}");
        assert!(message.contains("not permitted (Permission denied (you must be root))"), "{message}");
    }

    #[test]
    fn exit_status_is_told_in_words() {
        let message = fail("sh", &["-c", "echo 'iptables v1: bad rule' >&2; exit 2"]).to_string();
        assert!(message.ends_with("xtables parameter problem: bad rule"), "{message}");
    }

    #[test]
    fn input_larger_than_a_pipe_reaches_a_program_that_prints_as_much() {
        let text = "x".repeat(1 << 20);
        let call = Invocation { input: Some(text.clone()), ..Invocation::new("cat", [""; 0]) };
        assert_eq!(System::default().run(&call).unwrap(), text);
    }
}
