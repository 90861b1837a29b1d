//! `canopus bug-report`: what somebody needs who was not there, in one archive.
//!
//! Collected are the objects of the mesh, the control plane's debug pages, and for each injected pod its proxy's configuration
//! and log. What cannot be had is listed in `errors.txt` of the archive and does not stop the rest. Secrets are left out.

use std::fs::File;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use canopus_api::Kind;
use canopus_base::tree::Node;
use canopus_base::yaml;
use canopus_runtime::version::{self, BuildInfo, VersionFlags};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use jiff::{Span, Timestamp};

use crate::cluster::{Cluster, KubeArguments, name_of};
use crate::exit;
use crate::global::Global;
use crate::input::go_duration;
use crate::output::{print, say};
use crate::persona::Persona;

/// The debug pages of a control plane that are asked for.
const PAGES: [&str; 6] =
    ["/debug/syncz", "/debug/registryz", "/debug/configz", "/debug/endpointz", "/debug/mesh", "/metrics"];

/// Lines of a log that are asked for.
const LOG_LINES: usize = 100_000;

/// Collect what is needed to find out what went wrong.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus bug-report                                   everything, the logs of the last hour
  canopus bug-report --duration 10m --include shop,cart
  canopus bug-report --exclude kube-system --dry-run

Exit codes: 0 the archive is written, 1 it is not, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[arg(hide = true)]
    words: Vec<String>,
    /// Also collect the Secrets of the mesh, with everything in them.
    #[arg(long)]
    full_secrets: bool,
    /// Leave out the objects of the cluster.
    #[arg(long)]
    skip_cluster_dump: bool,
    /// Leave out the configuration and the numbers of proxies.
    #[arg(long)]
    skip_proxy_debug: bool,
    /// Lines of each log, the last ones; all if 0.
    #[arg(long, value_name = "LINES", default_value_t = 0)]
    tail: usize,
    /// Namespaces to collect from, separated by commas; all if none is named.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    include: Vec<String>,
    /// Namespaces to leave out, separated by commas.
    #[arg(
        long,
        value_name = "NAMESPACES",
        value_delimiter = ',',
        default_value = "kube-node-lease,kube-public,kube-system,local-path-storage"
    )]
    exclude: Vec<String>,
    /// Lines of logs since so long ago.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = go_duration, conflicts_with = "start_time")]
    duration: std::time::Duration,
    /// Lines of logs from this time on, such as 2026-01-02T15:04:05Z.
    #[arg(long, value_name = "TIME")]
    start_time: Option<Timestamp>,
    /// Lines of logs up to this time.
    #[arg(long, value_name = "TIME")]
    end_time: Option<Timestamp>,
    /// Directory to write the archive into.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    output_dir: std::path::PathBuf,
    /// Name of the archive, without its ending.
    #[arg(long, value_name = "NAME", default_value = "bug-report")]
    filename: String,
    /// Say what would be collected and collect nothing.
    #[arg(long)]
    dry_run: bool,
    /// Port of Envoy's administration interface.
    #[arg(long, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the version of this program.
    Version(VersionFlags),
}

