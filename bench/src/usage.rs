//! What a process costs, from the outside.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// Processor time a process has used so far, of all its threads, also those that have ended.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    // The clock of the process counts nanoseconds, `/proc` hundredths of a second.
    let pid_t = Pid::from_raw(pid.try_into()?);
    let read = clock_getcpuclockid(pid_t).and_then(clock_gettime);
    Ok(read.with_context(|| format!("the processor time of process {pid}"))?.into())
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

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(own_cpu().unwrap() > Duration::ZERO);
    }
}
