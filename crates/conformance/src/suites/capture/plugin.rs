//! The programs the CNI plugin makes of a pod's annotations.

use std::collections::BTreeMap;

use canopus_base::tree::Node;
use canopus_capture::HostFacts;
use canopus_capture::apply::{Recorder, Tools};
use canopus_capture::pod::Pod;

use super::{golden, scalar};
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::text;
use crate::dump::Dump;
use crate::suites::Suite;

pub(in crate::suites) struct Plugin;

impl Suite for Plugin {
    fn name(&self) -> &str {
        "cni-plugin-iptables"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let id = |key| case.entry.get(key).and_then(Node::as_i64).map(u32::try_from).transpose();
    let pod = Pod {
        annotations: texts(case, "podAnnotations")?,
        proxy_environment: texts(case, "istioProxyEnv")?,
        proxy_uid: id("runAsUser")?,
        proxy_gid: id("runAsGroup")?,
    };
    let facts = HostFacts { addresses: vec!["10.0.0.2".parse()?], ..HostFacts::default() };
    let settings = pod.command_line()?.settle(&facts)?;
    let mut recorder = Recorder::default();
    settings.apply_iptables(&mut recorder, &Tools::plain())?;
    let expected = golden(case)?;
    Ok(text::difference(&tables(expected.lines()), &tables(recorder.lines().iter().map(String::as_str))))
}

fn texts(case: &Case, key: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let entries = case.entry.get(key).and_then(Node::as_map).into_iter().flatten();
    entries.map(|entry| Ok((entry.key.to_string(), scalar(&entry.node)?))).collect()
}

/// The tables, without the listings around them.
fn tables<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let rules = lines.filter(|line| !line.ends_with("tables-save"));
    rules.collect::<Vec<_>>().join("\n")
}
