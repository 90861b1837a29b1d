//! Whether clients are still connected to a draining Envoy.

use std::time::Duration;

use tracing::{info, warn};

use super::Admin;

const INTERVAL: Duration = Duration::from_secs(1);
const MOST_FAILURES: u32 = 5;

/// Waits until no client is connected, or until Envoy no longer tells.
pub(super) async fn wait_for_connections(admin: &Admin, own_listeners: &[String]) {
    let mut failures = 0;
    loop {
        tokio::time::sleep(INTERVAL).await;
        match admin.get("/stats?usedonly&filter=downstream_cx_active$").await {
            Ok(stats) if stats.is_empty() => return info!("Envoy counts no connections; waiting ends"),
            Ok(stats) => {
                failures = 0;
                match active_connections(&stats, own_listeners) {
                    0 => return info!("there are no more connections"),
                    count => info!("there are still {count} connections"),
                }
            }
            Err(error) => {
                failures += 1;
                warn!("connections cannot be counted ({failures} of {MOST_FAILURES} times): {error}");
                if failures == MOST_FAILURES {
                    return;
                }
            }
        }
    }
}

/// The connections of clients, without those of the proxy to itself.
fn active_connections(stats: &str, own_listeners: &[String]) -> u64 {
    let counted = |name: &str| {
        name.starts_with("listener.")
            && !name.contains("worker_")
            && !name.starts_with("listener.envoy_internal_")
            && !own_listeners.iter().any(|own| name == own)
    };
    let lines = stats.lines().filter_map(|line| line.rsplit_once(':'));
    lines.filter(|(name, _)| counted(name)).filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

/// The statistics of the listeners every proxy has of its own.
pub fn own_listeners(status_port: u16, prometheus_port: u16, admin_port: u16) -> Vec<String> {
    let hosts = ["0.0.0.0", "[__]", "127.0.0.1", "[__1]"];
    let ports = [status_port, prometheus_port, admin_port];
    let of = |host: &str, port: u16| format!("listener.{host}_{port}.downstream_cx_active");
    let mut listeners: Vec<String> = hosts.iter().flat_map(|host| ports.map(|port| of(host, port))).collect();
    listeners.push("listener.admin.downstream_cx_active".to_owned());
    listeners.push("listener.admin.main_thread.downstream_cx_active".to_owned());
    listeners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_the_proxy_to_itself_do_not_count() {
        let stats = "http.outbound.downstream_cx_active: 9\n\
             listener.0.0.0.0_15006.downstream_cx_active: 2\n\
             listener.0.0.0.0_15006.worker_0.downstream_cx_active: 2\n\
             listener.0.0.0.0_15021.downstream_cx_active: 1\n\
             listener.admin.downstream_cx_active: 1\n\
             listener.envoy_internal_connect_originate.downstream_cx_active: 4\n\
             listener.[__]_8080.downstream_cx_active: 3\n\
             garbage\n";
        assert_eq!(active_connections(stats, &own_listeners(15021, 15090, 15000)), 5);
    }
}
