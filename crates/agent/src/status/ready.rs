//! When the proxy is ready: it took configuration of clusters and listeners, is live, and its workers run.
//!
//! What was once true stays true in the life of an Envoy, so after the first success nothing is asked any more. Readiness
//! probes come through Envoy's own listener, which proves that it still serves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use canopus_runtime::metrics::Gauge;
use tracing::info;

use crate::envoy::Admin;

/// A further condition of readiness, such as the name server's. Returns the reason if it does not hold.
pub type Condition = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// The rule.
pub struct Readiness {
    admin: Option<Admin>,
    configured: AtomicBool,
    live: AtomicBool,
    was_ready: AtomicBool,
    conditions: Vec<Condition>,
    started: Instant,
    duration: Gauge,
}

impl Readiness {
    /// The rule for an Envoy, or for none, with these further conditions.
    pub fn new(admin: Option<Admin>, conditions: Vec<Condition>, duration: Gauge) -> Self {
        let [configured, live, was_ready] = Default::default();
        Self { admin, configured, live, was_ready, conditions, started: Instant::now(), duration }
    }

    /// The reason why the proxy is not ready, if it is not.
    pub async fn check(&self, is_ending: bool) -> Result<(), String> {
        if let Some(admin) = &self.admin {
            self.check_configured(admin).await?;
            if is_ending {
                return Err("server is terminated: the agent shuts down".to_owned());
            }
            self.check_live(admin).await?;
        }
        if let Some(reason) = self.conditions.iter().find_map(|condition| condition()) {
            return Err(reason);
        }
        if !self.was_ready.swap(true, Ordering::Relaxed) {
            let took = self.started.elapsed();
            self.duration.set(took.as_secs_f64());
            info!("Envoy proxy is ready after {took:.1?}");
        }
        Ok(())
    }

