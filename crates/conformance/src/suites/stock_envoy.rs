//! A check across the corpus: what is generated for a stock Envoy is accepted by a real one.
//!
//! Every scenario is a case. What its sidecars and gateways get is generated as if they had the extensions of the Envoy that
//! judges it, and each set, written as one file, goes through `envoy --mode validate`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use canopus_base::tree::Node;
use canopus_base::yaml::Limits;
use canopus_parts::Part;
use canopus_proto::envoy::config::core::v3::Extension;
use canopus_proto::envoy::config::core::v3::Node as ProxyNode;
use canopus_proto::json::{self, Unknown};
use canopus_testkit::Envoy;

use super::Suite;
use super::xds::{Generated, RecordedProxy, Scenario};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::corpus::Corpus;
use crate::dump::Dump;

/// The scenarios of suite `xds`, judged by Envoy.
#[derive(Default)]
pub(super) struct StockEnvoy {
    /// What Envoy says it has; asked once.
    extensions: OnceLock<Result<Vec<Extension>, String>>,
}

impl Suite for StockEnvoy {
    fn name(&self) -> &str {
        "stock-envoy"
    }

    fn cases(&self, corpus: &Corpus) -> anyhow::Result<Vec<Case>> {
        if !corpus.exists(Path::new("xds/index.yaml")) {
            return Ok(Vec::new());
        }
        let case = |directory: PathBuf| {
            Ok(Case {
                id: directory.strip_prefix("xds")?.to_string_lossy().into_owned(),
                corpus: corpus.clone(),
                directory: directory.into(),
                file: Path::new("scenario.yaml").into(),
                entry: Node::default(),
                shared: Arc::default(),
            })
        };
        super::xds::snapshot_scenarios(corpus)?.into_iter().map(case).collect()
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        match self.extensions.get_or_init(|| extensions().map_err(|error| format!("{error:#}"))) {
            Ok(extensions) => judge(case, extensions).into(),
            Err(error) => Outcome::error(format_args!("no Envoy to ask: {error}")),
        }
    }

    fn is_extra(&self) -> bool {
        true
    }
}

/// The extensions of the Envoy that judges.
fn extensions() -> anyhow::Result<Vec<Extension>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let info = runtime.block_on(async { Envoy::launch("{}").await?.ask("/server_info").await })?;
    let info = canopus_base::yaml::parse_one(&info, &Limits::default()).context("Envoy's /server_info")?;
    let node = info.get("node").context("Envoy's /server_info has no node")?;
    let node =
        json::read::<ProxyNode>(node, Unknown::Report).map_err(|problems| anyhow::anyhow!("{problems}"))?;
    Ok(node.value.extensions)
}

fn judge(case: &Case, extensions: &[Extension]) -> anyhow::Result<Vec<Difference>> {
    let mut scenario = Scenario::read(&case.corpus, &case.directory)?;
    scenario.proxies.retain(RecordedProxy::is_envoy);
    for proxy in &mut scenario.proxies {
        proxy.node.extensions = extensions.to_vec();
    }
    let generated = Generated::generate(&scenario)?;
    let mut found = Vec::new();
    for proxy in &scenario.proxies {
        let file = generated.bundle(&proxy.name)?.standalone(&proxy.node)?;
        let refusal = refusal(&file)?;
        found.extend(refusal.map(|message| Difference::new(&proxy.name, "accepted", message)));
    }
    Ok(found)
}

/// What Envoy has against a configuration, if anything.
fn refusal(configuration: &Node) -> anyhow::Result<Option<String>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("envoy.json");
    fs::write(&file, configuration.to_json().to_string())?;
    let mut command = Command::new(canopus_parts::find(Part::Envoy)?.join("envoy"));
    command
        .args(["--mode", "validate", "--disable-hot-restart", "--log-level", "error", "--config-path"])
        .arg(&file);
    let output = command.output().context("cannot start Envoy")?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok((!output.status.success()).then(said))
}
