//! The node's side: installing the plugin, and finding the namespaces of pods.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use canopus_base::tree::{Limits, Node};
use canopus_base::yaml;
use canopus_cni::ambient::NamespaceFinder;
use canopus_cni::install::{
    ApiServer, InstallSettings, Installed, Installer, PluginConfig, network_config, render_kubeconfig,
};
use tempfile::TempDir;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::text;
use crate::compare::tree;
use crate::dump::Dump;

pub(super) struct Install;

impl Suite for Install {
    fn name(&self) -> &str {
        "cni-install"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        install(case).into()
    }
}

/// Which kind of case it is shows by the fields of its entry.
fn install(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let has = |key: &str| case.entry.get(key).is_some();
    if has("newConfFilename") {
        insert(case)
    } else if has("resultFileName") {
        whole_run(case)
    } else if case.id.starts_with("kubeconfig") {
        kubeconfig(case)
    } else {
        config_file(case)
    }
}

fn read(case: &Case, file: &str) -> anyhow::Result<Vec<u8>> {
    case.corpus.bytes(&case.path(file))
}

fn required<'a>(case: &'a Case, key: &str) -> anyhow::Result<&'a str> {
    case.text(key).with_context(|| format!("no {key}"))
}

fn flag(case: &Case, key: &str) -> bool {
    case.entry.get(key).and_then(Node::as_bool).unwrap_or_default()
}

fn compare(expected: &[u8], got: &[u8]) -> anyhow::Result<Vec<Difference>> {
    let parse = |bytes: &[u8]| yaml::parse_one(bytes, &Limits::default());
    Ok(tree::difference(&parse(expected)?, &parse(got)?, &tree::Rules::default()))
}

fn insert(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let existing = required(case, "existingConfFilename")?;
    let inserted = network_config::insert(
        &read(case, &format!("unit/{existing}"))?,
        &read(case, &format!("unit/{}", required(case, "newConfFilename")?))?,
    );
    match (inserted, flag(case, "expectedFailure")) {
        (Err(_), true) => Ok(Vec::new()),
        (Ok(text), true) => Ok(vec![Difference::new("", "an error", text)]),
        (inserted, false) => compare(&read(case, &format!("unit/{existing}.golden"))?, inserted?.as_bytes()),
    }
}

/// A node to install on.
struct FakeNode {
    root: TempDir,
}

