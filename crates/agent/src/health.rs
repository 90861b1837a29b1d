//! Whether the application beside a proxy of a WorkloadGroup is well (`readinessProbe` of the proxy configuration).
//!
//! On machines there is no kubelet to ask. The agent probes Envoy and the application, and tells the control plane when
//! that changes: a HealthInformation request on the xDS stream, with an error if the application is not well.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use canopus_proto::istio::networking::v1alpha3::ReadinessProbe;
use canopus_proto::istio::networking::v1alpha3::readiness_probe::HealthCheckMethod;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::status::probes::{ProbeSettings, WorkloadProbe};
use crate::status::ready::Readiness;
use crate::xds_proxy::HealthReport;

/// Checks the application for as long as it is polled.
pub struct HealthCheck {
    probe: ReadinessProbe,
    method: Method,
    settings: ProbeSettings,
    envoy: Option<Arc<Readiness>>,
}

enum Method {
    Probe(WorkloadProbe),
    Exec(Vec<String>),
}

impl HealthCheck {
    /// The check that a proxy configuration has, if it has one. Envoy has to be ready as well, if there is one.
    pub fn new(
        probe: &ReadinessProbe,
        settings: ProbeSettings,
        envoy: Option<Arc<Readiness>>,
    ) -> Result<Option<Self>, String> {
        let invalid = |reason: String| format!("proxy configuration: readinessProbe: {reason}");
        let method = match &probe.health_check_method {
            None => return Ok(None),
            Some(HealthCheckMethod::Exec(exec)) => {
                if exec.command.is_empty() {
                    return Err(invalid("exec.command: expected a program and its arguments".to_owned()));
                }
                Method::Exec(exec.command.clone())
            }
            Some(method) => Method::Probe(WorkloadProbe::new(method).map_err(invalid)?),
        };
        Ok(Some(Self { probe: probe.clone(), method, settings, envoy }))
    }

    /// Checks, and reports changes.
    pub async fn run(&self, reports: &watch::Sender<Option<HealthReport>>) {
        let seconds = |value: i32, default: u64| match u64::try_from(value) {
            Ok(0) | Err(_) => Duration::from_secs(default),
            Ok(value) => Duration::from_secs(value),
        };
        let delay = Duration::from_secs(u64::try_from(self.probe.initial_delay_seconds).unwrap_or_default());
        let (limit, period) =
            (seconds(self.probe.timeout_seconds, 1), seconds(self.probe.period_seconds, 10));
        let mut state = Thresholds {
            success: self.probe.success_threshold.max(1),
            failure: self.probe.failure_threshold.max(1),
            ..Thresholds::default()
        };
        info!(target: "healthcheck", "the application is checked every {period:?}, first in {delay:?}");
        sleep(delay).await;
        loop {
            let outcome = self.check(limit).await;
            debug!(target: "healthcheck", "{outcome:?}");
            if let Some(report) = state.take(outcome) {
                match &report.problem {
                    None => info!(target: "healthcheck", "the application is well"),
                    Some(problem) => warn!(target: "healthcheck", "the application is not well: {problem}"),
                }
                reports.send_replace(Some(report));
            }
            sleep(period).await;
        }
    }

    async fn check(&self, limit: Duration) -> Result<(), String> {
        if let Some(envoy) = &self.envoy {
            envoy.check(false).await.map_err(|reason| format!("Envoy is not ready: {reason}"))?;
        }
        match &self.method {
            Method::Probe(probe) => probe.check(&self.settings, limit).await,
            Method::Exec(command) => execute(command, limit).await,
        }
    }
}

async fn execute(command: &[String], limit: Duration) -> Result<(), String> {
    let [program, arguments @ ..] = command else { return Err("there is no command".to_owned()) };
    let mut child = Command::new(program);
    child.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match timeout(limit, child.status()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{program}: {status}")),
        Ok(Err(error)) => Err(format!("{program}: {error}")),
        Err(_) => Err(format!("{program}: no end in {limit:?}")),
    }
}

/// Counts outcomes in a row. Parity: only changes are reported, after as many outcomes as the thresholds say.
#[derive(Debug, Default)]
struct Thresholds {
    success: i32,
    failure: i32,
    successes: i32,
    failures: i32,
    reported: Option<bool>,
}

impl Thresholds {
    fn take(&mut self, outcome: Result<(), String>) -> Option<HealthReport> {
        match outcome {
            Ok(()) => {
                self.successes = self.successes.saturating_add(1);
                self.failures = 0;
                (self.successes >= self.success && self.reported != Some(true)).then(|| {
                    self.reported = Some(true);
                    HealthReport { problem: None }
                })
            }
            Err(problem) => {
                self.failures = self.failures.saturating_add(1);
                self.successes = 0;
                (self.failures >= self.failure && self.reported != Some(false)).then(|| {
                    self.reported = Some(false);
                    HealthReport { problem: Some(problem) }
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_reported_after_enough_outcomes() {
        let mut state = Thresholds { success: 2, failure: 3, ..Thresholds::default() };
        let outcomes = "++-+++---+--++-";
        let reported: String = outcomes
            .chars()
            .map(|outcome| {
                let outcome = if outcome == '+' { Ok(()) } else { Err("down".to_owned()) };
                state.take(outcome).map_or('.', |report| if report.problem.is_none() { 'w' } else { 'x' })
            })
            .collect();
        //                    ++-+++---+--++-
        assert_eq!(reported, ".w......x....w.");
    }

    #[tokio::test]
    async fn command_is_judged_by_its_exit_code_and_its_time() {
        let command = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let limit = Duration::from_secs(5);
        assert_eq!(execute(&command(&["true"]), limit).await, Ok(()));
        assert!(execute(&command(&["false"]), limit).await.unwrap_err().contains("false: exit status: 1"));
        assert!(
            execute(&command(&["/no/such/program"]), limit).await.unwrap_err().contains("/no/such/program")
        );
        let late = execute(&command(&["sleep", "60"]), Duration::from_millis(20)).await;
        assert!(late.unwrap_err().contains("no end in"));
    }
}
