//! What Istio sends to proxies: for each recorded proxy and type, the same names and the same resources.
//!
//! One recorded file is one case, `group/scenario/proxy.type`. The types that were recorded and brought nothing are one
//! more case for each proxy, `proxy.nothing`: nothing may be generated there.
//!
//! The groups `push` and `wire` are sequences of messages. They are played against a control plane that serves over gRPC;
//! a scenario is a case.

mod live;
mod push;
mod scenario;
mod wire;
mod world;

use std::collections::BTreeMap;
use std::ops::BitOrAssign;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, anyhow};
use canopus_base::tree::{Map, Node, Value};
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::json;
use canopus_proto::resource::Resource;
use parking_lot::Mutex;

use self::scenario::Type;

pub(super) use self::scenario::{RecordedProxy, Scenario};
pub(super) use self::world::Generated;
use super::{NO_ADAPTER, Suite};
use crate::case::{Case, Outcome};
use crate::compare::tree::{self, Rules};
use crate::compare::{ABSENT, Difference};
use crate::corpus::Corpus;
use crate::dump::Dump;

/// The suite, with what was generated for scenarios whose cases have begun to run.
#[derive(Default)]
pub(super) struct Xds {
    worlds: Mutex<BTreeMap<Arc<Path>, Arc<World>>>,
    /// Sequences that pass though less was sent than recorded.
    frugal: AtomicUsize,
}

/// What became of a sequence.
#[derive(Default)]
struct Sequence {
    differences: Vec<Difference>,
    less: Less,
}

/// Whether less was sent than was recorded, because the rest was unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Less {
    #[default]
    No,
    Yes,
}

impl BitOrAssign for Less {
    fn bitor_assign(&mut self, other: Self) {
        if other == Self::Yes {
            *self = Self::Yes;
        }
    }
}

/// A scenario's world once it is made, or why it cannot be.
type World = OnceLock<Result<Arc<Generated>, String>>;

/// Groups without snapshots: they are about messages, not about state.
const SEQUENCES: [&str; 2] = ["push", "wire"];

/// How long a sequence may take; it is over in a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a case of types that brought nothing is called.
const NOTHING: &str = "nothing";

impl Suite for Xds {
    fn name(&self) -> &str {
        "xds"
    }

    fn cases(&self, corpus: &Corpus) -> anyhow::Result<Vec<Case>> {
        let index = corpus.document(Path::new("xds/index.yaml"))?;
        let listed =
            index.get("scenarios").and_then(Node::as_list).context("index.yaml lists no scenarios")?;
        let mut cases = Vec::new();
        for entry in listed {
            let text =
                |key| entry.get(key).and_then(Node::as_str).context("a scenario without group or name");
            cases.extend(scenario_cases(corpus, text("group")?, text("scenario")?)?);
        }
        Ok(cases)
    }

    fn note(&self) -> String {
        match self.frugal.load(Ordering::Relaxed) {
            0 => String::new(),
            frugal => {
                format!("{frugal} sequences pass with less sent than recorded, the rest being unchanged")
            }
        }
    }

    fn run(&self, case: &Case, dump: &Dump) -> Outcome {
        if SEQUENCES.iter().any(|group| case.directory.starts_with(Path::new("xds").join(group))) {
            return self.play(case).into();
        }
        let Some((proxy, kind)) = case.file.to_str().and_then(|file| file.rsplit_once('.')) else {
            return Outcome::Skipped(NO_ADAPTER);
        };
        let generated = match self.generated(case) {
            Ok(generated) => generated,
            Err(message) => return Outcome::error(message),
        };
        let result = if kind == NOTHING {
            absent(case, proxy, &generated)
        } else {
            let Some(kind) = Type::parse(kind) else { return Outcome::Skipped(NO_ADAPTER) };
            snapshot(case, proxy, kind, &generated, dump)
        };
        result.into()
    }
}

impl Xds {
    /// Plays a sequence of messages against a control plane of its own.
    fn play(&self, case: &Case) -> anyhow::Result<Vec<Difference>> {
        let written = case.corpus.document(&case.path("scenario.yaml"))?;
        let scenario = Scenario::read(&case.corpus, &case.directory)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let sequence = async {
            if case.directory.starts_with("xds/push") {
                push::run(scenario, &written).await
            } else {
                wire::run(scenario, &written).await
            }
        };
        let played = runtime.block_on(async { tokio::time::timeout(PATIENCE, sequence).await });
        runtime.shutdown_background();
        let Sequence { differences, less } = played.context("the sequence does not come to an end")??;
        if differences.is_empty() && less == Less::Yes {
            self.frugal.fetch_add(1, Ordering::Relaxed);
        }
        Ok(differences)
    }

    /// What all proxies of a case's scenario get, made once.
    fn generated(&self, case: &Case) -> Result<Arc<Generated>, String> {
        let cell = self.worlds.lock().entry(case.directory.clone()).or_default().clone();
        let make = || {
            let scenario = Scenario::read(&case.corpus, &case.directory)?;
            Generated::generate(&scenario).map(Arc::new)
        };
        cell.get_or_init(|| make().map_err(|error| format!("{error:#}"))).clone()
    }
}

/// The directories of the scenarios that have snapshots.
pub(super) fn snapshot_scenarios(corpus: &Corpus) -> anyhow::Result<Vec<PathBuf>> {
    let index = corpus.document(Path::new("xds/index.yaml"))?;
    let listed = index.get("scenarios").and_then(Node::as_list).context("index.yaml lists no scenarios")?;
    let text = |entry: &Node, key| entry.get(key).and_then(Node::as_str).map(str::to_owned);
    let named = listed.iter().filter_map(|entry| Some((text(entry, "group")?, text(entry, "scenario")?)));
    let snapshots = named.filter(|(group, _)| !SEQUENCES.contains(&group.as_str()));
    let directories = snapshots.map(|(group, name)| Path::new("xds").join(group).join(name));
    Ok(directories.filter(|directory| is_recorded(corpus, directory)).collect())
}

