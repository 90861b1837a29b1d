//! The live view on a terminal of tmux.

use anyhow::{Context as _, Result, ensure};

use crate::lab::eventually;
use crate::terminal::Terminal;
use crate::tour::sample;

/// The steps of the tour: name, title once it has passed, and what the screen shows of it, as far as a line is not broken there.
const STEPS: [(&str, &str, &[&str]); 7] = [
    (
        "shift",
        "✓ Shift traffic",
        &["kind: DestinationRule", "weight: 90", "weight: 10", "acknowledged by 8", "400 requests"],
    ),
    ("fault", "✓ Inject a fault", &["delay: {percentage", "reviews: takes"]),
    ("deny", "✓ Deny by policy", &["action: DENY"]),
    ("strict", "✓ Refuse plain text", &["kind: PeerAuthentication"]),
    ("break", "✓ Break mutual TLS", &["kind: DestinationRule"]),
    ("quarantine", "✓ Apply an object that Envoy rejects", &["kind: EnvoyFilter"]),
    ("outage", "✓ Kill the control plane", &["canopusd up"]),
];

pub(crate) fn on_a_terminal() -> Result<()> {
    let sample = sample(18_081)?;
    let directory = sample.path().to_str().context("path")?;
    let terminal = Terminal::start("view", (150, 50), &["up", directory])?;
    // Rates, latencies and mutual TLS are the proxies' own.
    let screen = terminal.shows(&[
        "canopus · storefront",
        "processes ready",
        "canopusd up",
        "network namespaces",
        "🔒",
        "web ─▶ reviews",
        "web ─▶ payments.example.com",
        "catalogue ─▶ inventory",
    ])?;
    services(&terminal)?;
    terminal.keep("0-before", &screen)?;
    for (index, (name, title, words)) in STEPS.iter().enumerate() {
        let key = (index + 1).to_string();
        terminal.press(&key)?;
        if *name == "outage" {
            terminal.shows(&["canopusd away", "● Kill the control plane"])?;
        }
        let wanted: Vec<&str> = std::iter::once(*title).chain(words.iter().copied()).collect();
        let screen = terminal.shows(&wanted)?;
        ensure!(!screen.contains("FAILED") && !screen.contains('✗'), "{screen}");
        terminal.keep(&format!("{key}-{name}"), &screen)?;
    }
    small_screen(&terminal)?;
    terminal.press("q")?;
    terminal.ended()?;
    eventually(|| {
        ensure!(!sample.path().join(".canopus").exists(), "the mesh has not ended");
        Ok(())
    })
}

/// Every version of every service has a row with its protocol, a rate, success and latencies.
fn services(terminal: &Terminal) -> Result<()> {
    let rows = [
        ("catalogue", "v1", "http"),
        ("cart", "v1", "grpc"),
        ("inventory", "v1", "tcp"),
        ("reviews", "v1", "http"),
        ("reviews", "v2", "http"),
        ("reviews", "v3", "http"),
    ];
    eventually(|| {
        let screen = terminal.shows(&["SERVICE"])?;
        for (service, version, protocol) in rows {
            let row = screen.lines().find(|line| {
                let words: Vec<&str> = line.trim_start_matches('│').split_whitespace().take(3).collect();
                words == [service, version, protocol]
            });
            let row = row.with_context(|| format!("{service} {version}:\n{screen}"))?;
            let wanted: &[&str] =
                if protocol == "tcp" { &["c/s", "🔒"] } else { &["/s", "100.0 %", " ms", "🔒"] };
            for text in wanted {
                ensure!(row.contains(text), "{text:?} is not in the row {row}");
            }
        }
        ensure!(screen.contains("payments.example.com"), "{screen}");
        Ok(())
    })
}

/// A step and its YAML are to be seen on the smallest terminal too.
fn small_screen(terminal: &Terminal) -> Result<()> {
    terminal.resize(80, 24)?;
    terminal.press("1")?;
    let screen =
        terminal.shows(&["kind: DestinationRule", "host: reviews", "acknowledged by", "400 requests"])?;
    terminal.keep("8-small", &screen)?;
    terminal.press("y")?;
    let screen = terminal.shows(&["kind: DestinationRule", "weight: 90", "weight: 10"])?;
    terminal.keep("9-objects", &screen)?;
    terminal.press("y")?;
    terminal.shows(&["SERVICE", "acknowledged by"])?;
    terminal.press("0")?;
    terminal.shows(&["taken back"]).map(drop)
}