pub(crate) fn run(
    persona: Persona,
    global: &Global,
    kube: &KubeArguments,
    arguments: &Arguments,
) -> ExitCode {
    if let Some(Command::Version(flags)) = &arguments.command {
        return print(&version::render(&BuildInfo::current(), *flags), ExitCode::SUCCESS);
    }
    if persona == Persona::Istioctl && !kube.is_configured() {
        // Parity: istioctl asks by way of kubectl, and words do not matter to it.
        let words = "Error: kubectl error: exit status 1\n\nstderr:\nerror: no kubeconfig was found; name one by \
                     --kubeconfig or $KUBECONFIG\n";
        return say(words, exit::FAILURE);
    }
    if let Some(word) = arguments.words.first() {
        return say(
            &format!("Error: unknown command {word:?} for \"{} bug-report\"\n", persona.program()),
            exit::usage(),
        );
    }
    match collect(global, kube, arguments) {
        Ok(text) => say(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn collect(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> anyhow::Result<String> {
    if !kube.is_configured() {
        bail!("no kubeconfig was found; name one by --kubeconfig or $KUBECONFIG");
    }
    let cluster = Cluster::connect(kube)?;
    let now = Timestamp::now();
    let start = match arguments.start_time {
        Some(start) => start,
        None => now.checked_sub(arguments.duration).context("--duration is too long")?,
    };
    let end = arguments.end_time.unwrap_or(now + Span::new().hours(1));
    let is_meant = |namespace: &str| {
        let named = |list: &[String]| list.iter().any(|one| one == namespace);
        (arguments.include.is_empty() || named(&arguments.include)) && !named(&arguments.exclude)
    };
    let pods = cluster.list(Kind::Pod, "")?;
    let pods: Vec<PodToCollect> = pods.iter().filter_map(|pod| PodToCollect::read(pod, global)).collect();
    let pods: Vec<PodToCollect> = pods.into_iter().filter(|pod| is_meant(&pod.namespace)).collect();
    if arguments.dry_run {
        let lines: String = pods.iter().map(|pod| format!("  {}/{}\n", pod.namespace, pod.name)).collect();
        return Ok(format!("Would collect the objects of the mesh and from these pods:\n{lines}"));
    }
    let path = arguments.output_dir.join(format!("{}.tar.gz", arguments.filename));
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut archive = Archive::new(file, &arguments.filename);
    // Secrets stay in the cluster unless they are asked for.
    let kinds = Kind::ALL.iter().copied().filter(|kind| *kind != Kind::Secret || arguments.full_secrets);
    for kind in kinds.filter(|_| !arguments.skip_cluster_dump) {
        match cluster.list(kind, "") {
            Ok(objects) if objects.is_empty() => {}
            Ok(objects) => {
                let text: Vec<String> = objects.iter().map(yaml::node_to_string).collect();
                archive
                    .add(&format!("objects/{}.yaml", kind.info().plural), text.join("---\n").as_bytes())?;
            }
            Err(error) => archive.fail(&format!("{}: {error:#}", kind.info().plural)),
        }
    }
    for pod in &pods {
        say(&format!("{}/{}\n", pod.namespace, pod.name), ExitCode::SUCCESS);
        pod.collect(&cluster, arguments, start, end, &mut archive)?;
    }
    let failures = archive.finish()?;
    let note =
        if failures == 0 { String::new() } else { format!(", {failures} things missing (errors.txt)") };
    Ok(format!("Wrote {}{note}.\n", path.display()))
}

/// A pod of the mesh.
struct PodToCollect {
    namespace: String,
    name: String,
    is_control_plane: bool,
    /// The containers whose logs are taken.
    containers: Vec<String>,
}

impl PodToCollect {
    /// A pod with a proxy or of the control plane; `None` for others.
    fn read(pod: &Node, global: &Global) -> Option<Self> {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Node::as_str).unwrap_or_default();
        let containers = ["/spec/containers", "/spec/initContainers"]
            .iter()
            .filter_map(|pointer| pod.pointer(pointer)?.as_list())
            .flatten()
            .filter_map(|container| container.get("name")?.as_str());
        let namespace = text("/metadata/namespace");
        let is_system = namespace == global.istio_namespace;
        let is_control_plane = is_system && text("/metadata/labels/app") == "istiod";
        let wanted: Vec<String> =
            containers.filter(|name| is_system || *name == "istio-proxy").map(str::to_owned).collect();
        (!wanted.is_empty()).then(|| Self {
            namespace: namespace.to_owned(),
            name: name_of(pod).unwrap_or_default(),
            is_control_plane,
            containers: wanted,
        })
    }

    fn collect(
        &self,
        cluster: &Cluster,
        arguments: &Arguments,
        start: Timestamp,
        end: Timestamp,
        archive: &mut Archive,
    ) -> anyhow::Result<()> {
        let Self { namespace, name, .. } = self;
        let admin_port = arguments.proxy_admin_port;
        let lines = if arguments.tail == 0 { LOG_LINES } else { arguments.tail.min(LOG_LINES) };
        let directory = format!("pods/{namespace}/{name}");
        for container in &self.containers {
            let path = format!(
                "/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&tailLines={lines}&sinceTime={start}"
            );
            match cluster.text(&path) {
                Ok(log) => archive.add(
                    &format!("{directory}/{container}.log"),
                    lines_between(&log, start, end).as_bytes(),
                )?,
                Err(error) => archive.fail(&format!("log of {namespace}/{name} {container}: {error:#}")),
            }
        }
        let pages: &[(u16, &str)] = if self.is_control_plane {
            &PAGES.map(|page| (8080, page))
        } else if !arguments.skip_proxy_debug
            && self.containers.iter().any(|container| container == "istio-proxy")
        {
            &[(admin_port, "/config_dump?include_eds"), (admin_port, "/clusters"), (admin_port, "/stats")]
        } else {
            &[]
        };
        for (port, page) in pages {
            match cluster.ask_pod(namespace, name, *port, Method::GET, page) {
                Ok(answer) => {
                    let file = page.trim_start_matches('/').replace(['/', '?'], "_");
                    archive.add(&format!("{directory}/{file}"), &answer)?;
                }
                Err(error) => archive.fail(&format!("{namespace}/{name} {page}: {error:#}")),
            }
        }
        Ok(())
    }
}

/// The archive that is written.
struct Archive {
    tar: tar::Builder<GzEncoder<File>>,
    root: String,
    failures: Vec<String>,
}

impl Archive {
    fn new(file: File, root: &str) -> Self {
        let tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        Self { tar, root: root.to_owned(), failures: Vec::new() }
    }

    fn add(&mut self, path: &str, content: &[u8]) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(content.len())?);
        header.set_mode(0o644);
        let path = format!("{}/{path}", self.root);
        self.tar.append_data(&mut header, &path, content).with_context(|| format!("cannot write {path}"))
    }

    fn fail(&mut self, what: &str) {
        self.failures.push(format!("{what}\n"));
    }

    /// Ends the archive; how many things are missing in it.
    fn finish(mut self) -> anyhow::Result<usize> {
        let failures = std::mem::take(&mut self.failures);
        if !failures.is_empty() {
            self.add("errors.txt", failures.concat().as_bytes())?;
        }
        self.tar.into_inner()?.finish()?;
        Ok(failures.len())
    }
}

/// The lines of a log from `start` to `end`. Lines without a time of their own belong to the line before them.
pub fn lines_between(log: &str, start: Timestamp, end: Timestamp) -> String {
    let mut text = String::new();
    let mut is_within = false;
    for line in log.lines() {
        if let Some(time) = time_of(line) {
            is_within = start <= time && time <= end;
        }
        if is_within {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// When a line was logged: JSON with a `time`, or text with the time up to a tab or two spaces and a level after it.
fn time_of(line: &str) -> Option<Timestamp> {
    const LEVELS: [&str; 6] = ["fatal", "error", "warn", "info", "debug", "trace"];
    let is_level = |text: &str| LEVELS.iter().any(|level| text.eq_ignore_ascii_case(level));
    if line.starts_with('{') {
        let fields: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_entry = fields["level"].as_str().is_some_and(is_level)
            && fields["msg"].as_str().or(fields["message"].as_str()).is_some_and(|text| !text.is_empty());
        return is_entry.then(|| fields["time"].as_str()?.parse().ok()).flatten();
    }
    let mut words = line.split(['\t', ' ']).filter(|word| !word.is_empty());
    let time = words.next()?.parse().ok()?;
    words.next().is_some_and(is_level).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continued_lines_stay_with_their_beginning() {
        let log = "2026-01-02T03:04:05Z\tinfo\ta\n2026-01-02T03:04:06Z\tinfo\tb\n  more\n2026-01-02T03:04:07Z\tinfo\tc\n";
        let at = |text: &str| text.parse().unwrap();
        let got = lines_between(log, at("2026-01-02T03:04:06Z"), at("2026-01-02T03:04:06Z"));
        assert_eq!(got, "2026-01-02T03:04:06Z\tinfo\tb\n  more\n");
    }

    #[test]
    fn what_is_no_entry_has_no_time() {
        for line in ["", "hello", "2026-01-02T03:04:05Z\tloud\tx", "{\"time\":\"2026-01-02T03:04:05Z\"}", "{"]
        {
            assert_eq!(time_of(line), None, "{line}");
        }
    }
}
