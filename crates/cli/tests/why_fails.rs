//! The page `docs/why-does-my-request-fail.md` shows what the commands print: each of them is run on the objects of its section,
//! which are in `tests/failing`. `UPDATE_GOLDENS=1` writes what they print into the page.
#![expect(clippy::unwrap_used, reason = "a test that cannot run the programs has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "whoever runs the test says by a variable that the page is to be written"
)]

#[path = "support/plane.rs"]
mod plane;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use canopus_xds::types::LISTENER;
use plane::Plane;
use tempfile::TempDir;
use tokio::time::timeout;

const PROMPT: &str = "$ canopus ";
const FENCE: &str = "```";
/// The client and the server of the page, as pods of the files.
const CLIENT: &str = "web-1.shop";
const SERVER: &str = "cart-1.shop";

fn fixture(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failing").join(name)).unwrap()
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/why-does-my-request-fail.md")
}

/// The objects of a section of the page, and the dumps that its proxies would answer with.
struct Section {
    directory: TempDir,
}

impl Section {
    fn new(number: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let mesh = directory.path().join("mesh");
        fs::create_dir(&mesh).unwrap();
        fs::write(mesh.join("base.yaml"), fixture("base.yaml")).unwrap();
        fs::write(mesh.join("cart.yaml"), fixture(&format!("{number}.yaml"))).unwrap();
        let section = Self { directory };
        for (pod, file) in [(CLIENT, "client.json"), (SERVER, "server.json")] {
            let dump = section.run(&["generate", "-f", "mesh", "--pod", pod, "-o", "config_dump"]);
            fs::write(section.directory.path().join(file), dump).unwrap();
        }
        section
    }

    fn run(&self, arguments: &[&str]) -> String {
        let program = env!("CARGO_BIN_EXE_canopus");
        let output = Command::new(program)
            .args(arguments)
            .env("NO_COLOR", "1")
            .env("KUBECONFIG", "/dev/null")
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// What a command of the page prints. Pods of the page are those of the files, without a cluster.
    async fn answer(&self, line: &str) -> String {
        let line = line.replace(&format!("explain {CLIENT}"), "explain -f client.json --server server.json");
        let words = words(&line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.first() {
            Some(&"wait") => waited(&words).await,
            _ => self.run(&words),
        }
    }
}

/// The words of a command line; quotes keep some together.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(at, part)| match at % 2 {
            1 => vec![part.to_owned()],
            _ => part.split_whitespace().map(str::to_owned).collect(),
        })
        .collect()
}

/// What is said to somebody who waits for a change that a proxy has not acknowledged.
async fn waited(words: &[&str]) -> String {
    let plane = Plane::start(&[("base.yaml".to_owned(), fixture("base.yaml"))]).await.unwrap();
    let mut client = plane.sidecar("web", "shop", "10.0.0.1").await.unwrap();
    // The proxy has everything, then it falls silent.
    while timeout(Duration::from_secs(1), client.step()).await.is_ok() {}
    assert!(client.follower().held(LISTENER).count() > 0);
    fs::write(plane.objects().join("cart.yaml"), fixture("5.yaml")).unwrap();
    let program = env!("CARGO_BIN_EXE_canopus").to_owned();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let url = plane.url();
    let run = move || Command::new(program).args(words).args(["--daemon", &url]).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn the_page_shows_what_commands_print() {
    let text = fs::read_to_string(page()).unwrap();
    let (mut written, mut section, mut commands) = (String::new(), None, 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        written.push_str(line);
        written.push('\n');
        if let Some(number) = line.strip_prefix("## ").and_then(|title| title.split_once('.')).map(|(n, _)| n)
        {
            section = Some(Section::new(number));
        }
        let Some(command) = line.strip_prefix(PROMPT) else { continue };
        let section = section.as_ref().expect("commands stand in sections");
        written.push_str(&section.answer(command).await);
        commands += 1;
        // What the page has there now goes on until the next command or the end of the block.
        let shown = lines.clone().take_while(|line| !line.starts_with(PROMPT) && *line != FENCE).count();
        for _ in 0..shown {
            lines.next();
        }
    }
    assert!(commands >= 8, "the page shows only {commands} commands");
    let updates = std::env::var_os("UPDATE_GOLDENS").is_some();
    if updates {
        fs::write(page(), &written).unwrap();
    } else {
        assert!(written == text, "the page is not what commands print; they print\n{written}");
    }
}
