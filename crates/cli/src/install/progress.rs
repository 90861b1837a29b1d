use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use canopus_install::cluster::{ObjectId, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::say;

/// Lines in a log are at least this far apart when they say the same.
const REPEAT: Duration = Duration::from_secs(15);

/// Tells a person, or a log, how an installation goes on.
pub(super) struct Reporter {
    /// On a terminal: one line that changes.
    bar: Option<ProgressBar>,
    started: Instant,
    last: Option<(String, Instant)>,
}

impl Reporter {
    pub(super) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { bar, started: Instant::now(), last: None }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(&format!("{text}\n"), ExitCode::SUCCESS)),
            None => say(&format!("{text}\n"), ExitCode::SUCCESS),
        };
    }
}

impl Progress for Reporter {
    fn begin(&mut self, component: &str, objects: usize) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{component}: applying {objects} objects"));
        }
    }

    fn done(&mut self, object: &ObjectId, what: &'static str) {
        if what != "unchanged" {
            self.line(&format!("  {object} {what}"));
        }
    }

    fn waiting(&mut self, pending: &[String]) {
        let text = pending.join("; ");
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{:.0} s, waiting for {text}", self.started.elapsed().as_secs_f64()));
            return;
        }
        let is_due = |(last, when): &(String, Instant)| *last != text || when.elapsed() >= REPEAT;
        if self.last.as_ref().is_none_or(is_due) {
            self.line(&format!("  waiting for {text}"));
            self.last = Some((text, Instant::now()));
        }
    }

    fn ready(&mut self, component: &str) {
        self.line(&format!("✔ {component} ready after {:.1} s", self.started.elapsed().as_secs_f64()));
    }
}
