//! `canopus test`: requests with expected destinations, checked against files. Unit tests for a mesh.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_envoy::simulate::{Config, End, Journey};
use serde_json::{Value, json};

use crate::exit;
use crate::explain::request::Request;
use crate::files::FileArguments;
use crate::format::Output;
use crate::global::Global;
use crate::offline::{OfflineMesh, routing};
use crate::output::{print, say};
use crate::proxy_config::cluster::ClusterKey;

/// Check where requests would go, against the objects in files.
///
/// A test names a pod of the files, a request, and what is expected of it:
///
///   tests:
///   - name: testers get v2
///     from: productpage-v1-7c4.bookinfo
///     request: GET http://reviews:9080/x
///     headers: {end-user: jason}
///     expect: {host: reviews.bookinfo.svc.cluster.local, subset: v2}
///
/// Expected can be `host`, `subset`, `port` and `cluster` of the destination (of several by weight, one has to fit), `status` of
/// an answer by the proxy itself, `redirect: true`, or `fails: true`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus test -f mesh/ tests.yaml
  canopus test -f mesh/ -o json tests.yaml

Exit codes: 0 all tests pass, 1 one fails or cannot be run, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// Files of tests.
    #[arg(required = true, value_name = "TESTS")]
    tests: Vec<PathBuf>,
    #[command(flatten)]
    files: FileArguments,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// A test and what became of it.
struct Outcome {
    name: String,
    /// What is not as expected; empty if the test passes.
    failures: Vec<String>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> ExitCode {
    match run_all(global, arguments) {
        Ok(outcomes) => {
            let passes = outcomes.iter().all(|outcome| outcome.failures.is_empty());
            let code = if passes { ExitCode::SUCCESS } else { exit::FAILURE };
            print(&arguments.output.render(&json(&outcomes), |_| text(&outcomes)), code)
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn run_all(global: &Global, arguments: &Arguments) -> anyhow::Result<Vec<Outcome>> {
    let mesh = OfflineMesh::read(global, &arguments.files)?;
    if let [first, ..] = mesh.problems() {
        bail!("{first}");
    }
    let mut configs: BTreeMap<String, Config> = BTreeMap::new();
    let mut outcomes = Vec::new();
    for file in &arguments.tests {
        let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let document =
            yaml::parse_one(&text, &Limits::default()).with_context(|| file.display().to_string())?;
        let tests = document.get("tests").and_then(Node::as_list);
        let tests = tests.with_context(|| format!("{}: no list of tests", file.display()))?;
        for (index, test) in tests.iter().enumerate() {
            let place = || format!("{}:{}: test {index}", file.display(), test.at.line);
            let from = word(test, "from").with_context(place)?;
            if !configs.contains_key(from) {
                configs.insert(from.to_owned(), routing(&mesh.bundle(global, from).with_context(place)?)?);
            }
            outcomes.push(check(test, &configs[from]).with_context(place)?);
        }
    }
    if outcomes.is_empty() {
        bail!("there are no tests in the files");
    }
    Ok(outcomes)
}

fn word<'a>(test: &'a Node, key: &str) -> anyhow::Result<&'a str> {
    test.get(key).and_then(Node::as_str).with_context(|| format!("{key} is missing"))
}

fn check(test: &Node, config: &Config) -> anyhow::Result<Outcome> {
    let request = word(test, "request")?;
    let (method, url) =
        request.split_once(' ').with_context(|| format!("request {request:?}: expected METHOD URL"))?;
    let headers = test.get("headers").and_then(Node::as_map).into_iter().flatten();
    let headers: Vec<String> =
        headers.map(|entry| format!("{}: {}", entry.key, entry.node.as_str().unwrap_or_default())).collect();
    let is_inbound = test.get("inbound").and_then(Node::as_bool).unwrap_or_default();
    let call = Request::parse(method, url.trim(), &headers)?.call(is_inbound);
    let journey = config.follow(&call);
    let expected = test.get("expect").and_then(Node::as_map).context("expect is missing")?;
    let mut failures = Vec::new();
    for entry in expected {
        if let Some(failure) = compare(&entry.key, &entry.node, &journey)? {
            failures.push(failure);
        }
    }
    let name = test.get("name").and_then(Node::as_str).unwrap_or(request);
    Ok(Outcome { name: name.to_owned(), failures })
}

/// How the end of a request differs from what is expected of it.
fn compare(key: &str, expected: &Node, journey: &Journey) -> anyhow::Result<Option<String>> {
    let clusters: Vec<&str> = match &journey.end {
        Ok(End::Cluster(cluster)) => vec![cluster],
        Ok(End::Weighted(weighted)) => weighted.iter().map(|(name, _)| name.as_str()).collect(),
        _ => Vec::new(),
    };
    let part = |read: fn(ClusterKey) -> String| -> Vec<String> {
        clusters.iter().filter_map(|cluster| ClusterKey::parse(cluster)).map(read).collect()
    };
    let wanted = match &expected.value {
        canopus_base::tree::Value::String(text) => text.to_string(),
        canopus_base::tree::Value::Number(number) => number.to_string(),
        canopus_base::tree::Value::Bool(truth) => truth.to_string(),
        _ => bail!("expect.{key}: expected a text, a number or a truth value"),
    };
    let got = match key {
        "cluster" => clusters.iter().map(|cluster| (*cluster).to_owned()).collect(),
        "host" => part(|key| key.host),
        "subset" => part(|key| key.subset),
        "port" => part(|key| key.port.to_string()),
        "status" => journey.status().map(|status| status.to_string()).into_iter().collect(),
        "redirect" => vec![matches!(journey.end, Ok(End::Redirect(_))).to_string()],
        "fails" => vec![journey.end.is_err().to_string()],
        other => bail!(
            "expect.{other} is not known{}",
            crate::names::hint(
                other,
                &["cluster", "host", "subset", "port", "status", "redirect", "fails"].map(str::to_owned)
            )
        ),
    };
    if got.contains(&wanted) {
        return Ok(None);
    }
    let found = match (&journey.end, got.as_slice()) {
        (Err(failure), _) => failure.to_string(),
        (Ok(_), []) => format!("{:?}", journey.end),
        (Ok(_), got) => got.join(" or "),
    };
    Ok(Some(format!("{key}: expected {wanted}, got {found}")))
}

fn json(outcomes: &[Outcome]) -> Value {
    let tests: Vec<Value> = outcomes
        .iter()
        .map(|outcome| json!({"name": outcome.name, "passes": outcome.failures.is_empty(), "failures": outcome.failures}))
        .collect();
    json!({"tests": tests})
}

fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let mark = if outcome.failures.is_empty() { "ok  " } else { "FAIL" };
        let _ = writeln!(text, "{mark}  {}", outcome.name);
        for failure in &outcome.failures {
            let _ = writeln!(text, "      {failure}");
        }
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.failures.is_empty()).count();
    let _ = writeln!(text, "{} passed, {failed} failed", outcomes.len() - failed);
    text
}
