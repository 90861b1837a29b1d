//! What the operating system knows of this process, under the names of the Go client, and who the process is.

use std::fs;
use std::time::Instant;

use nix::unistd::{SysconfVar, sysconf};

use super::catalogue as names;
use super::registry::{Collected, Registry};
use crate::version::BuildInfo;

/// Registers the `process_*` metrics; those the platform does not tell are left out.
pub fn register_process(registry: &Registry) {
    registry.collect(|collected| {
        collect_usage(collected);
        collect_descriptors(collected);
        collect_network(collected);
    });
}

/// Registers `istio_build`, which rollout dashboards count by tag.
pub fn register_build(registry: &Registry, component: &str, build: &BuildInfo) {
    registry.family(names::ISTIO_BUILD).with([component, &build.tag]).set(1.0);
}

/// Registers the uptime of the control plane, counted from now.
pub fn register_uptime(registry: &Registry) {
    let start = Instant::now();
    registry.collect(move |collected| {
        collected.push(names::ISTIOD_UPTIME_SECONDS, [], start.elapsed().as_secs_f64());
    });
}

fn collect_usage(collected: &mut Collected) {
    let Some(usage) = read("/proc/self/stat").as_deref().and_then(Usage::parse) else {
        return;
    };
    let system = |variable| sysconf(variable).ok().flatten().map(|value| value as f64);
    if let Some(ticks) = system(SysconfVar::CLK_TCK) {
        collected.push(names::PROCESS_CPU_SECONDS_TOTAL, [], usage.cpu_ticks / ticks);
        if let Some(boot) = read("/proc/stat").as_deref().and_then(boot_time) {
            collected.push(names::PROCESS_START_TIME_SECONDS, [], boot + usage.start_ticks / ticks);
        }
    }
    if let Some(page) = system(SysconfVar::PAGE_SIZE) {
        collected.push(names::PROCESS_RESIDENT_MEMORY_BYTES, [], usage.resident_pages * page);
    }
    collected.push(names::PROCESS_VIRTUAL_MEMORY_BYTES, [], usage.virtual_bytes);
}

fn collect_descriptors(collected: &mut Collected) {
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        collected.push(names::PROCESS_OPEN_FDS, [], open.count() as f64);
    }
    let Some(limits) = read("/proc/self/limits") else {
        return;
    };
    if let Some(limit) = soft_limit(&limits, "Max open files") {
        collected.push(names::PROCESS_MAX_FDS, [], limit);
    }
    if let Some(limit) = soft_limit(&limits, "Max address space") {
        collected.push(names::PROCESS_VIRTUAL_MEMORY_MAX_BYTES, [], limit);
    }
}

fn collect_network(collected: &mut Collected) {
    let Some(statistics) = read("/proc/self/net/netstat") else {
        return;
    };
    if let Some(octets) = network_counter(&statistics, "InOctets") {
        collected.push(names::PROCESS_NETWORK_RECEIVE_BYTES_TOTAL, [], octets);
    }
    if let Some(octets) = network_counter(&statistics, "OutOctets") {
        collected.push(names::PROCESS_NETWORK_TRANSMIT_BYTES_TOTAL, [], octets);
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Fields of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq)]
struct Usage {
    cpu_ticks: f64,
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Usage {
    fn parse(stat: &str) -> Option<Usage> {
        // The command name may hold spaces and parentheses, so fields are counted from its last parenthesis.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered as in proc(5), where the field after the command name is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Usage {
            cpu_ticks: field(14)? + field(15)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// A limit; one that is not set is exported as the largest number the Go client uses for it.
fn soft_limit(limits: &str, name: &str) -> Option<f64> {
    let soft = limits.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()?;
    if soft == "unlimited" { Some(u64::MAX as f64) } else { soft.parse().ok() }
}

/// A value of the `IpExt` table, which is a line of names followed by a line of values.
fn network_counter(statistics: &str, name: &str) -> Option<f64> {
    let mut rows = statistics.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (rows.next()?, rows.next()?);
    let column = names.split_ascii_whitespace().position(|column| column == name)?;
    values.split_ascii_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_usage_past_a_hostile_command_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 9 0 8000 409600 25 0";
        assert_eq!(
            Usage::parse(stat),
            Some(Usage {
                cpu_ticks: 200.0,
                start_ticks: 8000.0,
                virtual_bytes: 409_600.0,
                resident_pages: 25.0
            })
        );
    }

    #[test]
    fn tells_nothing_when_files_are_not_as_expected() {
        for text in ["", "garbage", ") 1 2 3"] {
            assert_eq!(Usage::parse(text), None);
            assert_eq!(boot_time(text), None);
            assert_eq!(soft_limit(text, "Max open files"), None);
            assert_eq!(network_counter(text, "InOctets"), None);
        }
    }

    #[test]
    fn reads_limits() {
        let limits = "Limit Soft Limit Hard Limit Units\nMax open files            1024 524288 files\n\
                      Max address space         unlimited unlimited bytes\n";
        assert_eq!(soft_limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(soft_limit(limits, "Max address space"), Some(u64::MAX as f64));
    }

    #[test]
    fn reads_network_counters_by_name() {
        let statistics = "TcpExt: A\nTcpExt: 1\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 70 80\n";
        assert_eq!(network_counter(statistics, "OutOctets"), Some(80.0));
    }
}
