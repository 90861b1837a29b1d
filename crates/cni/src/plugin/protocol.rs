//! The conventions between container runtimes and plugins.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use canopus_runtime::flags::Flags;
use canopus_runtime::log::{self, LogFlags, Scopes};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{add, event, log_socket, report};
use crate::install::PluginConfig;

/// The versions of the specification that the plugin follows.
const VERSIONS: [&str; 8] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.0.1", "1.1.0"];

/// Configurations larger than this are not read.
const MAX_INPUT: u64 = 4 << 20;

/// The log file of the plugin is begun anew when it is larger than this.
const MAX_LOG: u64 = 10 << 20;

/// Why a call failed, with the code of the specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: u32,
    message: String,
}

impl Failure {
    /// A variable is missing or malformed.
    pub fn environment(message: impl Into<String>) -> Self {
        Self { code: 4, message: message.into() }
    }

    /// The configuration cannot be decoded.
    pub fn undecodable(message: impl Into<String>) -> Self {
        Self { code: 6, message: message.into() }
    }

    /// The configuration, or the pod's, is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { code: 7, message: message.into() }
    }

    /// The plugin cannot answer yet; the runtime should try again.
    pub fn try_later(message: impl Into<String>) -> Self {
        Self { code: 11, message: message.into() }
    }

    /// Any other failure.
    pub fn other(message: impl Into<String>) -> Self {
        Self { code: 100, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What a container runtime asks for.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// `ADD`, `DEL`, `CHECK`, `VERSION`, `STATUS` or `GC`.
    pub command: String,
    /// The file of the pod's network namespace.
    pub namespace: PathBuf,
    /// The plugin's configuration.
    pub config: PluginConfig,
    /// The result of the plugins before this one.
    pub previous: Option<Value>,
    arguments: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Input {
    #[serde(flatten)]
    config: PluginConfig,
    #[serde(rename = "prevResult")]
    previous: Option<Value>,
}

impl Call {
    /// Reads a call.
    pub fn read(flags: &Flags, input: &[u8]) -> Result<Self, Failure> {
        let variable = |name: &str| flags.variable(name).filter(|value| !value.is_empty());
        let required = |name: &'static str| {
            variable(name)
                .map(str::to_owned)
                .ok_or_else(|| Failure::environment(format!("{name} is not set")))
        };
        let command = required("CNI_COMMAND")?;
        let input: Input = serde_json::from_slice(input).map_err(|error| {
            Failure::undecodable(format!("the network configuration on standard input: {error}"))
        })?;
        let namespace = if command == "ADD" { required("CNI_NETNS")? } else { String::new() };
        let arguments = variable("CNI_ARGS").unwrap_or_default().split(';').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                Failure::environment(format!("CNI_ARGS: {pair:?} is not of the form NAME=VALUE"))
            })?;
            Ok((key.to_owned(), value.to_owned()))
        };
        Ok(Self {
            command,
            namespace: namespace.into(),
            config: input.config,
            previous: input.previous,
            arguments: arguments.map(pair).collect::<Result<_, _>>()?,
        })
    }

    /// The value of a key of `CNI_ARGS`; empty if it is missing.
    pub fn argument(&self, name: &str) -> &str {
        self.arguments.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The result of the chain.
    fn result(&self) -> Value {
        let version = if self.config.cni_version.is_empty() { "0.1.0" } else { &self.config.cni_version };
        match &self.previous {
            Some(Value::Object(previous)) => {
                let mut result = previous.clone();
                result.entry("cniVersion").or_insert_with(|| version.into());
                Value::Object(result)
            }
            _ => json!({"cniVersion": version, "dns": {}}),
        }
    }
}

/// Runs as the plugin.
pub fn main() -> ExitCode {
    let flags = Flags::from_env();
    if flags.variable("CNI_COMMAND") == Some("VERSION") {
        return print(&json!({"cniVersion": VERSIONS[VERSIONS.len() - 1], "supportedVersions": VERSIONS}));
    }
    let mut input = Vec::new();
    let read = io::stdin()
        .take(MAX_INPUT)
        .read_to_end(&mut input)
        .map_err(|error| Failure::undecodable(error.to_string()));
    let call = match read.and_then(|_| Call::read(&flags, &input)) {
        Ok(call) => call,
        Err(failure) => return fail("", &failure),
    };
    let outcome = match call.command.as_str() {
        "ADD" => run_add(&call, &flags).map(|()| Some(call.result())),
        // Rules are gone with the namespace, and the agent hears of the pod's end from the API server.
        "DEL" | "CHECK" | "GC" => Ok(None),
        "STATUS" => status(&call).map(|()| None),
        other => Err(Failure::environment(format!("CNI_COMMAND: {other:?} is not known"))),
    };
    match outcome {
        Ok(Some(result)) => print(&result),
        Ok(None) => ExitCode::SUCCESS,
        Err(failure) => fail(&call.config.cni_version, &failure),
    }
}

