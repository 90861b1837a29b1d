//! The live view on a terminal of tmux.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::lab::eventually;
use crate::terminal::{Terminal, panel};
use crate::tour::sample;

/// What the screen shows of a step of the tour.
struct Step {
    name: &'static str,
    title: &'static str,
    /// What the tour's panel tells once the step has passed.
    told: &'static [&'static str],
    /// The file that it applies; proxies acknowledge all but the one that they are to reject.
    file: Option<&'static str>,
    /// What is to be seen elsewhere on the screen.
    elsewhere: &'static [&'static str],
}

/// What Envoy rejects.
const BROKEN: &str = "tour/broken.yaml";

const STEPS: [Step; 7] = [
    Step {
        name: "shift",
        title: "Shift traffic",
        told: &[
            "VirtualService/shop/reviews",
            "DestinationRule/shop/reviews",
            "400 requests to ",
            "v1 ",
            "v3 ",
        ],
        file: Some("tour/shift.yaml"),
        elsewhere: &[],
    },
    Step {
        name: "fault",
        title: "Inject a fault",
        told: &["VirtualService/shop/reviews", "/reviews: takes 4"],
        file: Some("tour/fault.yaml"),
        elsewhere: &[],
    },
    Step {
        name: "deny",
        title: "Deny by policy",
        told: &["AuthorizationPolicy/shop/no-reviews-for-web", "/reviews: 403, after "],
        file: Some("tour/deny.yaml"),
        elsewhere: &[],
    },
    Step {
        name: "strict",
        title: "Refuse plain text",
        told: &["answered before: refused now (connection ", "/: 200, after ", " meanwhile, 0 failed"],
        file: Some("tour/strict.yaml"),
        elsewhere: &[],
    },
    Step {
        name: "break",
        title: "Break mutual TLS",
        told: &["DestinationRule/shop/catalogue", "/: 503, after "],
        file: Some("tour/break.yaml"),
        elsewhere: &[],
    },
    Step {
        name: "quarantine",
        title: "Apply an object that Envoy rejects",
        told: &[
            "rejected by 1 of 1 proxies",
            "EnvoyFilter/shop/broken is held after ",
            " meanwhile, 0 failed",
        ],
        file: Some(BROKEN),
        elsewhere: &["⚠ quarantine: EnvoyFilter/shop/broken: "],
    },
    Step {
        name: "outage",
        title: "Kill the control plane",
        told: &[
            "canopusd is back and serves 8 proxies after ",
            "8 proxies have new certificates after ",
            " meanwhile, 0 failed",
        ],
        file: None,
        elsewhere: &["canopusd up"],
    },
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
    for (index, step) in STEPS.iter().enumerate() {
        let key = (index + 1).to_string();
        terminal.press(&key)?;
        if step.name == "outage" {
            terminal.shows(&["canopusd away"])?;
        }
        let screen = eventually(|| passed(&terminal, step, index + 1))?;
        terminal.keep(&format!("{key}-{}", step.name), &screen)?;
        if let Some(file) = step.file {
            objects(&terminal, sample.path(), file)?;
        }
    }
    small_screen(&terminal, sample.path())?;
    terminal.press("q")?;
    terminal.ended()?;
    eventually(|| {
        ensure!(!sample.path().join(".canopus").exists(), "the mesh has not ended");
        Ok(())
    })
}

/// The screen, if it tells all that a step that has passed is to tell.
fn passed(terminal: &Terminal, step: &Step, number: usize) -> Result<String> {
    let screen = terminal.screen()?;
    let lines = panel(&screen, "tour").with_context(|| screen.clone())?;
    // Where there is no room for titles, there is one line of marks.
    let (title, mark) = (format!("{number} ✓ {}", step.title), format!("{number}✓"));
    ensure!(lines.iter().any(|line| line.contains(&title) || line.contains(&mark)), "{title}:\n{screen}");
    // Long lines are broken at blanks.
    let told = lines.iter().flat_map(|line| line.split_whitespace()).collect::<Vec<_>>().join(" ");
    for words in step.told {
        ensure!(told.contains(words.trim_end()), "the tour does not tell {words:?}:\n{screen}");
    }
    if step.file.is_some_and(|file| file != BROKEN) {
        let (proxies, milliseconds) =
            acknowledged(&told).with_context(|| format!("no acknowledgement:\n{screen}"))?;
        // The three versions of reviews at the least; eight proxies are all there are.
        ensure!(
            (3..=8).contains(&proxies) && milliseconds < 10_000,
            "{proxies} proxies, {milliseconds} ms:\n{screen}"
        );
    }
    for words in step.elsewhere {
        ensure!(screen.contains(words), "{words:?} is not on the screen:\n{screen}");
    }
    ensure!(!told.contains("FAILED") && !screen.contains('✗'), "{screen}");
    Ok(screen)
}

/// How many proxies acknowledged a change, and within how many milliseconds.
fn acknowledged(told: &str) -> Option<(u64, u64)> {
    let (_, rest) = told.split_once(": acknowledged by ")?;
    let (proxies, rest) = rest.split_once(" proxies ")?;
    let (milliseconds, _) = rest.split_once(" ms after the change was seen")?;
    Some((proxies.parse().ok()?, milliseconds.parse().ok()?))
}

/// With the screen for itself, what a step has applied is there as it is in the file.
fn objects(terminal: &Terminal, sample: &Path, file: &str) -> Result<()> {
    let text = fs::read_to_string(sample.join(file))?;
    let wanted: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    terminal.press("y")?;
    eventually(|| {
        let screen = terminal.screen()?;
        let shown = panel(&screen, &format!("cp {file} config/")).with_context(|| screen.clone())?;
        let shown: Vec<&str> = shown.iter().take(wanted.len()).map(|line| line.trim_end()).collect();
        ensure!(shown == wanted, "{file} is to be seen:\n{screen}");
        Ok(())
    })?;
    terminal.press("y")?;
    terminal.shows(&["SERVICE"]).map(drop)
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
fn small_screen(terminal: &Terminal, sample: &Path) -> Result<()> {
    terminal.resize(80, 24)?;
    terminal.press("1")?;
    let screen = eventually(|| passed(terminal, &STEPS[0], 1))?;
    ensure!(screen.contains("kind: DestinationRule"), "{screen}");
    terminal.keep("8-small", &screen)?;
    objects(terminal, sample, "tour/shift.yaml")?;
    terminal.press("0")?;
    terminal.shows(&["taken back"]).map(drop)
}
