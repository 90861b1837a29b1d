//! Our tables against what was recorded from Istio, where the conformance corpus is at hand.

#![allow(clippy::disallowed_methods, reason = "the corpus is found by an environment variable")]
#![allow(clippy::print_stdout, reason = "a skipped check says so")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use canopus_base::duration::Duration;
use canopus_base::yaml;
use canopus_runtime::flags::{Area, Kind, Spec};
use canopus_runtime::metrics::{self, catalogue};
use serde_json::Value;

/// The corpus: `CANOPUS_CORPUS`, or beside the repository.
fn corpus() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let root = std::env::var_os("CANOPUS_CORPUS").map_or(beside, PathBuf::from);
    if !root.is_dir() {
        println!("skipped: no conformance corpus at {}", root.display());
        return None;
    }
    Some(root)
}

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let document = yaml::parse_one(text, &yaml::Limits::default());
    document.unwrap_or_else(|error| panic!("{}: {error}", path.display())).to_json()
}

/// What the names of flags begin with that Istio does not have.
const OWN: &str = "CANOPUS_";

fn all_flags() -> BTreeMap<&'static str, &'static Spec> {
    Area::ALL.into_iter().flat_map(Area::specs).map(|spec| (spec.name, spec)).collect()
}

/// The type and default of a recorded flag fit the row of our table.
fn same_default(recorded: &Value, kind: Kind, ours: &str) -> bool {
    match (recorded, kind) {
        (Value::Bool(default), Kind::Bool) => default.to_string() == ours,
        (Value::Number(default), Kind::Int) => {
            default.as_i64().is_some_and(|number| number.to_string() == ours)
        }
        (Value::Number(default), Kind::Float) => default.as_f64() == ours.parse().ok(),
        (Value::String(default), Kind::Text | Kind::List | Kind::Choice) => default == ours,
        (Value::String(default), Kind::Duration) => default.parse::<Duration>() == ours.parse(),
        _ => false,
    }
}

#[test]
fn flags_are_those_of_istio() {
    let Some(corpus) = corpus() else { return };
    let recorded = read(&corpus.join("schema/environment-variables.yaml"));
    let recorded = recorded["variables"].as_object().expect("variables are a map");
    let mut ours = all_flags();
    ours.retain(|name, _| !name.starts_with(OWN));
    assert_eq!(ours.keys().copied().collect::<Vec<_>>(), recorded.keys().collect::<Vec<_>>());

    // Defaults that Istio's source computes; read from the constants they are computed of.
    let computed = BTreeMap::from([
        ("CITADEL_SELF_SIGNED_CA_CERT_TTL", "87600h"),
        ("CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", "1h"),
        ("DEFAULT_WORKLOAD_CERT_TTL", "24h"),
        ("GRPC_XDS_BOOTSTRAP", "./etc/istio/proxy/grpc-bootstrap.json"),
        ("MAX_WORKLOAD_CERT_TTL", "2160h"),
    ]);
    for (name, facts) in recorded {
        let spec = ours[name.as_str()];
        let (default, kind) = (&facts["default"], spec.kind);
        let same = match computed.get(name.as_str()) {
            Some(value) => default == "(computed)" && *value == spec.default,
            None => same_default(default, kind, spec.default),
        };
        assert!(same, "{name}: {default} is not {} {:?}", kind.as_str(), spec.default);
        let Some(requires) = facts.get("requires") else { continue };
        let gate = spec.gate.unwrap_or_else(|| panic!("{name} depends on a flag"));
        assert_eq!(requires.as_str(), Some(format!("{}=true", gate.flag).as_str()), "{name}");
        assert!(same_default(&facts["defaultWithAmbient"], spec.kind, gate.default), "{name}");
    }
}

/// A number, or a text of one.
fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().expect("bounds are numbers"),
        other => other.as_f64().expect("bounds are numbers"),
    }
}

#[test]
fn metrics_are_those_of_istio() {
    let Some(corpus) = corpus() else { return };
    let recorded = read(&corpus.join("live-metrics/schema.yaml"));
    assert_eq!(recorded["contentType"].as_str(), Some(metrics::CONTENT_TYPE));
    let recorded = recorded["metrics"].as_object().expect("metrics are a map");
    let ours: BTreeMap<_, _> =
        catalogue::describe().into_iter().map(|metric| (metric.name, metric)).collect();

    for (name, facts) in recorded.iter().filter(|(name, _)| !name.starts_with('_')) {
        let metric = ours.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not declared"));
        assert_eq!(facts["type"].as_str(), Some(metric.kind.as_str()), "{name}");
        let labels: Vec<_> =
            facts["labels"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(labels, metric.labels, "{name}");
        let bounds = facts["buckets"].as_array().into_iter().flatten().map(number);
        let finite: Vec<f64> = bounds.filter(|bound| bound.is_finite()).collect();
        assert_eq!(finite, metric.buckets, "{name}");
    }
    let collectors = recorded["_goAndProcessCollectors"].as_array().expect("a list of names");
    for name in collectors.iter().filter_map(Value::as_str).filter(|name| name.starts_with("process_")) {
        assert!(ours.contains_key(name), "{name} is not declared");
    }
}
