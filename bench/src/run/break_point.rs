//! The largest fleet that a subject serves well.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

use super::{launch, stage, tell};
use crate::client::Record;
use crate::figure::{Unit, show};
use crate::options::Options;
use crate::scenario::Scenario;
use crate::stage::World;
use crate::subject::Launch;

/// How long the last proxy may take to acknowledge a changed endpoint, in 99 of a hundred changes.
const SLOWEST: Duration = Duration::from_secs(1);

/// How much memory the subject may have.
const MEMORY: u64 = 16 << 30;

/// Proxies at the most: connections to one port run out of ports of their own.
const MOST: usize = 25_000;

/// How often the stretch between the last fleet that was served and the first that was not is halved.
const HALVINGS: usize = 2;

/// What came of one size.
struct Attempt {
    proxies: usize,
    outcome: Result<Measured>,
}

struct Measured {
    connected: Duration,
    p99: f64,
    memory: u64,
}

impl Attempt {
    fn is_served(&self) -> bool {
        let well = |it: &Measured| it.p99 < SLOWEST.as_secs_f64() && it.memory < MEMORY;
        self.outcome.as_ref().is_ok_and(well)
    }

    fn line(&self) -> String {
        let verdict = if self.is_served() { "served" } else { "not served" };
        match &self.outcome {
            Ok(Measured { connected, p99, memory }) => format!(
                "| {} | {} | {} | {} | {verdict} |",
                self.proxies,
                show(connected.as_secs_f64(), Unit::Seconds),
                show(*p99, Unit::Seconds),
                show(*memory as f64, Unit::Bytes),
            ),
            Err(error) => format!("| {} | | | | {verdict}: {error:#} |", self.proxies),
        }
    }
}

/// Looks for it with each subject.
pub(super) async fn search(options: &Options) -> Result<String> {
    let mut text = String::new();
    for subject in options.subjects() {
        let launch = launch(options, subject)?;
        let attempts = search_with(options, &launch).await;
        let best = attempts.iter().filter(|it| it.is_served()).map(|it| it.proxies).max().unwrap_or_default();
        let _ = writeln!(text, "{}: {best} proxies with {} services\n", subject.name(), options.services);
        text += "| proxies | all connected | endpoint change to last ACK, p99 | memory | |\n|---|---|---|---|---|\n";
        for attempt in &attempts {
            let _ = writeln!(text, "{}", attempt.line());
        }
    }
    Ok(text)
}

async fn search_with(options: &Options, launch: &Launch) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut proxies = options.proxies.unwrap_or(1000).min(MOST);
    let (mut served, mut unserved) = (0, None);
    let mut halvings = 0;
    loop {
        let attempt = Attempt { proxies, outcome: measure(options, launch, proxies).await };
        tell(&attempt.line());
        match attempt.is_served() {
            true => served = proxies,
            false => unserved = Some(proxies),
        }
        attempts.push(attempt);
        proxies = match unserved {
            None if proxies == MOST => return attempts,
            None => (2 * proxies).min(MOST),
            Some(_) if halvings == HALVINGS => return attempts,
            Some(unserved) => {
                halvings += 1;
                usize::midpoint(served, unserved)
            }
        };
        if proxies < 10 {
            return attempts;
        }
    }
}

async fn measure(options: &Options, launch: &Launch, proxies: usize) -> Result<Measured> {
    tell(&format!("{}: {proxies} proxies", launch.subject.name()));
    let world = World::start(options.fixture_of(proxies)).await?;
    let record = Arc::new(Mutex::new(Record::default()));
    let mut stage = stage(&world, launch, options, &record)?;
    stage.fresh().await?;
    let started = Instant::now();
    stage.connected().await?;
    let connected = started.elapsed();
    let figures = Scenario::S4.play(&mut stage).await?;
    let p99 = figures.iter().find(|figure| figure.name == "write to last ACK, p99");
    let p99 = p99.context("no change arrived")?.value;
    Ok(Measured { connected, p99, memory: stage.control.peak_memory()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(p99: f64, memory: u64) -> Attempt {
        let connected = Duration::from_secs(3);
        Attempt { proxies: 1000, outcome: Ok(Measured { connected, p99, memory }) }
    }

    #[test]
    fn slow_fleets_and_large_ones_are_not_served() {
        assert!(attempt(0.5, 1 << 30).is_served());
        assert!(!attempt(1.5, 1 << 30).is_served());
        assert!(!attempt(0.5, 17 << 30).is_served());
        assert!(!Attempt { proxies: 9, outcome: Err(anyhow::anyhow!("lost")) }.is_served());
    }

    #[test]
    fn attempts_are_rows_of_a_table() {
        assert_eq!(attempt(0.5, 1_000_000).line(), "| 1000 | 3.00 s | 500 ms | 1.0 MB | served |");
    }
}
