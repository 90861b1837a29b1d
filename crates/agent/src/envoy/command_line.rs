//! The arguments Envoy is started with.

use std::net::IpAddr;

use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use tracing::warn;

/// What the arguments are made from beside the proxy configuration.
#[derive(Clone, Debug, Default)]
pub struct LaunchSettings {
    /// The bootstrap file.
    pub bootstrap: String,
    /// The JSON of an override.
    pub overrides: Option<String>,
    /// The addresses of the proxy.
    pub addresses: Vec<String>,
    /// `--proxyLogLevel`.
    pub log_level: String,
    /// `--proxyComponentLogLevel`.
    pub component_log_level: String,
    /// `ENVOY_SKIP_DEPRECATED_LOGS`.
    pub skip_deprecated_logs: bool,
    /// `ISTIO_ENVOY_ENABLE_CORE_DUMP`.
    pub core_dump: bool,
}

/// The arguments, in the order pilot-agent gives them.
pub fn arguments(config: &ProxyConfig, settings: &LaunchSettings) -> Vec<String> {
    let seconds = config.drain_duration.as_ref().map_or(0, |duration| duration.seconds);
    let is_v6 = |address: &String| address.parse().is_ok_and(|address: IpAddr| address.is_ipv6());
    let all_v6 = !settings.addresses.is_empty() && settings.addresses.iter().all(is_v6);
    let flush = config.file_flush_interval.as_ref().map_or(1000, |duration| {
        duration.seconds.saturating_mul(1000).saturating_add(i64::from(duration.nanos / 1_000_000))
    });
    let mut arguments: Vec<String> = Vec::new();
    let mut push = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    push("-c", settings.bootstrap.clone());
    push("--drain-time-s", seconds.to_string());
    push("--drain-strategy", "immediate".into());
    push("--local-address-ip-version", if all_v6 { "v6" } else { "v4" }.into());
    push("--file-flush-interval-msec", flush.to_string());
    arguments.extend(["--disable-hot-restart".to_owned(), "--allow-unknown-static-fields".to_owned()]);
    if config.file_flush_min_size_kb > 0 {
        arguments.extend(["--file-flush-min-size-kb".to_owned(), config.file_flush_min_size_kb.to_string()]);
    }
    arguments.extend(log_arguments(settings));
    if let Some(overrides) = &settings.overrides {
        arguments.extend(["--config-yaml".to_owned(), overrides.clone()]);
    }
    if let Some(threads) = config.concurrency.as_ref().filter(|threads| threads.value > 0) {
        arguments.extend(["--concurrency".to_owned(), threads.value.to_string()]);
    }
    arguments
}

fn log_arguments(settings: &LaunchSettings) -> Vec<String> {
    let (mut level, mut components) = (String::new(), Vec::new());
    for part in settings.log_level.split(',') {
        match part.split(':').count() {
            1 => part.clone_into(&mut level),
            2 => components.push(part.to_owned()),
            _ => warn!("--proxyLogLevel: {part:?} is ignored; expected LEVEL or SCOPE:LEVEL"),
        }
    }
    let components = components.join(",");
    let components = if components.is_empty() { settings.component_log_level.clone() } else { components };
    let mut arguments = Vec::new();
    if !level.is_empty() {
        arguments.extend(["-l".to_owned(), level]);
    }
    if !components.is_empty() {
        arguments.extend(["--component-log-level".to_owned(), components]);
    }
    if settings.skip_deprecated_logs {
        arguments.push("--skip-deprecated-logs".to_owned());
    }
    if settings.core_dump {
        arguments.push("--enable-core-dump".to_owned());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_config::{EffectiveConfig, Layers};

    #[test]
    fn arguments_are_those_of_pilot_agent() {
        let layers = Layers { environment: "{concurrency: 2, fileFlushInterval: 1.5s}", ..Layers::default() };
        let config = EffectiveConfig::resolve(&layers).unwrap().message;
        let settings = LaunchSettings {
            bootstrap: "b.json".into(),
            log_level: "warning,misc:error,a:b:c".into(),
            addresses: vec!["::1".into()],
            skip_deprecated_logs: true,
            ..LaunchSettings::default()
        };
        let expected = "-c b.json --drain-time-s 45 --drain-strategy immediate --local-address-ip-version v6 \
            --file-flush-interval-msec 1500 --disable-hot-restart --allow-unknown-static-fields -l warning \
            --component-log-level misc:error --skip-deprecated-logs --concurrency 2";
        assert_eq!(arguments(&config, &settings).join(" "), expected);
    }
}
