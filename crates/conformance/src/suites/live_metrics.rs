//! What a running control plane counted.
//!
//! The recorded actions are played once, in order, to the control plane of [`live`](super::live); what each changed is then
//! held against the recording. Names, kinds and labels have to be the same. So have the numbers, but for those of pushes:
//! ours go only to clients for which something changed, and only with that, so they may be smaller and never larger.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anyhow::{Context, anyhow};
use canopus_base::tree::{Node, Value};
use canopus_runtime::metrics::catalogue;

use super::live::{Action, Script, World};
use super::{NO_ADAPTER, Suite};
use crate::case::{Case, Outcome};
use crate::compare::{ABSENT, Difference};
use crate::corpus::Corpus;
use crate::dump::Dump;
use crate::record;

/// Counts of pushes, which may be smaller than recorded, and what clients make of them.
const OF_PUSHES: &[&str] = &[
    "pilot_debounce_time",
    "pilot_inbound_updates",
    "pilot_proxy_convergence_time",
    "pilot_proxy_queue_time",
    "pilot_push_triggers",
    "pilot_pushcontext_init_seconds",
    "pilot_sds_certificate_errors_total",
    "pilot_total_xds_rejects",
    "pilot_xds_config_size_bytes",
    "pilot_xds_push_time",
    "pilot_xds_pushes",
    "pilot_xds_send_time",
];

/// The size of requests is known where there is a wire, and sizes are not compared anyway. When certificates expire is masked in
/// the recordings, and the seconds until then change whatever is done. How long calls took was left out of the recordings.
const NOT_COMPARED: &[&str] = &[
    "citadel_server_cert_chain_expiry_",
    "citadel_server_root_cert_expiry_",
    "grpc_server_handling_seconds",
    "pilot_xds_recv_max",
];

/// Gauges that Istio sets while it generates, so that they say what the last push happened to look at.
const OF_THE_LAST_PUSH: &[&str] = &[
    "endpoint_no_pod",
    "pilot_dns_cluster_without_endpoints",
    "pilot_eds_no_instances",
    "pilot_endpoint_not_ready",
];

/// The suite, with what the actions changed.
#[derive(Default)]
pub(super) struct LiveMetrics {
    played: OnceLock<Result<Script, String>>,
}

impl Suite for LiveMetrics {
    fn name(&self) -> &str {
        "live-metrics"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        let name = case.file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name == "schema" {
            return schema(case).into();
        }
        if name != "start" && Action::parse(&name).is_none() {
            return Outcome::Skipped(NO_ADAPTER);
        }
        self.compare(case, &name).into()
    }
}

impl LiveMetrics {
    fn compare(&self, case: &Case, name: &str) -> anyhow::Result<Vec<Difference>> {
        let recorded = record::read(&case.corpus, &case.path(&case.file))?;
        let play = |corpus: &Corpus| -> anyhow::Result<Script> { Script::play(&World::read(corpus)?) };
        let played = self.played.get_or_init(|| play(&case.corpus).map_err(|error| format!("{error:#}")));
        let played = played.as_ref().map_err(|error| anyhow!("{error}"))?;
        if name == "start" {
            let expected = recorded.get("series").context("no series")?;
            return Ok(values(expected, &played.start));
        }
        let expected = recorded.get("changed").and_then(Node::as_list).context("nothing changed")?;
        let (before, after) = played.around(name).context("the action was not played")?;
        Ok(changes(expected, before, after))
    }
}

/// The name of the metric a series belongs to.
fn family(series: &str) -> &str {
    let name = series.split('{').next().unwrap_or(series);
    name.strip_suffix("_count").unwrap_or(name)
}

fn is_one_of(series: &str, names: &[&str]) -> bool {
    names.iter().any(|name| family(series).starts_with(name))
}

