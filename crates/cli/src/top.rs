//! `canopus top`: what a control plane is doing.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use canopus_base::duration::Duration as GoDuration;
use serde_json::{Map, Value, json};

use crate::cluster::KubeArguments;
use crate::control_plane::{ControlPlane, ControlPlaneArguments};
use crate::exit;
use crate::format::Output;
use crate::global::Global;
use crate::output::{print, say};
use crate::table::{aligned, row};

/// Goes to the first column of the first line and erases what follows. Nothing else of the terminal is changed, so there is
/// nothing to put right when the command is interrupted.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Show what a control plane is doing: pushes, how fast they converge, proxies that are behind, the costliest objects.
///
/// On a terminal the view is refreshed until it is interrupted; in a pipe it is printed once.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  canopus top
  canopus top --daemon http://localhost:8080 --interval 1s
  canopus top --once -o json

Exit codes: 0 printed, 1 the control plane does not answer, 64 the command line makes no sense.")]
pub(crate) struct Arguments {
    /// Print once, also on a terminal.
    #[arg(long)]
    once: bool,
    /// Time between two views.
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    interval: String,
    /// How many objects, proxies and pushes are listed.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    limit: usize,
    /// Output format. JSON and YAML are printed once.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    control_plane: ControlPlaneArguments,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let connected = interval(arguments)
        .and_then(|interval| Ok((interval, arguments.control_plane.connect(global, kube)?)));
    let (interval, plane) = match connected {
        Ok(connected) => connected,
        Err(error) => return say(&format!("Error: {error:#}\n"), exit::FAILURE),
    };
    let is_live = !arguments.once && arguments.output == Output::Text && io::stdout().is_terminal();
    if is_live {
        return follow(&plane, arguments.limit, interval);
    }
    match ask(&plane, arguments.limit) {
        Ok(answer) => print(&arguments.output.render(&answer, text), ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn interval(arguments: &Arguments) -> anyhow::Result<Duration> {
    let interval = arguments.interval.parse::<GoDuration>().ok().and_then(GoDuration::to_std);
    interval.filter(|interval| *interval >= Duration::from_millis(100)).with_context(|| {
        format!("--interval {}: expected a duration of at least 100ms, such as 2s", arguments.interval)
    })
}

/// Shows one view after the other. A control plane that is away for a while is waited for.
fn follow(plane: &ControlPlane, limit: usize, interval: Duration) -> ExitCode {
    loop {
        let view = match ask(plane, limit) {
            Ok(answer) => text(&answer),
            Err(error) => format!("{error:#}\n\nasking again every {interval:?}; interrupt to end\n"),
        };
        let mut terminal = io::stdout().lock();
        if terminal.write_all(format!("{REDRAW}{view}").as_bytes()).and_then(|()| terminal.flush()).is_err() {
            return ExitCode::SUCCESS;
        }
        drop(terminal);
        thread::sleep(interval);
    }
}

/// What all control planes answer, each under its name.
fn ask(plane: &ControlPlane, limit: usize) -> anyhow::Result<Value> {
    let limit = limit.to_string();
    let answers = plane.ask_each("/debug/activity", &[("limit", limit.as_str())])?;
    let planes: Map<String, Value> = answers.into_iter().collect();
    Ok(json!({"controlPlanes": planes}))
}

fn text(answer: &Value) -> String {
    let planes = answer["controlPlanes"].as_object().into_iter().flatten();
    planes.map(|(name, plane)| view(name, plane)).collect::<Vec<_>>().join("\n")
}

fn view(name: &str, plane: &Value) -> String {
    let mut text = String::new();
    let proxies = &plane["proxies"];
    let kinds = proxies["types"].as_object().into_iter().flatten();
    let kinds: Vec<String> = kinds.map(|(kind, count)| format!("{count} {kind}")).collect();
    let _ = writeln!(text, "{name}   revision {}   {}", plane["revision"], word(&plane["time"]));
    let _ = writeln!(
        text,
        "{} proxies ({}): {} behind, {} reject something; {} objects in quarantine\n",
        proxies["connected"],
        if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") },
        proxies["behind"],
        proxies["rejecting"],
        plane["quarantined"],
    );
    let mut rows = vec![row(["LAST", "PUSHES", "OPEN", "MESSAGES", "BYTES", "P50", "P99", "SLOWEST"])];
    for window in list(&plane["windows"]) {
        let took = &window["changeToAckSeconds"];
        let partly = if window["isWhole"] == Value::Bool(false) { "+" } else { "" };
        rows.push(vec![
            span(window["seconds"].as_f64()),
            format!("{}{partly}", window["pushes"]),
            window["open"].to_string(),
            window["messages"].to_string(),
            size(&window["bytes"]),
            span(took["p50"].as_f64()),
            span(took["p99"].as_f64()),
            span(took["max"].as_f64()),
        ]);
    }
    text.push_str(&aligned(&rows, 3));
    section(&mut text, &["OBJECT", "PUSHES", "PROXIES", "BYTES"], list(&plane["objects"]), |object| {
        vec![
            word(&object["object"]).to_owned(),
            object["pushes"].to_string(),
            object["recipients"].to_string(),
            size(&object["bytes"]),
        ]
    });
    section(&mut text, &["BEHIND", "PUSHES", "FOR", "REJECTS"], list(&plane["proxiesBehind"]), |proxy| {
        vec![
            word(&proxy["connection"]).to_owned(),
            proxy["pushes"].to_string(),
            span(proxy["seconds"].as_f64()),
            word(&proxy["rejects"]).to_owned(),
        ]
    });
    section(
        &mut text,
        &["REVISION", "AGO", "CAUSE", "PROXIES", "BYTES", "STATE"],
        list(&plane["pushes"]),
        |push| {
            vec![
                push["revision"].to_string(),
                span(push["secondsAgo"].as_f64()),
                cause(push),
                push["recipients"].to_string(),
                size(&push["bytes"]),
                state(push),
            ]
        },
    );
    text
}

fn section(text: &mut String, titles: &[&str], items: &[Value], cells: impl Fn(&Value) -> Vec<String>) {
    if items.is_empty() {
        return;
    }
    let mut rows = vec![titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>()];
    rows.extend(items.iter().map(cells));
    text.push('\n');
    text.push_str(&aligned(&rows, 3));
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn cause(push: &Value) -> String {
    let count = push["objectCount"].as_u64().unwrap_or_default();
    match (list(&push["objects"]), count) {
        ([], _) => list(&push["reasons"]).iter().map(word).collect::<Vec<_>>().join(","),
        ([first, ..], 0 | 1) => word(first).to_owned(),
        ([first, ..], count) => format!("{} and {} more", word(first), count - 1),
    }
}

/// What became of a push.
fn state(push: &Value) -> String {
    match (push["pending"].as_u64().unwrap_or(0), push["rejected"].as_u64().unwrap_or(0)) {
        (0, 0) => span(push["changeToAckSeconds"].as_f64()),
        (pending, 0) => format!("{pending} pending"),
        (pending, rejected) => format!("{rejected} rejected, {pending} pending"),
    }
}

/// Seconds as people read them.
fn span(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) if seconds < 60.0 => format!("{seconds:.0} s"),
        Some(seconds) if seconds < 3600.0 => format!("{:.0} min", seconds / 60.0),
        Some(seconds) => format!("{:.0} h", seconds / 3600.0),
    }
}

fn size(bytes: &Value) -> String {
    let bytes = bytes.as_f64().unwrap_or_default();
    match bytes {
        bytes if bytes < 10_000.0 => format!("{bytes:.0} B"),
        bytes if bytes < 10_000_000.0 => format!("{:.0} kB", bytes / 1e3),
        bytes if bytes < 10_000_000_000.0 => format!("{:.0} MB", bytes / 1e6),
        bytes => format!("{:.0} GB", bytes / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_names_what_is_going_on() {
        let answer = json!({"controlPlanes": {"istiod-1": {
            "revision": 7, "time": "12:00", "quarantined": 1,
            "proxies": {"connected": 3, "types": {"sidecar": 2, "router": 1}, "behind": 1, "rejecting": 1},
            "windows": [{"seconds": 10, "isWhole": false, "pushes": 2, "open": 1, "messages": 4, "bytes": 12345,
                "changeToAckSeconds": {"p50": 0.004, "p99": 1.5, "max": null}}],
            "objects": [{"object": "VirtualService/shop/cart", "pushes": 2, "recipients": 5, "bytes": 900}],
            "proxiesBehind": [{"connection": "web.shop-1", "pushes": 1, "seconds": 75.0, "rejects": "no such cluster"}],
            "pushes": [{"revision": 7, "secondsAgo": 2.0, "objects": ["A/b/c"], "objectCount": 3, "reasons": ["config"],
                "recipients": 2, "pending": 1, "rejected": 0, "bytes": 10}],
        }}});
        let view = text(&answer);
        for part in [
            "3 proxies (1 router, 2 sidecar): 1 behind, 1 reject something; 1 objects in quarantine",
            "10 s   2+       1      4          12 kB   4.0 ms   2 s   -",
            "VirtualService/shop/cart   2        5         900 B",
            "web.shop-1   1        1 min   no such cluster",
            "A/b/c and 2 more",
            "1 pending",
        ] {
            assert!(view.contains(part), "{part}\n{view}");
        }
    }
}