/// Whether a scenario of the index is there: recordings that turned out wrong were withdrawn.
fn is_recorded(corpus: &Corpus, directory: &Path) -> bool {
    corpus.exists(&directory.join("scenario.yaml"))
}

/// The cases of one scenario. Sequences are one case each, without a file.
fn scenario_cases(corpus: &Corpus, group: &str, name: &str) -> anyhow::Result<Vec<Case>> {
    let id = format!("{group}/{name}");
    let directory: Arc<Path> = Path::new("xds").join(&id).into();
    let case = |id: String, file: &str| Case {
        id,
        corpus: corpus.clone(),
        directory: directory.clone(),
        file: Path::new(file).into(),
        entry: Node::default(),
        shared: Arc::default(),
    };
    if SEQUENCES.contains(&group) {
        return Ok(vec![case(id, "")]);
    }
    if !is_recorded(corpus, &directory) {
        return Ok(Vec::new());
    }
    let mut cases = Vec::new();
    for proxy in Scenario::read(corpus, &directory)?.proxies {
        let (present, missing): (Vec<Type>, Vec<Type>) = proxy
            .recorded
            .iter()
            .copied()
            .partition(|kind| corpus.exists(&directory.join(format!("{}.{kind}.json", proxy.name))));
        let files = present.into_iter().map(|kind| format!("{}.{kind}", proxy.name));
        let nothing = (!missing.is_empty()).then(|| format!("{}.{NOTHING}", proxy.name));
        cases.extend(files.chain(nothing).map(|file| case(format!("{id}/{file}"), &file)));
    }
    Ok(cases)
}

/// Compares one recorded file with what was generated.
fn snapshot(
    case: &Case,
    proxy: &str,
    kind: Type,
    generated: &Generated,
    dump: &Dump,
) -> anyhow::Result<Vec<Difference>> {
    let got = rendered(kind, generated.resources(proxy, kind)?)?;
    let file = format!("{proxy}.{kind}.json");
    dump.write(&case.path(&file), || {
        Node::from(Value::List(got.values().cloned().collect())).to_json().to_string()
    })?;
    let expected = case.corpus.document(&case.path(&file))?;
    let expected = expected.as_list().context("not a list of resources")?;
    let scenario = Scenario::read(&case.corpus, &case.directory)?;
    let mut found = Vec::new();
    let mut names = Vec::new();
    for (index, entry) in expected.iter().enumerate() {
        let name = entry.get("name").and_then(Node::as_str).context("a resource without a name")?;
        names.push(name);
        match got.get(name) {
            None => found.push(Difference::new(format!("/{name}"), "the resource", ABSENT)),
            Some(resource) => {
                let rules = Rules { unordered: scenario.unordered(&file, index) };
                let differences = tree::difference(entry, resource, &rules).into_iter();
                found.extend(differences.map(|d| Difference { path: format!("{name}{}", d.path), ..d }));
            }
        }
    }
    let additional = got.keys().filter(|name| !names.contains(&name.as_str()));
    found.extend(additional.map(|name| Difference::new(format!("/{name}"), ABSENT, "the resource")));
    Ok(found)
}

/// What is generated of types that were recorded and brought nothing.
fn absent(case: &Case, proxy: &str, generated: &Generated) -> anyhow::Result<Vec<Difference>> {
    let scenario = Scenario::read(&case.corpus, &case.directory)?;
    let recorded = scenario.proxies.iter().find(|candidate| candidate.name == proxy);
    let mut found = Vec::new();
    for kind in &recorded.context("no such proxy")?.recorded {
        let file = case.path(format!("{proxy}.{kind}.json"));
        if !case.corpus.exists(&file) {
            let names = generated.resources(proxy, *kind)?.iter().map(|resource| resource.name.to_string());
            found
                .extend(names.map(|name| Difference::new(format!("/{kind}/{name}"), ABSENT, "the resource")));
        }
    }
    Ok(found)
}

/// Resources as the corpus writes them, by name.
fn rendered(kind: Type, resources: &[Resource]) -> anyhow::Result<BTreeMap<String, Node>> {
    let descriptor = descriptors::message(kind.message()).context("unknown message")?;
    let mut all = BTreeMap::new();
    for resource in resources {
        let message = DynamicMessage::decode(descriptor.clone(), resource.body.clone())
            .map_err(|error| anyhow!("{}: {error}", resource.name))?;
        let Value::Map(fields) = json::write_dynamic(&message).value else { continue };
        let type_url = Value::from(format!("type.googleapis.com/{}", kind.message()));
        let mut body = Map::new();
        body.insert("@type", type_url.into());
        for entry in fields.into_entries() {
            body.insert(entry.key, entry.node);
        }
        let mut entry = Map::new();
        entry.insert("name", Value::from(&*resource.name).into());
        entry.insert("resource", Value::Map(body).into());
        if !resource.aliases.is_empty() {
            let aliases = resource.aliases.iter().map(|alias| Value::from(&**alias).into()).collect();
            entry.insert("aliases", Value::List(aliases).into());
        }
        if all.insert(resource.name.to_string(), Value::Map(entry).into()).is_some() {
            return Err(anyhow!("{} is generated twice", resource.name));
        }
    }
    Ok(all)
}
