//! Log levels of an Envoy, and changing them.

use anyhow::bail;
use http::Method;

use super::target::Access;

/// The level that `--reset` goes back to.
const DEFAULT_LEVEL: &str = "warning";

const LEVELS: [&str; 7] = ["trace", "debug", "info", "warning", "error", "critical", "off"];

/// Print log levels, or change them.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The proxy: `pod`, `pod.namespace` or `deployment/name.namespace`.
    proxy: Option<String>,
    /// Levels to set: one for all loggers, or `logger:level` separated by commas.
    #[arg(long, value_name = "LEVELS", conflicts_with = "reset")]
    level: Option<String>,
    /// Set all loggers to their default level, warning.
    #[arg(short, long)]
    reset: bool,
}

pub(super) fn run(access: &Access<'_>, arguments: &Arguments) -> anyhow::Result<String> {
    let changes = match (&arguments.level, arguments.reset) {
        (_, true) => vec![("level".to_owned(), DEFAULT_LEVEL.to_owned())],
        (Some(levels), false) => parse(levels)?,
        (None, false) => Vec::new(),
    };
    let ask = |path: &str| match (&arguments.proxy, access.address) {
        (Some(proxy), None) => access.ask_proxy(proxy, Method::POST, path),
        (None, Some(address)) => access.ask_address(address, Method::POST, path),
        _ => bail!("log requires pod name or --selector"),
    };
    let mut answer = Vec::new();
    if changes.is_empty() {
        answer = ask("/logging")?;
    }
    for (logger, level) in changes {
        answer = ask(&format!("/logging?{logger}={level}"))?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Reads `level` or `logger:level,…`.
fn parse(levels: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut changes = Vec::new();
    for part in levels.split(',') {
        let (logger, level) = part.split_once([':', '=']).unwrap_or(("level", part));
        let level = if level == "warn" { DEFAULT_LEVEL } else { level };
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !LEVELS.contains(&level) {
            bail!("unrecognized logging level: {level}; use one of {}", LEVELS.join(", "));
        }
        if !is_name(logger) || logger.is_empty() {
            bail!("unrecognized logger name: {logger}");
        }
        changes.push((logger.to_owned(), level.to_owned()));
    }
    // Parity: a level for all goes before those for single loggers, which would be undone by it.
    changes.sort_by_key(|(logger, _)| logger != "level");
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_checked_and_general_ones_go_first() {
        let parsed = parse("http:debug,info").unwrap();
        assert_eq!(parsed[0], ("level".to_owned(), "info".to_owned()));
        assert!(parse("http:loud").is_err());
        assert!(parse("a b:info").is_err());
    }
}
