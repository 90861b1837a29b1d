//! A build told in lines, for logs: how far it is every few seconds, whether or not anything happens.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How often a line is told.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Lines of cargo that are kept for the error.
const KEPT: usize = 200;

/// Runs cargo, which draws its bar for us, and tells how far it is.
pub(super) fn run_with_lines(command: &mut Command) -> Result<()> {
    command.env("CARGO_TERM_PROGRESS_WHEN", "always").env("CARGO_TERM_PROGRESS_WIDTH", "160");
    let start = Instant::now();
    let mut child = command.stderr(Stdio::piped()).spawn().context("cargo")?;
    let (sender, lines) = mpsc::channel();
    let pipe = child.stderr.take().context("cargo's output")?;
    let reader = thread::spawn(move || read_lines(pipe, &sender));
    let mut progress = Progress::default();
    let mut told = Instant::now();
    loop {
        match lines.recv_timeout(HEARTBEAT.saturating_sub(told.elapsed())) {
            Ok(line) => progress.take(&line),
            Err(RecvTimeoutError::Timeout) => {
                eprintln!("build: {}, {} s", progress.words(), start.elapsed().as_secs());
                told = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let _ = reader.join();
    let status = child.wait()?;
    if !status.success() {
        bail!("cargo build failed ({status}):\n{}", progress.kept.join("\n"));
    }
    eprintln!("build: done in {} s", start.elapsed().as_secs());
    Ok(())
}

/// Sends lines; a bar is drawn over itself, so it ends with a carriage return.
fn read_lines(mut pipe: impl Read, lines: &Sender<String>) {
    let mut buffer = [0; 4096];
    let mut line = Vec::new();
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        for byte in &buffer[..count] {
            match byte {
                b'\n' | b'\r' => {
                    if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                        return;
                    }
                    line.clear();
                }
                byte => line.push(*byte),
            }
        }
    }
}

/// How far cargo is.
#[derive(Default)]
struct Progress {
    step: String,
    kept: Vec<String>,
}

impl Progress {
    fn take(&mut self, line: &str) {
        let line = line.trim_matches(|c: char| c.is_whitespace() || c == '\u{1b}').trim_start_matches("[K");
        if let Some(step) = step(line) {
            self.step = step;
        } else if !line.is_empty() && !line.starts_with("Compiling ") && !line.starts_with("Downloaded ") {
            self.kept.push(line.to_owned());
            self.kept.drain(..self.kept.len().saturating_sub(KEPT));
        }
    }

    fn words(&self) -> &str {
        if self.step.is_empty() { "cargo looks what there is to do" } else { &self.step }
    }
}

/// What a bar says: `Building [===>   ] 12/366: serde, syn` and `Downloading 3 crates, remaining bytes: 1.2MB`.
fn step(line: &str) -> Option<String> {
    if let Some((_, rest)) = line.strip_prefix("Building [").and_then(|rest| rest.split_once("] ")) {
        let (numbers, names) = rest.split_once(": ").unwrap_or((rest, ""));
        let (done, total) = numbers.split_once('/')?;
        let now = if names.is_empty() { String::new() } else { format!(", now {names}") };
        return Some(format!("{done} of {total} crates{now}"));
    }
    let is_fetch =
        ["Downloading ", "Fetch [", "Updating ", "Blocking "].iter().any(|word| line.starts_with(word));
    is_fetch.then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_of_cargo_tells_how_far_it_is() {
        let mut progress = Progress::default();
        assert_eq!(progress.words(), "cargo looks what there is to do");
        progress.take("   Compiling serde v1.0.0");
        progress.take("    Building [=>            ] 12/366: serde, syn(build.rs)\u{1b}[K");
        assert!(
            progress.words().starts_with("12 of 366 crates, now serde, syn(build.rs)"),
            "{}",
            progress.words()
        );
        progress.take(" Downloading 3 crates, remaining bytes: 1.2MB");
        assert_eq!(progress.words(), "Downloading 3 crates, remaining bytes: 1.2MB");
        assert!(progress.kept.is_empty());
    }

    #[test]
    fn what_is_no_progress_is_kept_for_the_error() {
        let mut progress = Progress::default();
        progress.take("error: no such thing");
        (0..500).for_each(|number| progress.take(&format!("note {number}")));
        assert_eq!((progress.kept.len(), progress.kept.last().map(String::as_str)), (KEPT, Some("note 499")));
    }

    #[test]
    fn lines_end_where_bars_are_drawn_anew() {
        let (sender, lines) = mpsc::channel();
        read_lines("a\nBuilding [=> ] 1/2: x\rBuilding [=>] 2/2\rdone\n".as_bytes(), &sender);
        drop(sender);
        let lines: Vec<String> = lines.iter().collect();
        assert_eq!(lines, ["a", "Building [=> ] 1/2: x", "Building [=>] 2/2", "done"]);
    }
}
