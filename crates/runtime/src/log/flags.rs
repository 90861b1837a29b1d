//! The `--log_*` flags that every binary takes, and what they do to the scopes.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::level::{Level, UnknownLevel};
use super::scopes::{DEFAULT_SCOPE, Scopes, UnknownScope};

/// Command-line flags of the log, to be flattened into a command.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct LogFlags {
    /// Where to write the log: a file path, stdout or stderr; may be given more than once
    #[arg(long = "log_target", value_name = "TARGET", default_value = "stdout")]
    pub log_target: Vec<String>,

    /// Write one JSON object per line instead of text
    #[arg(
        long = "log_as_json",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub log_as_json: bool,

    /// Least severe level to print, per scope: `<scope>:<level>,…`; without a scope the level is for
    /// "default", and "all" names every scope; levels are debug, info, warn, error, fatal and none
    #[arg(long = "log_output_level", value_name = "LEVELS", default_value = "", hide_default_value = true)]
    pub log_output_level: String,

    /// Least severe level to print with a stack trace, written as for --log_output_level
    #[arg(long = "log_stacktrace_level", value_name = "LEVELS", default_value = "default:none")]
    pub log_stacktrace_level: String,

    /// Comma-separated scopes whose messages carry file and line
    #[arg(long = "log_caller", value_name = "SCOPES", default_value = "", hide_default_value = true)]
    pub log_caller: String,
}

impl Default for LogFlags {
    fn default() -> Self {
        LogFlags {
            log_target: vec!["stdout".to_owned()],
            log_as_json: false,
            log_output_level: String::new(),
            log_stacktrace_level: "default:none".to_owned(),
            log_caller: String::new(),
        }
    }
}

/// The verbosity flag of the Kubernetes client, which Istio's binaries take on every command.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct KlogFlags {
    /// Verbosity of the Kubernetes client's log; anything above 0 sets its scope "klog" to debug
    #[arg(
        long = "vklog",
        value_name = "LEVEL",
        default_value_t = 0,
        hide_default_value = true,
        global = true
    )]
    pub vklog: i32,
}

impl KlogFlags {
    /// Raises the scope `klog` if a verbosity was asked for.
    pub fn apply(self, scopes: &Scopes) {
        if self.vklog > 0 {
            scopes.set("klog", Level::Debug).expect("klog is a built-in scope");
        }
    }
}

/// A `--log_*` flag that cannot be understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelListError {
    /// An entry with more than one colon.
    #[error("--{flag}: {entry:?} is not of the form <scope>:<level>")]
    Malformed {
        /// Flag name.
        flag: &'static str,
        /// The entry as given.
        entry: String,
    },
    /// An entry whose level does not exist.
    #[error("--{flag}: {source}")]
    Level {
        /// Flag name.
        flag: &'static str,
        /// The word that is no level.
        source: UnknownLevel,
    },
}

impl LogFlags {
    /// Applies the flags and returns the scopes they name that this build does not have.
    // Parity: the same flags are passed to binaries with different scopes, so an unknown scope is no error.
    pub fn apply(&self, scopes: &Scopes) -> Result<Vec<UnknownScope>, LevelListError> {
        let levels = parse_levels("log_output_level", &self.log_output_level)?;
        let stacks = parse_levels("log_stacktrace_level", &self.log_stacktrace_level)?;
        let callers = entries(&self.log_caller);

        let outcomes = levels
            .into_iter()
            .map(|(scope, level)| scopes.set(scope, level))
            .chain(stacks.into_iter().map(|(scope, level)| scopes.set_stack_trace(scope, level)))
            .chain(callers.map(|scope| scopes.set_callers(scope, true)));
        Ok(outcomes.filter_map(Result::err).collect())
    }
}

fn parse_levels<'a>(flag: &'static str, list: &'a str) -> Result<Vec<(&'a str, Level)>, LevelListError> {
    entries(list).map(|entry| parse_entry(flag, entry)).collect()
}

fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|entry| !entry.is_empty())
}

fn parse_entry<'a>(flag: &'static str, entry: &'a str) -> Result<(&'a str, Level), LevelListError> {
    let (scope, level) = entry.split_once(':').unwrap_or((DEFAULT_SCOPE, entry));
    if level.contains(':') {
        return Err(LevelListError::Malformed { flag, entry: entry.to_owned() });
    }
    let level = level.parse().map_err(|source| LevelListError::Level { flag, source })?;
    Ok((scope, level))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        log: LogFlags,
        #[command(flatten)]
        klog: KlogFlags,
    }

    fn parse(args: &[&str]) -> Command {
        Command::try_parse_from([&["test"], args].concat()).expect("flags parse")
    }

    fn output_level(scopes: &Scopes, name: &str) -> Level {
        scopes.get(name).unwrap().output_level
    }

    #[test]
    fn defaults_are_those_of_the_command_line() {
        let parsed = parse(&[]).log;
        let default = LogFlags::default();
        assert_eq!(format!("{parsed:?}"), format!("{default:?}"));
    }

    #[test]
    fn boolean_takes_a_value_only_after_an_equals_sign() {
        assert!(parse(&["--log_as_json"]).log.log_as_json);
        assert!(parse(&["--log_as_json=true"]).log.log_as_json);
        assert!(!parse(&["--log_as_json=false"]).log.log_as_json);
    }

    #[test]
    fn target_repeats() {
        let flags = parse(&["--log_target", "stderr", "--log_target=/tmp/a,b"]).log;
        assert_eq!(flags.log_target, ["stderr", "/tmp/a,b"]);
    }

    #[test]
    fn applies_levels_in_order() {
        let scopes = Scopes::new();
        let flags = parse(&["--log_output_level", "all:error,klog:debug,warn", "--log_caller=klog"]).log;
        assert_eq!(flags.apply(&scopes), Ok(vec![]));
        assert_eq!(output_level(&scopes, "grpc"), Level::Error);
        assert_eq!(output_level(&scopes, "klog"), Level::Debug);
        assert_eq!(output_level(&scopes, "default"), Level::Warn);
        assert!(scopes.get("klog").unwrap().log_callers);
    }

    #[test]
    fn returns_scopes_it_does_not_know() {
        let flags =
            LogFlags { log_output_level: "validation:debug,default:debug".into(), ..Default::default() };
        let scopes = Scopes::new();
        assert_eq!(flags.apply(&scopes), Ok(vec![UnknownScope { name: "validation".into() }]));
        assert_eq!(output_level(&scopes, "default"), Level::Debug);
    }

    #[test]
    fn names_flag_and_entry_when_malformed() {
        let apply = |list: &str| {
            let flags = LogFlags { log_output_level: list.into(), ..Default::default() };
            flags.apply(&Scopes::new()).unwrap_err().to_string()
        };
        assert_eq!(apply("a:b:info"), "--log_output_level: \"a:b:info\" is not of the form <scope>:<level>");
        assert_eq!(
            apply("ads:loud"),
            "--log_output_level: unknown log level \"loud\": use one of debug, info, warn, error, fatal, none"
        );
    }

    #[test]
    fn kubernetes_verbosity_raises_klog() {
        let scopes = Scopes::new();
        parse(&[]).klog.apply(&scopes);
        assert_eq!(output_level(&scopes, "klog"), Level::Info);
        parse(&["--vklog=4"]).klog.apply(&scopes);
        assert_eq!(output_level(&scopes, "klog"), Level::Debug);
    }
}