    async fn check_configured(&self, admin: &Admin) -> Result<(), String> {
        if self.configured.load(Ordering::Relaxed) {
            return Ok(());
        }
        let filter = "/stats?usedonly&filter=^(cluster_manager%5C.cds|listener_manager%5C.lds)%5C.(update_success|update_rejected)$";
        let stats = numbers(&admin.get(filter).await.map_err(|error| error.to_string())?);
        judge_configuration(&stats)?;
        self.configured.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn check_live(&self, admin: &Admin) -> Result<(), String> {
        if self.live.load(Ordering::Relaxed) {
            return Ok(());
        }
        let filter = "/stats?usedonly&filter=^(server%5C.state|listener_manager%5C.workers_started)";
        let text =
            admin.get(filter).await.map_err(|error| format!("failed to get readiness stats: {error}"))?;
        judge_state(&numbers(&text))?;
        self.live.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn judge_configuration(stats: &BTreeMap<String, u64>) -> Result<(), String> {
    let count = |name: &str| stats.get(name).copied().unwrap_or(0);
    let (cds, lds) =
        (count("cluster_manager.cds.update_success"), count("listener_manager.lds.update_success"));
    let (cds_rejected, lds_rejected) =
        (count("cluster_manager.cds.update_rejected"), count("listener_manager.lds.update_rejected"));
    if cds > 0 && lds > 0 {
        return Ok(());
    }
    let reason = if cds == 0 && lds == 0 {
        "config not received from XDS server (is Istiod running?)"
    } else if cds_rejected > 0 || lds_rejected > 0 {
        "config received from XDS server, but was rejected"
    } else {
        "config not fully received from XDS server"
    };
    Err(format!(
        "{reason}: cds updates: {cds} successful, {cds_rejected} rejected; lds updates: {lds} successful, {lds_rejected} rejected"
    ))
}

fn judge_state(stats: &BTreeMap<String, u64>) -> Result<(), String> {
    let state =
        stats.get("server.state").ok_or("failed to get readiness stats: server.state is not yet updated")?;
    let started = stats
        .get("listener_manager.workers_started")
        .ok_or("failed to get readiness stats: listener_manager.workers_started is not yet updated")?;
    let state = match state {
        0 if *started == 1 => return Ok(()),
        0 => return Err("workers have not yet started".to_owned()),
        1 => "DRAINING",
        2 => "PRE_INITIALIZING",
        3 => "INITIALIZING",
        _ => "UNKNOWN",
    };
    Err(format!("server is not live, current state is: {state}"))
}

fn numbers(stats: &str) -> BTreeMap<String, u64> {
    let lines = stats.lines().filter_map(|line| line.rsplit_once(':'));
    lines.filter_map(|(name, value)| Some((name.trim().to_owned(), value.trim().parse().ok()?))).collect()
}

/// Conditions are shared with the parts they ask.
pub fn condition<T: Send + Sync + 'static>(
    part: &Arc<T>,
    check: impl Fn(&T) -> Option<String> + Send + Sync + 'static,
) -> Condition {
    let part = Arc::clone(part);
    Box::new(move || check(&part))
}

/// What a proxyless gRPC application lacks to start: its bootstrap, or a file that this names.
pub fn grpc_is_missing(bootstrap: &Path) -> Option<String> {
    let unreadable = |error: String| Some(format!("GRPC_XDS_BOOTSTRAP: {}: {error}", bootstrap.display()));
    let text = match fs::read(bootstrap) {
        Ok(text) => text,
        Err(error) => return unreadable(error.to_string()),
    };
    let value: serde_json::Value = match serde_json::from_slice(&text) {
        Ok(value) => value,
        Err(error) => return unreadable(error.to_string()),
    };
    let socket =
        value.pointer("/xds_servers/0/server_uri").and_then(|uri| uri.as_str()?.strip_prefix("unix:"));
    let socket = socket.map(|path| path.strip_prefix("//").unwrap_or(path));
    let provider = value.pointer("/certificate_providers/default/config");
    let file = |name: &str| provider.and_then(|config| config.get(name)?.as_str());
    let needed = [socket, file("certificate_file"), file("private_key_file"), file("ca_certificate_file")];
    let missing = needed.into_iter().flatten().find(|path| !Path::new(path).exists())?;
    Some(format!("{missing} is not there yet, and the gRPC bootstrap names it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxyless_application_is_ready_once_it_has_all_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let missing = || grpc_is_missing(&path("bootstrap.json")).unwrap_or_default();
        assert!(missing().contains("No such file"), "{}", missing());
        fs::write(path("bootstrap.json"), "{").unwrap();
        assert!(missing().contains("EOF"), "{}", missing());
        let text = |name: &str| path(name).display().to_string();
        let bootstrap = serde_json::json!({
            "xds_servers": [{"server_uri": format!("unix://{}", text("XDS"))}],
            "certificate_providers": {"default": {"config": {
                "certificate_file": text("cert-chain.pem"),
                "private_key_file": text("key.pem"),
                "ca_certificate_file": text("root-cert.pem"),
            }}},
        });
        fs::write(path("bootstrap.json"), bootstrap.to_string()).unwrap();
        for name in ["XDS", "cert-chain.pem", "key.pem", "root-cert.pem"] {
            assert!(missing().contains(name), "{}", missing());
            fs::write(path(name), "").unwrap();
        }
        assert_eq!(missing(), "");
    }

    #[test]
    fn reason_says_what_is_missing() {
        let judge = |text: &str| judge_configuration(&numbers(text)).err().unwrap_or_default();
        assert!(
            judge("").starts_with("config not received from XDS server (is Istiod running?): cds updates: 0")
        );
        let clusters = "cluster_manager.cds.update_success: 2\n";
        assert!(judge(clusters).starts_with("config not fully received"));
        let rejected = format!("{clusters}listener_manager.lds.update_rejected: 1\n");
        assert!(judge(&rejected).starts_with("config received from XDS server, but was rejected"));
        let both = format!("{clusters}listener_manager.lds.update_success: 1\n");
        assert_eq!(judge(&both), "");
    }

    #[test]
    fn proxy_is_live_when_its_state_and_its_workers_say_so() {
        let judge = |text: &str| judge_state(&numbers(text)).err().unwrap_or_default();
        assert_eq!(judge("server.state: 0\nlistener_manager.workers_started: 1\n"), "");
        assert_eq!(
            judge("server.state: 0\nlistener_manager.workers_started: 0\n"),
            "workers have not yet started"
        );
        assert!(judge("server.state: 3\nlistener_manager.workers_started: 0\n").ends_with("INITIALIZING"));
        assert!(judge("").contains("server.state is not yet updated"));
    }
}