/// Every recorded metric is declared, with the same kind and labels.
fn schema(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let recorded = record::read(&case.corpus, &case.path(&case.file))?;
    let declared: BTreeMap<_, _> = catalogue::describe().into_iter().map(|one| (one.name, one)).collect();
    let Some(Value::Map(metrics)) = recorded.get("metrics").map(|node| &node.value) else {
        return Err(anyhow!("no metrics"));
    };
    let mut found = Vec::new();
    for entry in metrics.iter().filter(|entry| !entry.key.starts_with('_')) {
        let Some(ours) = declared.get(&*entry.key) else {
            found.push(Difference::new(format!("/{}", entry.key), "the metric", ABSENT));
            continue;
        };
        let labels = entry.node.get("labels").and_then(Node::as_list).unwrap_or_default();
        let labels: Vec<&str> = labels.iter().filter_map(Node::as_str).collect();
        let expected = (entry.node.get("type").and_then(Node::as_str).unwrap_or_default(), labels);
        let got = (ours.kind.as_str(), ours.labels.to_vec());
        if expected != got {
            found.push(Difference::new(
                format!("/{}", entry.key),
                format!("{expected:?}"),
                format!("{got:?}"),
            ));
        }
    }
    Ok(found)
}

type Series = BTreeMap<String, f64>;

/// Where values differ from the recorded ones. Builds are told apart by their labels.
fn values(expected: &Node, got: &Series) -> Vec<Difference> {
    let Value::Map(expected) = &expected.value else { return Vec::new() };
    let mut found = Vec::new();
    for entry in expected {
        let series = &*entry.key;
        let is_build = is_one_of(series, &["istio_build", "pilot_info"]);
        let wanted = entry.node.as_f64();
        let value = if is_build {
            got.iter().find(|(name, _)| family(name) == family(series)).map(|(_, value)| *value)
        } else {
            got.get(series).copied()
        };
        let fits = match (wanted, value) {
            (Some(wanted), Some(value)) if is_one_of(series, OF_PUSHES) => value <= wanted,
            (wanted, value) => wanted == value,
        };
        if !fits && !is_one_of(series, NOT_COMPARED) {
            found.push(Difference::new(format!("/{series}"), format!("{wanted:?}"), format!("{value:?}")));
        }
    }
    found
}

/// Where what an action changed differs from what was recorded.
fn changes(expected: &[Node], before: &Series, after: &Series) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut known = Vec::new();
    for entry in expected {
        let series = entry.get("series").and_then(Node::as_str).unwrap_or_default();
        known.push(family(series));
        if is_one_of(series, NOT_COMPARED) || is_one_of(series, OF_THE_LAST_PUSH) {
            continue;
        }
        let delta = after.get(series).map(|now| now - before.get(series).copied().unwrap_or_default());
        let fits = match entry.get("delta").and_then(Node::as_f64) {
            // A size: that something was counted is all there is to know.
            None => true,
            Some(wanted) if is_one_of(series, OF_PUSHES) => delta.unwrap_or_default() <= wanted,
            Some(wanted) => delta == Some(wanted),
        };
        if !fits {
            let wanted = entry.get("delta").map(|node| node.to_json().to_string()).unwrap_or_default();
            found.push(Difference::new(format!("/{series}"), wanted, format!("{delta:?}")));
        }
    }
    for (series, now) in after {
        let changed = before.get(series) != Some(now);
        let ours = series.starts_with("canopus_");
        let compared = !is_one_of(series, OF_THE_LAST_PUSH) && !is_one_of(series, NOT_COMPARED);
        if changed && !ours && compared && !known.contains(&family(series)) {
            found.push(Difference::new(format!("/{series}"), ABSENT, format!("{now}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn series(pairs: &[(&str, f64)]) -> Series {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn connections_are_compared_exactly_and_pushes_may_be_fewer() {
        let expected: Node = json!([
            {"series": "pilot_xds{version=\"1\"}", "delta": 1.0},
            {"series": "pilot_xds_pushes{type=\"cds\"}", "delta": 3.0},
        ])
        .into();
        let expected = expected.as_list().unwrap();
        let before = series(&[]);
        let one = [("pilot_xds{version=\"1\"}", 1.0)];
        assert!(changes(expected, &before, &series(&one)).is_empty());
        let more = [one[0], ("pilot_xds_pushes{type=\"cds\"}", 4.0)];
        assert_eq!(changes(expected, &before, &series(&more)).len(), 1);
        assert_eq!(changes(expected, &before, &series(&[])).len(), 1);
    }

    #[test]
    fn what_nobody_recorded_is_a_difference() {
        let got = changes(&[], &series(&[]), &series(&[("pilot_services", 1.0), ("canopus_x", 1.0)]));
        assert_eq!(got, [Difference::new("/pilot_services", ABSENT, "1")]);
    }
}