impl FakeNode {
    fn new() -> anyhow::Result<Self> {
        let root = tempfile::tempdir()?;
        for directory in ["net.d", "bin", "image", "account", "run"] {
            fs::create_dir(root.path().join(directory))?;
        }
        fs::write(root.path().join("image/istio-cni"), "program")?;
        fs::write(root.path().join("account/token"), "service_account_token_string")?;
        fs::write(root.path().join("account/ca.crt"), "ca")?;
        Ok(Self { root })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn config(&self, name: &str) -> PathBuf {
        self.path("net.d").join(name)
    }

    fn settings(&self, plugin: PluginConfig) -> InstallSettings {
        InstallSettings {
            network_directory: self.path("net.d"),
            config_mode: 0o600,
            programs: self.path("image"),
            program_targets: vec![self.path("bin")],
            run_directory: self.path("run"),
            kubeconfig_mode: 0o600,
            service_account: self.path("account"),
            api_server: ApiServer { host: "10.96.0.1".into(), port: "443".into(), ..ApiServer::default() },
            plugin: plugin.named(),
            ..InstallSettings::default()
        }
    }
}

fn config_file(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let node = FakeNode::new()?;
    for entry in case.entry.get("existingConfFiles").and_then(Node::as_map).into_iter().flatten() {
        let name = entry.node.as_str().context("a name")?;
        fs::write(node.config(name), read(case, &format!("unit/{}", entry.key))?)?;
    }
    let defaults = |key: &str| {
        case.shared
            .pointer(&format!("/createCNIConfigFile/defaults/{key}"))
            .and_then(Node::as_str)
            .unwrap_or_default()
    };
    let plugin = PluginConfig {
        plugin_log_level: defaults("PluginLogLevel").to_owned(),
        cni_agent_run_dir: defaults("CNIAgentRunDir").to_owned(),
        pod_namespace: defaults("PodNamespace").to_owned(),
        ambient_enabled: flag(case, "ambientEnabled"),
        ..PluginConfig::default()
    };
    // The default names the file, and then says when it is used.
    let owned = defaults("IstioOwnedCNIConfigFilename").split_whitespace().next().unwrap_or_default();
    let settings = InstallSettings {
        network_config: case.text("specifiedConfName").unwrap_or_default().to_owned(),
        is_chained: flag(case, "chainedCNIPlugin"),
        owned_config: flag(case, "istioOwnedCNIConfig").then(|| owned.to_owned()),
        ..node.settings(plugin)
    };
    let installed = Installer::new(settings).write_config()?;
    let Some(name) = case.text("expectedConfName") else {
        let waits = installed == Installed::Waiting;
        return Ok(if waits { Vec::new() } else { vec![Difference::new("", "waiting", "installed")] });
    };
    let golden = read(case, &format!("unit/{}", required(case, "goldenConfName")?))?;
    compare(&golden, &fs::read(node.config(name)).with_context(|| name.to_owned())?)
}

fn kubeconfig(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let default = |key: &str| {
        let value = case.shared.pointer(&format!("/kubeconfig/defaults/{key}")).and_then(Node::as_str);
        value.unwrap_or_default().to_owned()
    };
    let words = case.id.rsplit('/').next().unwrap_or_default();
    let mut server = ApiServer {
        host: default("K8sServiceHost"),
        port: default("K8sServicePort"),
        ca: Some(read(case, &default("KubeCAFile"))?),
        ..ApiServer::default()
    };
    // What differs from the defaults is said in the case's name alone.
    match words.split([' ', '-']).collect::<Vec<_>>()[..] {
        ["no", "host"] => server.host.clear(),
        ["no", "port"] => server.port.clear(),
        ["new", "host", host] => server.host = host.to_owned(),
        _ => {}
    }
    let rendered = render_kubeconfig(&server, &default("token file content"));
    match (rendered, flag(case, "fails")) {
        (Err(_), true) => Ok(Vec::new()),
        (Ok(text), true) => Ok(vec![Difference::new("", "an error", text)]),
        (rendered, false) => {
            let golden = String::from_utf8(read(case, required(case, "golden")?)?)?;
            Ok(text::difference(golden.trim_end(), rendered?.trim_end()))
        }
    }
}

/// Installs, compares, cleans up and compares again.
fn whole_run(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let node = FakeNode::new()?;
    let files = case.entry.get("cniConfDirOrderedFiles").and_then(Node::as_list).unwrap_or_default();
    for (index, file) in files.iter().enumerate() {
        let file = file.as_str().context("a name")?;
        fs::write(node.config(&format!("{index:02}-{file}")), read(case, &format!("e2e/pre/{file}"))?)?;
    }
    let plugin = PluginConfig {
        plugin_log_level: "debug".to_owned(),
        cni_agent_run_dir: "/tmp".to_owned(),
        exclude_namespaces: Some(vec!["istio-system".to_owned()]),
        ..PluginConfig::default()
    };
    let settings = InstallSettings {
        network_config: case.text("preConfFile").unwrap_or_default().to_owned(),
        is_chained: flag(case, "chainedCNIPlugin"),
        ..node.settings(plugin)
    };
    let mut installer = Installer::new(settings);
    let result = required(case, "resultFileName")?;
    if let Some(delayed) = case.text("delayedConfFile") {
        ensure!(installer.install()? == Installed::Waiting, "there is nothing to install in yet");
        fs::write(node.config(result), read(case, delayed)?)?;
    }
    if installer.install()? != Installed::Complete {
        bail!("not installed");
    }
    let mut differences =
        compare(&read(case, required(case, "expectedOutputFile")?)?, &fs::read(node.config(result))?)?;
    installer.clean_up()?;
    match case.text("expectedPostCleanFile") {
        Some(clean) => differences.extend(compare(&read(case, clean)?, &fs::read(node.config(result))?)?),
        None if node.config(result).exists() => differences.push(Difference::new(result, "gone", "there")),
        None => {}
    }
    for left in ["bin/istio-cni", "run/istio-cni-kubeconfig"] {
        if node.path(left).exists() {
            differences.push(Difference::new(left, "gone", "there"));
        }
    }
    Ok(differences)
}

pub(super) struct NodeAgent;

impl Suite for NodeAgent {
    fn name(&self) -> &str {
        "cni-nodeagent"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        find_namespace(case).into()
    }
}

/// The one case is described in prose: the pod, and the process whose namespace has to be found.
fn find_namespace(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let note = case.shared.get("note").and_then(Node::as_str).context("no description")?;
    let after = |word: &str| {
        let rest = note.split(word).nth(1).unwrap_or_default();
        rest.split([' ', ';', ')', ',']).next().unwrap_or_default().to_owned()
    };
    let uid = after("UID ");
    let process: u32 = note.rsplit("process ").next().unwrap_or_default().trim_end_matches(')').parse()?;
    let directory = note.split('/').next().unwrap_or_default();
    let proc = case.corpus.absolute(&case.path(Path::new(directory)));
    let pods: BTreeMap<_, _> = [(uid.clone(), Vec::new())].into();
    // Files stand for namespaces here, which have no addresses to be told by.
    let found = NamespaceFinder::without_host(&proc).find_verified(&pods, &|_, _| true)?;
    let found = found.get(&uid).map(|found| found.process);
    Ok(text::difference(&format!("{:?}", Some(process)), &format!("{found:?}")))
}
