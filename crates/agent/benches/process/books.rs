//! What the kernel knows about a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Memory and processor time of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Books {
    resident: u64,
    private: u64,
    /// Processor time of all its threads.
    pub(crate) busy: Duration,
}

impl Books {
    pub(crate) fn read(id: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let kibibytes = |key: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).context("no such line")?;
            Ok(line.trim().trim_end_matches(" kB").parse()?)
        };
        Ok(Self { resident: kibibytes("VmRSS:")?, private: kibibytes("RssAnon:")?, busy: busy(id)? })
    }

    pub(crate) fn resident(&self) -> String {
        megabytes(self.resident)
    }

    pub(crate) fn private(&self) -> String {
        megabytes(self.private)
    }
}

fn megabytes(kibibytes: u64) -> String {
    format!("{:.1} MB", kibibytes as f64 * 1024.0 / 1e6)
}

/// The scheduler counts nanoseconds, where `stat` counts ticks.
fn busy(id: u32) -> Result<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{id}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += text.split(' ').next().context("no time")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// The value below which this share of sorted values is.
pub(crate) fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
