//! `canopus what-if`: what a change of objects changes at which proxies, before it is made.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use canopus_envoy::bundle::Bundle;
use canopus_proto::resource::Resource;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::exit;
use crate::files::FileArguments;
use crate::global::Global;
use crate::offline::OfflineMesh;
use crate::output::{print, say};
use crate::table::{aligned, row};

/// Print what a change would change: which proxies, which resources, how many bytes, which listeners would drain.
///
/// The objects of --config are the mesh as it is, those of --change are laid over it. The proxies are the sidecars of the
/// pods in the files.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus what-if -f mesh/ --change routes.yaml
  canopus what-if -f mesh/ --change routes.yaml -o markdown >> \"$GITHUB_STEP_SUMMARY\"
  canopus what-if -f mesh/ --change routes.yaml --exit-code

Exit codes: 0 printed (with --exit-code: nothing changes), 1 something could not be read or generated,
2 with --exit-code: something changes, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    files: FileArguments,
    /// Files or directories of objects as they would be; may be repeated.
    #[arg(long, value_name = "PATH", required = true)]
    change: Vec<String>,
    /// Exit with 2 if something changes.
    #[arg(long)]
    exit_code: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Markdown,
}

/// A resource that differs.
struct Change {
    kind: &'static str,
    name: String,
    /// The bytes before; `None` if it is new.
    before: Option<usize>,
    /// The bytes after; `None` if it goes.
    after: Option<usize>,
    /// The resource did not change and is sent again with its parent.
    is_repeated: bool,
}

impl Change {
    fn what(&self) -> &'static str {
        match (self.before, self.after) {
            (None, _) => "added",
            (_, None) => "removed",
            _ if self.is_repeated => "sent again",
            _ => "changed",
        }
    }

    /// Whether connections of the listener are drained: Envoy replaces a listener that is not equal.
    fn drains(&self) -> bool {
        self.kind == "listener" && self.before.is_some()
    }
}

/// What changes at a proxy.
struct ProxyChange {
    proxy: String,
    changes: Vec<Change>,
}

