//! The live view on a terminal of tmux.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::lab::{beside, eventually, search_path, text};
use crate::tour::sample;

/// A terminal with its own tmux server; ended when dropped.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn start(words: &[&str]) -> Result<Self> {
        let terminal = Self { socket: format!("canopus-view-{}", std::process::id()) };
        let mut arguments = vec!["-f", "/dev/null", "new-session", "-d", "-x", "140", "-y", "44"];
        arguments.extend(words);
        terminal.tmux(&arguments)?;
        Ok(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("tmux");
        let output =
            command.args(["-L", &self.socket]).args(arguments).env("PATH", search_path()?).output()?;
        ensure!(output.status.success(), "tmux {arguments:?}: {}", text(&output));
        Ok(text(&output))
    }

    fn screen(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p"])
    }

    fn shows(&self, wanted: &[&str]) -> Result<String> {
        eventually(|| {
            let screen = self.screen()?;
            for text in wanted {
                ensure!(screen.contains(text), "{text:?} is not on the screen:\n{screen}");
            }
            Ok(screen)
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

pub(crate) fn on_a_terminal() -> Result<()> {
    ensure!(Command::new("tmux").arg("-V").output().is_ok(), "tmux is not on PATH; install it");
    let sample = sample(18_081)?;
    let canopus = beside("canopus");
    let (canopus, directory) = (canopus.to_str().context("path")?, sample.path().to_str().context("path")?);
    let terminal = Terminal::start(&[canopus, "up", directory])?;
    // Rates, latencies and mutual TLS are the proxies' own.
    terminal.shows(&[
        "canopus · storefront",
        "processes ready",
        "catalogue",
        "grpc",
        "100.0 %",
        "yes",
        "web ─▶ reviews",
    ])?;
    terminal.tmux(&["send-keys", "3"])?;
    terminal.shows(&["✓ Deny by policy", "403", "AuthorizationPolicy/shop/no-reviews-for-web"])?;
    terminal.tmux(&["send-keys", "0"])?;
    terminal.tmux(&["send-keys", "q"])?;
    eventually(|| {
        ensure!(!sample.path().join(".canopus").exists(), "the mesh has not ended");
        Ok(())
    })
}
