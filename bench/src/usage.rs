//! What a process costs, from the outside.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Units of processor time in `/proc`, which Linux fixes at a hundredth of a second for every reader.
const TICK: Duration = Duration::from_millis(10);

/// Processor time a process has used so far.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = read(pid, "stat")?;
    cpu_of(&stat).with_context(|| format!("the processor time of process {pid}"))
}

/// Processor time this process has used so far.
pub(crate) fn own_cpu() -> Result<Duration> {
    cpu(std::process::id())
}

/// The share of memory that is a process's own, in bytes: pages it shares are divided among those who share them.
pub(crate) fn memory(pid: u32) -> Result<u64> {
    let rollup = read(pid, "smaps_rollup")?;
    kilobytes(&rollup, "Pss:").with_context(|| format!("the memory of process {pid}"))
}

/// The most memory a process has had so far, in bytes.
pub(crate) fn peak_memory(pid: u32) -> Result<u64> {
    let status = read(pid, "status")?;
    kilobytes(&status, "VmHWM:").with_context(|| format!("the peak memory of process {pid}"))
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("reading {path}"))
}

/// User and system time: the 14th and 15th field, of which the second, in brackets, may contain anything.
fn cpu_of(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    let ticks: u32 = times.next()?.parse::<u32>().ok()? + times.next()?.parse::<u32>().ok()?;
    Some(TICK * ticks)
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 1 0 5 1 2";
        assert_eq!(cpu_of(stat), Some(Duration::from_millis(1750)));
    }

    #[test]
    fn memory_is_in_bytes() {
        let rollup = "5583a-7ffc ---p 00000000 00:00 0 [rollup]\nRss:    3000 kB\nPss:    2000 kB\n";
        assert_eq!(kilobytes(rollup, "Pss:"), Some(2_048_000));
        assert_eq!(kilobytes(rollup, "Swap:"), None);
    }

    #[test]
    fn own_process_costs_something() {
        assert!(memory(std::process::id()).unwrap() > 0);
        assert!(peak_memory(std::process::id()).unwrap() > 0);
        own_cpu().unwrap();
    }
}
