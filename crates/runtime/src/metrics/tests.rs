use super::catalogue::*;
use super::*;
use crate::version::BuildInfo;

#[test]
fn exports_nothing_that_never_had_a_value() {
    let registry = Registry::new();
    let _services = registry.value(PILOT_SERVICES);
    let _pushes = registry.family(PILOT_XDS_PUSHES).with(["cds"]);
    let _time = registry.value(PILOT_DEBOUNCE_TIME);
    assert_eq!(registry.encode(), "");
}

#[test]
fn exports_in_the_text_format_sorted_by_name_and_labels() {
    let registry = Registry::new();
    let pushes = registry.family(PILOT_XDS_PUSHES);
    pushes.with(["lds"]).inc();
    pushes.with(["cds"]).inc_by(2_000_000);
    registry.value(PILOT_SERVICES).set_count(10);
    let expected = r#"# HELP pilot_services Services in the model.
# TYPE pilot_services gauge
pilot_services 10
# HELP pilot_xds_pushes Responses sent to proxies, and failures to build or send one, by type.
# TYPE pilot_xds_pushes counter
pilot_xds_pushes{type="cds"} 2e+06
pilot_xds_pushes{type="lds"} 1
"#;
    assert_eq!(registry.encode(), expected);
}

#[test]
fn exports_histograms_with_accumulated_buckets() {
    let registry = Registry::new();
    let sizes = registry.family(PILOT_XDS_CONFIG_SIZE_BYTES).with(["t"]);
    for size in [1.0, 20_000.0, 50_000_000.0] {
        sizes.observe(size);
    }
    let expected = r#"# HELP pilot_xds_config_size_bytes Bytes of configuration in one response, by type URL.
# TYPE pilot_xds_config_size_bytes histogram
pilot_xds_config_size_bytes_bucket{type="t",le="1"} 1
pilot_xds_config_size_bytes_bucket{type="t",le="10000"} 1
pilot_xds_config_size_bytes_bucket{type="t",le="1e+06"} 2
pilot_xds_config_size_bytes_bucket{type="t",le="4e+06"} 2
pilot_xds_config_size_bytes_bucket{type="t",le="1e+07"} 2
pilot_xds_config_size_bytes_bucket{type="t",le="4e+07"} 2
pilot_xds_config_size_bytes_bucket{type="t",le="+Inf"} 3
pilot_xds_config_size_bytes_sum{type="t"} 5.0020001e+07
pilot_xds_config_size_bytes_count{type="t"} 3
"#;
    assert_eq!(registry.encode(), expected);
}

#[test]
fn escapes_label_values() {
    let registry = Registry::new();
    registry.family(PILOT_XDS).with(["a\"b\\c\nd"]).set(1.0);
    assert!(registry.encode().ends_with("pilot_xds{version=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

#[test]
fn asking_twice_gives_the_same_values() {
    let registry = Registry::new();
    registry.value(PILOT_XDS_WRITE_TIMEOUT).inc();
    registry.clone().value(PILOT_XDS_WRITE_TIMEOUT).inc();
    assert!(registry.encode().ends_with("pilot_xds_write_timeout 2\n"));
}

#[test]
fn prefix_comes_before_every_name() {
    let registry = Registry::with_prefix("istio_agent_");
    registry.value(SCRAPES_TOTAL).inc();
    assert!(
        registry
            .encode()
            .ends_with("# TYPE istio_agent_scrapes_total counter\nistio_agent_scrapes_total 1\n")
    );
}

#[test]
fn collected_values_join_those_that_were_set() {
    let registry = Registry::new();
    registry.family(CERT_EXPIRY_SECONDS).with(["b"]).set(2.0);
    registry.collect(|collected| {
        collected.push(CERT_EXPIRY_SECONDS, ["c"], 3.0);
        collected.push(CERT_EXPIRY_SECONDS, ["a"], 1.0);
    });
    let text = registry.encode();
    let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        samples,
        [
            "cert_expiry_seconds{resource_name=\"a\"} 1",
            "cert_expiry_seconds{resource_name=\"b\"} 2",
            "cert_expiry_seconds{resource_name=\"c\"} 3",
        ]
    );
}

#[test]
#[cfg(target_os = "linux")]
fn tells_about_the_process() {
    let registry = Registry::new();
    register_process(&registry);
    register_uptime(&registry);
    register_build(&registry, "pilot", &BuildInfo::current());
    let text = registry.encode();
    let value = |name: &str| -> f64 {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    assert!(value("process_resident_memory_bytes ") > 100_000.0);
    assert!(value("process_virtual_memory_bytes ") >= value("process_resident_memory_bytes "));
    assert!(value("process_open_fds ") > 0.0);
    assert!(value("process_max_fds ") >= value("process_open_fds "));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - value("process_start_time_seconds ");
    assert!((-2.0..3600.0).contains(&age), "{age}");
    assert!(value("process_cpu_seconds_total ") >= 0.0);
    assert!(value("istiod_uptime_seconds ") >= 0.0);
    assert_eq!(value("istio_build{component=\"pilot\",tag="), 1.0);
}

#[test]
fn catalogue_is_consistent() {
    let all = describe();
    for pair in all.windows(2) {
        assert!(pair[0].name < pair[1].name, "{} is declared twice", pair[1].name);
    }
    for metric in &all {
        assert!(metric.labels.is_sorted(), "{}: labels are exported sorted", metric.name);
        assert!(metric.buckets.is_sorted(), "{}: buckets ascend", metric.name);
        assert_eq!(metric.kind == Kind::Histogram, !metric.buckets.is_empty(), "{}", metric.name);
        assert!(
            metric.help.ends_with('.') && !metric.help.starts_with(' '),
            "{}: {}",
            metric.name,
            metric.help
        );
    }
}

/// Metrics of the agent and of the CNI plugin are not the control plane's.
#[test]
fn documentation_names_every_metric_of_the_control_plane() {
    let page = include_str!("../../../../docs/metrics.md");
    let elsewhere = ["istio_cni_", "nodeagent_", "ztunnel_"];
    let agent: Vec<_> = agent_metrics().iter().map(|metric| metric.name).collect();
    for metric in describe() {
        let ours =
            !agent.contains(&metric.name) && !elsewhere.iter().any(|prefix| metric.name.starts_with(prefix));
        assert!(!ours || page.contains(&format!("| `{}` |", metric.name)), "{}", metric.name);
    }
}
