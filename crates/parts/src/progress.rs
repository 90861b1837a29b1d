use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::Part;

/// How often a log without a terminal hears that work goes on.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// How often it hears how far a download is.
const DOWNLOAD_HEARTBEAT: Duration = Duration::from_secs(5);

/// Shows that an installation is alive: a spinner on a terminal, a bar for a download, otherwise one line per step and a heartbeat.
pub(crate) struct Progress {
    label: String,
    step: String,
    started: Instant,
    shown: Shown,
}

enum Shown {
    Spinner(ProgressBar),
    Lines { last: Instant },
}

impl Progress {
    /// A spinner where people look, lines where logs are kept.
    pub(crate) fn detect(part: Part) -> Self {
        if std::io::stderr().is_terminal() { Self::spinner(part) } else { Self::lines(part) }
    }

    /// Lines even on a terminal, for work beside other output.
    pub(crate) fn lines(part: Part) -> Self {
        Self::new(part, Shown::Lines { last: Instant::now() })
    }

    fn spinner(part: Part) -> Self {
        let bar = ProgressBar::new_spinner().with_style(spinner_style()).with_prefix(label(part));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self::new(part, Shown::Spinner(bar))
    }

    fn new(part: Part, shown: Shown) -> Self {
        Self { label: label(part), step: String::new(), started: Instant::now(), shown }
    }

    /// A new step begins.
    pub(crate) fn step(&mut self, step: impl Into<String>) {
        self.step = step.into();
        match &mut self.shown {
            Shown::Spinner(bar) => {
                bar.set_style(spinner_style());
                bar.set_message(self.step.clone());
            }
            Shown::Lines { last } => {
                say(&self.label, &self.step);
                *last = Instant::now();
            }
        }
    }

    /// Time passes; `detail` says how far the step has come.
    pub(crate) fn beat(&mut self, detail: &str) {
        match &mut self.shown {
            Shown::Spinner(bar) => bar.set_message(format!("{}{detail}", self.step)),
            Shown::Lines { last } if last.elapsed() >= HEARTBEAT => {
                say(&self.label, &format!("{}{detail}, {} so far", self.step, clock(self.started.elapsed())));
                *last = Instant::now();
            }
            Shown::Lines { .. } => {}
        }
    }

    /// So many bytes of a download are there; of how many is not known at first.
    pub(crate) fn bytes(&mut self, done: u64, total: Option<u64>) {
        match &mut self.shown {
            Shown::Spinner(bar) => {
                if let Some(total) = total.filter(|total| bar.length() != Some(*total)) {
                    let style = ProgressStyle::with_template(
                        "{spinner} {prefix}: {msg} [{bar:30}] {bytes} of {total_bytes} ({elapsed})",
                    )
                    .expect("the template is well formed");
                    bar.set_style(style.progress_chars("=> "));
                    bar.set_length(total);
                }
                bar.set_position(done);
            }
            Shown::Lines { last } if last.elapsed() >= DOWNLOAD_HEARTBEAT => {
                say(&self.label, &format!("{}, {}", self.step, megabytes(done, total)));
                *last = Instant::now();
            }
            Shown::Lines { .. } => {}
        }
    }

    /// The part is there.
    pub(crate) fn done(self) {
        if let Shown::Spinner(bar) = &self.shown {
            bar.finish_and_clear();
        }
        say(&self.label, &format!("installed in {}", clock(self.started.elapsed())));
    }
}

fn spinner_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix}: {msg} ({elapsed})")
        .expect("the template is well formed")
}

fn megabytes(done: u64, total: Option<u64>) -> String {
    let tenths = |bytes: u64| format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10);
    match total {
        Some(total) => format!("{} of {} MB", tenths(done), tenths(total)),
        None => format!("{} MB", tenths(done)),
    }
}

fn label(part: Part) -> String {
    format!("{part} {}", part.version())
}

fn say(label: &str, text: &str) {
    // A closed stderr must not stop an installation.
    let _ = writeln!(std::io::stderr(), "parts: {label}: {text}");
}

fn clock(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn download_is_told_in_megabytes() {
        assert_eq!(megabytes(1_250_000, Some(33_149_000)), "1.2 of 33.1 MB");
        assert_eq!(megabytes(0, None), "0.0 MB");
    }

    #[test]
    fn time_is_told_in_minutes_once_there_is_one() {
        assert_eq!(clock(Duration::from_secs(59)), "59 s");
        assert_eq!(clock(Duration::from_secs(605)), "10 min 05 s");
    }
}
