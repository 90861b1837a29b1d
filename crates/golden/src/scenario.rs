//! Reading scenario files.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use canopus_api::{Options, decode_documents, mesh_config};
use canopus_base::tree::{Limits, Node, Value};
use canopus_base::yaml;
use canopus_engine::{Batch, Engine};
use canopus_mesh::credential::{Account, SecretAccess};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_runtime::flags::Flags;

use crate::{Subject, proxy};

/// The line before the expected part.
const EXPECTED: &str = "--- # expected\n";
/// The beginning of a line after which objects are those of another cluster, whose name follows.
const CLUSTER: &str = "--- # cluster ";
/// The keys of the first document.
const KEYS: [&str; 6] = ["proxy", "show", "mesh", "networks", "flags", "listeners"];

/// A parsed scenario.
pub(crate) struct Scenario {
    /// Everything before the expected part.
    input: String,
    description: Node,
    objects: String,
    /// The excerpts, each with the label it is shown under.
    pub(crate) show: Vec<(String, String)>,
    pub(crate) expected: String,
}

impl Scenario {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let (input, expected) = text.split_once(EXPECTED).unwrap_or((text, ""));
        ensure!(
            input.starts_with("# "),
            "the first line must be a comment that says what the scenario shows"
        );
        let (first, objects) =
            input.split_once("\n---").context("expected objects after the first document")?;
        let description = yaml::parse_one(first, &Limits::default())?;
        if let Value::Map(map) = &description.value
            && let Some(unknown) = map.iter().find(|entry| !KEYS.contains(&&*entry.key))
        {
            bail!("unknown key {:?} in the first document: expected one of {KEYS:?}", unknown.key);
        }
        let show = excerpts(&description)?;
        ensure!(!show.is_empty(), "`show` must name at least one excerpt");
        Ok(Self {
            input: input.to_owned(),
            description,
            objects: format!("---{objects}"),
            show,
            expected: expected.to_owned(),
        })
    }

    /// The file with another expected part.
    pub(crate) fn with_expected(&self, expected: &str) -> String {
        let newline = if self.input.ends_with('\n') { "" } else { "\n" };
        format!("{}{newline}{EXPECTED}{expected}", self.input)
    }

    /// Builds the mesh and the proxy.
    pub(crate) fn subject(&self) -> anyhow::Result<Subject> {
        let settings = self.settings()?;
        let described = self.description.get("proxy").cloned().unwrap_or_default();
        let proxy = proxy::build(&described, &settings)?;
        let mut batch = Batch::new();
        for (cluster, documents) in self.clusters(&settings) {
            for outcome in decode_documents(&documents, &Limits::default(), Options::strict()) {
                let object = outcome?.value;
                batch.set::<Objects>(Origin::new(cluster.as_str(), object.key()), object);
            }
        }
        if let Some(identity) = &proxy.identity {
            let account = Account {
                cluster: proxy.metadata.cluster_id.as_str().into(),
                namespace: identity.namespace.clone(),
                name: identity.service_account.clone(),
            };
            batch.set::<SecretAccess>(account, true);
        }
        batch.set::<Settings>((), settings);
        let engine = Engine::new();
        engine.apply(batch);
        let mesh = engine.snapshot();
        Ok(Subject { engine, mesh, proxy, listeners: texts(&self.description, "listeners") })
    }

    /// The objects by cluster.
    fn clusters(&self, settings: &MeshSettings) -> Vec<(String, String)> {
        let mut sections = self.objects.split(CLUSTER);
        let own = sections.next().unwrap_or_default().to_owned();
        let others = sections.map(|section| {
            let (name, documents) = section.split_once('\n').unwrap_or((section, ""));
            (name.trim().to_owned(), documents.to_owned())
        });
        std::iter::once((settings.cluster.to_string(), own)).chain(others).collect()
    }

    fn settings(&self) -> anyhow::Result<MeshSettings> {
        let mut flags = BTreeMap::new();
        if let Some(Value::Map(written)) = self.description.get("flags").map(|node| &node.value) {
            for entry in written {
                let value =
                    entry.node.as_str().map_or_else(|| entry.node.to_json().to_string(), str::to_owned);
                flags.insert(entry.key.to_string(), value);
            }
        }
        let mut settings = MeshSettings { flags: Arc::new(Flags::read(&flags)), ..MeshSettings::default() };
        if let Some(mesh) = self.description.get("mesh") {
            let text = yaml::node_to_string(mesh);
            settings.mesh = mesh_config::apply_usable(&text, &settings.mesh).context("mesh")?.value;
        }
        if let Some(networks) = self.description.get("networks") {
            let text = yaml::node_to_string(networks);
            settings.networks = mesh_config::read_networks(&text).context("networks")?.value;
        }
        Ok(settings)
    }
}

/// The entries of `show`: an excerpt, or `label: excerpt`.
fn excerpts(description: &Node) -> anyhow::Result<Vec<(String, String)>> {
    let entries = description.get("show").and_then(Node::as_list).into_iter().flatten();
    let read = |entry: &Node| match &entry.value {
        Value::String(text) => Ok((text.to_string(), text.to_string())),
        Value::Map(map) => {
            let entry = map.iter().next().context("an empty mapping in `show`")?;
            let excerpt = entry.node.as_str().context("expected `label: excerpt` in `show`")?;
            Ok((entry.key.to_string(), excerpt.to_owned()))
        }
        _ => bail!("expected an excerpt or `label: excerpt` in `show`"),
    };
    entries.map(read).collect()
}

fn texts(node: &Node, key: &str) -> Vec<String> {
    let list = node.get(key).and_then(Node::as_list).into_iter().flatten();
    list.filter_map(Node::as_str).map(str::to_owned).collect()
}
