use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use anyhow::bail;

use crate::output::say;

/// Asks a person. Where there is none, the command line has to say it.
pub(super) fn confirm(question: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("nobody can be asked; say --skip-confirmation (-y) to go on, or --dry-run to look");
    }
    say(&format!("{question} (y/N) "), ExitCode::SUCCESS);
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