pub(crate) fn run(global: &Global, arguments: &Arguments) -> ExitCode {
    match compare(global, arguments) {
        Ok(proxies) => {
            let changes = arguments.exit_code && proxies.iter().any(|proxy| !proxy.changes.is_empty());
            let code = if changes { ExitCode::from(2) } else { ExitCode::SUCCESS };
            let text = match arguments.output {
                Format::Text => text(&proxies),
                Format::Json => format!("{:#}\n", json(&proxies)),
                Format::Markdown => markdown(&proxies),
            };
            print(&text, code)
        }
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn compare(global: &Global, arguments: &Arguments) -> anyhow::Result<Vec<ProxyChange>> {
    let mut changed = arguments.files.clone();
    changed.config.extend(arguments.change.iter().cloned());
    let before = OfflineMesh::read(global, &arguments.files)?;
    let after = OfflineMesh::read(global, &changed)?;
    if let Some(problem) = after.problems().first() {
        anyhow::bail!("{problem}");
    }
    let known = before.pods();
    let mut proxies = Vec::new();
    for pod in after.pods() {
        let old = if known.contains(&pod) { before.bundle(global, &pod)? } else { Bundle::default() };
        let new = after.bundle(global, &pod)?;
        proxies.push(ProxyChange { changes: difference(&old, &new), proxy: pod });
    }
    Ok(proxies)
}

fn by_name(resources: &[Resource]) -> BTreeMap<&str, &Resource> {
    resources.iter().map(|resource| (&*resource.name, resource)).collect()
}

fn difference(before: &Bundle, after: &Bundle) -> Vec<Change> {
    let families = [
        ("listener", &before.listeners, &after.listeners),
        ("route", &before.routes, &after.routes),
        ("cluster", &before.clusters, &after.clusters),
        ("endpoint", &before.endpoints, &after.endpoints),
        ("extension", &before.extensions, &after.extensions),
        ("secret", &before.secrets, &after.secrets),
        ("name table", &before.names, &after.names),
    ];
    let mut changes: Vec<Change> = Vec::new();
    for (kind, before, after) in families {
        let (before, after) = (by_name(before), by_name(after));
        let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
        // Envoy waits for the endpoints of a cluster that is new to it, also if it has them from the one before.
        let is_part = |name: &str| {
            let mut clusters =
                changes.iter().filter(|change| change.kind == "cluster" && change.after.is_some());
            kind == "endpoint" && clusters.any(|cluster| cluster.name == name)
        };
        let mut found = Vec::new();
        for name in names {
            let (old, new) = (before.get(name), after.get(name));
            let is_equal = old.map(|old| old.version) == new.map(|new| new.version);
            if is_equal && !is_part(name) {
                continue;
            }
            let size = |resource: Option<&&Resource>| resource.map(|resource| resource.body.len());
            found.push(Change {
                kind,
                name: name.to_owned(),
                before: size(old),
                after: size(new),
                is_repeated: is_equal,
            });
        }
        changes.extend(found);
    }
    changes
}

/// How many proxies change, in how many resources, and how many bytes they would be sent.
fn totals(proxies: &[ProxyChange]) -> (usize, usize, usize) {
    let changed = proxies.iter().filter(|proxy| !proxy.changes.is_empty()).count();
    let resources = proxies.iter().map(|proxy| proxy.changes.len()).sum();
    let bytes = proxies.iter().flat_map(|proxy| &proxy.changes).filter_map(|change| change.after).sum();
    (changed, resources, bytes)
}

fn rows(proxies: &[ProxyChange]) -> Vec<Vec<String>> {
    let size = |bytes: Option<usize>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    let mut rows = vec![row(["PROXY", "RESOURCE", "NAME", "CHANGE", "BYTES", "NOTE"])];
    for proxy in proxies {
        for change in &proxy.changes {
            rows.push(vec![
                proxy.proxy.clone(),
                change.kind.to_owned(),
                change.name.clone(),
                change.what().to_owned(),
                format!("{} -> {}", size(change.before), size(change.after)),
                if change.drains() { "drains connections".to_owned() } else { String::new() },
            ]);
        }
    }
    rows
}

fn summary(proxies: &[ProxyChange]) -> String {
    let (changed, resources, bytes) = totals(proxies);
    format!(
        "{changed} of {} proxies change in {resources} resources; {bytes} bytes would be sent",
        proxies.len()
    )
}

fn text(proxies: &[ProxyChange]) -> String {
    if totals(proxies).0 == 0 {
        return format!("{}\n", summary(proxies));
    }
    format!("{}\n{}\n", aligned(&rows(proxies), 3), summary(proxies))
}

fn markdown(proxies: &[ProxyChange]) -> String {
    let mut text = format!("**{}**\n", summary(proxies));
    if totals(proxies).0 == 0 {
        return text;
    }
    for (index, cells) in rows(proxies).iter().enumerate() {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "{}| {} |", if index == 0 { "\n" } else { "" }, cells.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(cells.len()));
        }
    }
    text
}

fn json(proxies: &[ProxyChange]) -> Value {
    let (changed, resources, bytes) = totals(proxies);
    let listed = proxies.iter().filter(|proxy| !proxy.changes.is_empty()).map(|proxy| {
        let changes = proxy.changes.iter().map(|change| {
            json!({
                "resource": change.kind,
                "name": change.name,
                "change": change.what(),
                "bytesBefore": change.before,
                "bytesAfter": change.after,
                "drains": change.drains(),
            })
        });
        json!({"proxy": proxy.proxy, "changes": changes.collect::<Vec<_>>()})
    });
    json!({
        "proxies": proxies.len(),
        "changedProxies": changed,
        "changedResources": resources,
        "bytes": bytes,
        "changes": listed.collect::<Vec<_>>(),
    })
}
