use std::fmt;
use std::time::{Duration, Instant};

/// The steps of a run, how they ended and how long they took.
#[derive(Debug, Default)]
pub(super) struct Summary {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    outcome: Outcome,
    time: Duration,
}

/// How a step ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Summary {
    /// Does a step, records how it went and tells whether it went well. A failure does not stop the run: one run should
    /// show all that is wrong.
    pub(super) fn step(&mut self, name: &'static str, work: impl FnOnce() -> anyhow::Result<()>) -> bool {
        eprintln!("\n== {name}");
        let started = Instant::now();
        let outcome = match work() {
            Ok(()) => Outcome::Passed,
            Err(error) => {
                eprintln!("error: {error:#}");
                Outcome::Failed(format!("{error:#}"))
            }
        };
        let passed = matches!(outcome, Outcome::Passed);
        self.steps.push(Step { name, outcome, time: started.elapsed() });
        passed
    }

    /// Records a step that took no doing.
    pub(super) fn note(&mut self, name: &'static str, outcome: Outcome) {
        self.steps.push(Step { name, outcome, time: Duration::ZERO });
    }

    pub(super) fn is_good(&self) -> bool {
        self.failed().next().is_none()
    }

    /// Names the steps that failed.
    pub(super) fn failures(&self) -> String {
        format!("failed: {}", self.failed().collect::<Vec<_>>().join(", "))
    }

    fn failed(&self) -> impl Iterator<Item = &'static str> {
        self.steps.iter().filter(|step| matches!(step.outcome, Outcome::Failed(_))).map(|step| step.name)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Step { name, outcome, time } in &self.steps {
            let seconds = time.as_secs_f64();
            match outcome {
                Outcome::Passed => writeln!(f, "{name:<24}passed {seconds:>8.1} s")?,
                // The whole text was shown when it happened.
                Outcome::Failed(error) => {
                    writeln!(
                        f,
                        "{name:<24}FAILED {seconds:>8.1} s  {}",
                        error.lines().next().unwrap_or_default()
                    )?;
                }
                Outcome::Skipped(reason) => writeln!(f, "{name:<24}skipped: {reason}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn failure_is_reported_and_later_steps_still_run() {
        let mut summary = Summary::default();
        assert!(!summary.step("tidy", || bail!("two laws broken\nin detail")));
        assert!(summary.step("fmt", || Ok(())));
        summary.note("deny", Outcome::Skipped("not installed".to_owned()));
        assert!(!summary.is_good());
        assert_eq!(summary.failures(), "failed: tidy");
        let text = summary.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("tidy") && lines[0].ends_with("two laws broken"), "{text}");
        assert!(lines[1].contains("passed"), "{text}");
        assert!(lines[2].ends_with("skipped: not installed"), "{text}");
    }

    #[test]
    fn run_is_good_when_nothing_failed() {
        let mut summary = Summary::default();
        summary.step("fmt", || Ok(()));
        summary.note("deny", Outcome::Skipped("not installed".to_owned()));
        assert!(summary.is_good());
    }
}
