//! A terminal to see `canopus` on: a session of a tmux server of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::lab::{beside, eventually, search_path, text};

/// The lines of a frame on a screen, by the beginning of its title.
pub(crate) fn panel(screen: &str, title: &str) -> Option<Vec<String>> {
    let beginning = format!("╭ {title}");
    let mut lines = screen.lines().skip_while(|line| !line.contains(&beginning));
    let head = lines.next()?;
    let left = head[..head.find(&beginning)?].chars().count();
    let width = head.chars().skip(left).position(|c| c == '╮')?.saturating_sub(1);
    let inner = lines.take_while(|line| line.chars().nth(left) == Some('│'));
    Some(inner.map(|line| line.chars().skip(left + 1).take(width).collect()).collect())
}

/// The terminal; ended when dropped.
pub(crate) struct Terminal {
    socket: String,
    name: String,
}

impl Terminal {
    /// Runs `canopus` on a terminal of so many columns and lines.
    pub(crate) fn start(name: &str, size: (u16, u16), arguments: &[&str]) -> Result<Self> {
        ensure!(Command::new("tmux").arg("-V").output().is_ok(), "tmux is not on PATH; install it");
        let socket = format!("canopus-{name}-{}", std::process::id());
        let terminal = Self { socket, name: name.to_owned() };
        let canopus = beside("canopus");
        let (columns, lines) = (size.0.to_string(), size.1.to_string());
        let mut words = vec!["-u", "-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &lines];
        words.push(canopus.to_str().context("path")?);
        words.extend(arguments);
        terminal.tmux(&words)?;
        Ok(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("tmux");
        command
            .args(["-L", &self.socket])
            .args(arguments)
            .env("PATH", search_path()?)
            .env("LC_ALL", "C.UTF-8");
        let output = command.output()?;
        ensure!(output.status.success(), "tmux {arguments:?}: {}", text(&output));
        Ok(text(&output))
    }

    pub(crate) fn press(&self, key: &str) -> Result<()> {
        self.tmux(&["send-keys", key]).map(drop)
    }

    /// Another size, as of a window that is drawn smaller.
    pub(crate) fn resize(&self, columns: u16, lines: u16) -> Result<()> {
        let (columns, lines) = (columns.to_string(), lines.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &lines]).map(drop)
    }

    /// What is on the screen now.
    pub(crate) fn screen(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until all of these are on the screen.
    pub(crate) fn shows(&self, wanted: &[&str]) -> Result<String> {
        eventually(|| {
            let screen = self.screen()?;
            for text in wanted {
                ensure!(screen.contains(text), "{text:?} is not on the screen:\n{screen}");
            }
            Ok(screen)
        })
    }

    /// Keeps what is on the screen for people to look at, and says where.
    pub(crate) fn keep(&self, name: &str, screen: &str) -> Result<()> {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screens").join(&self.name);
        fs::create_dir_all(&directory)?;
        Ok(fs::write(directory.join(format!("{name}.txt")), screen)?)
    }

    /// Waits until the program has ended, and its terminal with it.
    pub(crate) fn ended(&self) -> Result<()> {
        eventually(|| {
            ensure!(self.screen().is_err(), "the program has not ended:\n{}", self.screen()?);
            Ok(())
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}