fn run_add(call: &Call, flags: &Flags) -> Result<(), Failure> {
    let began = Instant::now();
    let directory = Path::new(&call.config.cni_agent_run_dir);
    let scopes = Scopes::new();
    let log = LogFlags {
        log_target: log_targets(directory),
        log_as_json: true,
        log_output_level: level(&call.config.plugin_log_level).to_owned(),
        ..LogFlags::default()
    };
    // A log that cannot be written must not keep pods from starting.
    let _guard = log::install(&scopes, &log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::other(error.to_string()))?;
    let outcome = runtime.block_on(add(call, flags));
    let (severity, message) = report(call, &outcome, began);
    match severity {
        "error" => tracing::error!("{message}"),
        _ => tracing::info!("{message}"),
    }
    if severity == "error" || level(&call.config.plugin_log_level) != "error" {
        runtime.block_on(event::send_log(&log_socket(directory), severity, &message));
    }
    runtime.shutdown_background();
    outcome.map(drop)
}

fn level(text: &str) -> &str {
    if matches!(text, "debug" | "info" | "warn" | "error" | "none") { text } else { "warn" }
}

/// Standard error, which container runtimes log, and a file beside the agent's sockets.
fn log_targets(directory: &Path) -> Vec<String> {
    let mut targets = vec!["stderr".to_owned()];
    let file = directory.join("istio-cni.log");
    if directory.is_dir() {
        if std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() > MAX_LOG) {
            let _ = std::fs::rename(&file, directory.join("istio-cni.log.old"));
        }
        targets.push(file.display().to_string());
    }
    targets
}

/// Whether pods can be added now.
fn status(call: &Call) -> Result<(), Failure> {
    let kubeconfig = Path::new(&call.config.cni_agent_run_dir).join(crate::install::KUBECONFIG);
    match std::fs::metadata(&kubeconfig) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure { code: 50, message: format!("{}: {error}", kubeconfig.display()) }),
    }
}

fn print(value: &Value) -> ExitCode {
    match writeln!(io::stdout(), "{value}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(version: &str, failure: &Failure) -> ExitCode {
    let version = if version.is_empty() { "0.1.0" } else { version };
    let _ =
        print(&json!({"cniVersion": version, "code": failure.code, "msg": format!("istio-cni: {failure}")}));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(variables: &[(&str, &str)], input: &str) -> Result<Call, Failure> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables: std::collections::BTreeMap<String, String> = variables.collect();
        Call::read(&Flags::read(&variables), input.as_bytes())
    }

    #[test]
    fn arguments_are_found_by_name() {
        let variables = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_NETNS", "/run/netns/a"),
            ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=web-0;"),
        ];
        let call =
            call(&variables, r#"{"cniVersion":"1.0.0","type":"istio-cni","prevResult":{"ips":[]}}"#).unwrap();
        assert_eq!(call.argument("K8S_POD_NAME"), "web-0");
        assert_eq!(call.argument("K8S_POD_NAMESPACE"), "");
        assert_eq!(call.result(), json!({"cniVersion": "1.0.0", "ips": []}));
    }

    #[test]
    fn malformed_calls_have_the_codes_of_the_specification() {
        assert_eq!(call(&[], "{}").unwrap_err().code, 4);
        assert_eq!(call(&[("CNI_COMMAND", "ADD")], "{}").unwrap_err().to_string(), "CNI_NETNS is not set");
        assert_eq!(call(&[("CNI_COMMAND", "DEL")], "[").unwrap_err().code, 6);
        assert_eq!(call(&[("CNI_COMMAND", "DEL"), ("CNI_ARGS", "a")], "{}").unwrap_err().code, 4);
    }
}
