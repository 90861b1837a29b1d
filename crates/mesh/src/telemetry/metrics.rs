//! Metrics: the effective providers, and how their metrics differ from the standard ones.

use std::collections::{BTreeMap, BTreeSet};

use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::telemetry::v1alpha1::metric_selector::{IstioMetric, MetricMatch};
use canopus_proto::istio::telemetry::v1alpha1::metrics_overrides::tag_override::Operation;
use canopus_proto::istio::telemetry::v1alpha1::{MetricSelector, Metrics, MetricsOverrides, WorkloadMode};

use super::{Side, names};

/// The standard metrics, in the order of their names.
const ALL: [IstioMetric; 10] = [
    IstioMetric::GrpcRequestMessages,
    IstioMetric::GrpcResponseMessages,
    IstioMetric::RequestCount,
    IstioMetric::RequestDuration,
    IstioMetric::RequestSize,
    IstioMetric::ResponseSize,
    IstioMetric::TcpClosedConnections,
    IstioMetric::TcpOpenedConnections,
    IstioMetric::TcpReceivedBytes,
    IstioMetric::TcpSentBytes,
];

/// The metrics settings of a provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedMetrics {
    /// The overrides by side and by the API name of the metric.
    sides: BTreeMap<Side, BTreeMap<String, Override>>,
    /// The sides without any metrics.
    silent: BTreeSet<Side>,
    /// The reporting interval of open connections.
    pub interval: Option<Duration>,
}

impl ReportedMetrics {
    /// The overrides of one side; `None` if the side has no metrics.
    pub fn overrides(&self, side: Side) -> Option<Vec<(&str, &Override)>> {
        let overrides = self.sides.get(&side).into_iter().flatten();
        (!self.silent.contains(&side)).then(|| overrides.map(|(name, one)| (name.as_str(), one)).collect())
    }

    fn apply(&mut self, written: &MetricsOverrides) {
        let selector = written.r#match.as_ref();
        let disabled = written.disabled.map(|disabled| disabled.value);
        let disables_all = is_all(selector) && disabled == Some(true);
        for side in sides(selector) {
            if disables_all {
                self.silent.insert(side);
                continue;
            }
            self.silent.remove(&side);
            let overrides = self.sides.entry(side).or_default();
            for metric in metrics(selector) {
                let one = overrides.entry(metric).or_default();
                one.disabled = disabled.unwrap_or(one.disabled);
                for (tag, change) in &written.tag_overrides {
                    let value = (change.operation() == Operation::Upsert).then(|| change.value.clone());
                    one.tags.insert(tag.clone(), value);
                }
            }
        }
    }
}

/// How a metric differs from the standard one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// Whether the metric is disabled.
    pub disabled: bool,
    /// The changed tags: an expression, or `None` if the tag is removed.
    pub tags: BTreeMap<String, Option<String>>,
}

/// Merges metrics settings, starting from the mesh's default providers.
pub fn merge(written: &[Metrics], defaults: &[String]) -> BTreeMap<String, ReportedMetrics> {
    if written.is_empty() {
        return defaults.iter().map(|name| (name.clone(), ReportedMetrics::default())).collect();
    }
    let last = written.iter().rev().find(|metrics| !metrics.providers.is_empty());
    let in_scope = last.map_or_else(|| defaults.to_vec(), |metrics| names(&metrics.providers));
    let mut merged: BTreeMap<String, ReportedMetrics> = BTreeMap::new();
    let mut inherited = defaults.to_vec();
    for metrics in written {
        if !metrics.providers.is_empty() {
            inherited = names(&metrics.providers);
        }
        for name in inherited.iter().filter(|name| in_scope.contains(name)) {
            let reported = merged.entry(name.clone()).or_default();
            reported.interval = metrics.reporting_interval.or(reported.interval);
            for written in &metrics.overrides {
                reported.apply(written);
            }
        }
    }
    merged
}

fn sides(selector: Option<&MetricSelector>) -> Vec<Side> {
    match selector.map_or(WorkloadMode::ClientAndServer, MetricSelector::mode) {
        WorkloadMode::ClientAndServer => vec![Side::Client, Side::Server],
        WorkloadMode::Client => vec![Side::Client],
        WorkloadMode::Server => vec![Side::Server],
    }
}

fn is_all(selector: Option<&MetricSelector>) -> bool {
    match selector.and_then(|selector| selector.metric_match.as_ref()) {
        Some(MetricMatch::CustomMetric(_)) => false,
        Some(MetricMatch::Metric(metric)) => *metric == IstioMetric::AllMetrics as i32,
        None => true,
    }
}

fn metrics(selector: Option<&MetricSelector>) -> Vec<String> {
    if is_all(selector) {
        return ALL.iter().map(|metric| metric.as_str_name().to_owned()).collect();
    }
    match selector.and_then(|selector| selector.metric_match.as_ref()) {
        Some(MetricMatch::CustomMetric(name)) => vec![name.clone()],
        Some(MetricMatch::Metric(metric)) => {
            IstioMetric::try_from(*metric).iter().map(|metric| metric.as_str_name().to_owned()).collect()
        }
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::istio::telemetry::v1alpha1::ProviderRef;
    use canopus_proto::istio::telemetry::v1alpha1::metrics_overrides::TagOverride;

    use super::*;

    fn defaults() -> Vec<String> {
        vec!["prometheus".into()]
    }

    fn written(overrides: Vec<MetricsOverrides>) -> Metrics {
        Metrics { overrides, ..Default::default() }
    }

    fn silence(mode: WorkloadMode) -> MetricsOverrides {
        let selector = MetricSelector { mode: mode as i32, ..Default::default() };
        MetricsOverrides { r#match: Some(selector), disabled: Some(true.into()), ..Default::default() }
    }

    fn without_tag(tag: &str) -> MetricsOverrides {
        let removed = TagOverride { operation: Operation::Remove as i32, ..Default::default() };
        MetricsOverrides { tag_overrides: [(tag.to_owned(), removed)].into(), ..Default::default() }
    }

    #[test]
    fn default_providers_get_the_standard_when_nobody_says_otherwise() {
        let merged = merge(&[], &defaults());
        assert_eq!(merged["prometheus"].overrides(Side::Client), Some(Vec::new()));
    }

    #[test]
    fn one_side_is_silent_when_all_its_metrics_are_disabled() {
        let merged = merge(&[written(vec![silence(WorkloadMode::Server)])], &defaults());
        assert_eq!(merged["prometheus"].overrides(Side::Server), None);
        assert_eq!(merged["prometheus"].overrides(Side::Client), Some(Vec::new()));
    }

    #[test]
    fn a_narrower_object_takes_silence_back_when_it_says_anything_about_the_side() {
        let wide = written(vec![silence(WorkloadMode::ClientAndServer)]);
        let merged = merge(&[wide, written(vec![without_tag("host")])], &defaults());
        let overrides = merged["prometheus"].overrides(Side::Server).unwrap();
        assert_eq!(overrides.len(), ALL.len());
        assert!(overrides.iter().all(|(_, one)| one.tags["host"].is_none() && !one.disabled));
    }

    #[test]
    fn only_the_providers_of_the_narrowest_object_are_used() {
        let of =
            |name: &str| Metrics { providers: vec![ProviderRef { name: name.into() }], ..Default::default() };
        let merged = merge(&[of("a"), of("b")], &defaults());
        assert_eq!(merged.keys().collect::<Vec<_>>(), ["b"]);
    }
}
