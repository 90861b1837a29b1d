//! Arguments as old manifests and hurried people give them.

use std::ffi::{OsStr, OsString};

use canopus_runtime::arguments::{is_flag, without_unknown_flags};
use clap::Command;

/// The command that runs if none is named.
const DEFAULT: &str = "discovery";

/// The arguments that mean something, and the flags that do not.
///
/// Without a command the default one is meant. Parity: a flag nobody knows is passed over together with its value, so that
/// manifests of other versions keep working.
pub(super) fn known(
    root: &Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> (Vec<OsString>, Vec<String>) {
    let mut given = arguments.into_iter();
    let mut kept: Vec<OsString> = given.next().into_iter().collect();
    let mut rest: Vec<OsString> = given.collect();
    let about_root = |argument: &OsStr| argument == "--help" || argument == "-h";
    if rest.first().is_some_and(|first| is_flag(first) && !about_root(first)) {
        rest.insert(0, DEFAULT.into());
    }
    let command = rest.first().and_then(|name| root.find_subcommand(name));
    let Some(command) = command.filter(|command| command.get_name() == DEFAULT) else {
        kept.extend(rest);
        return (kept, Vec::new());
    };
    let name = rest.remove(0);
    let (known, unknown) = without_unknown_flags(command, rest, |_| false);
    kept.push(name);
    kept.extend(known);
    (kept, unknown)
}

/// Says which flags were passed over, before there is a log.
#[allow(clippy::print_stderr)]
pub(super) fn report(unknown: &[String]) {
    for flag in unknown {
        eprintln!("canopusd: flag --{flag} is not known and has no effect");
    }
}

#[cfg(test)]
mod tests {
    use canopus_runtime::arguments::is_known;
    use clap::CommandFactory as _;

    use super::*;
    use crate::command::{Cli, tree};

    fn known_of(arguments: &[&str]) -> (Vec<String>, Vec<String>) {
        let given = ["canopusd"].iter().chain(arguments).map(OsString::from);
        let mut root = tree();
        root.build();
        let (kept, unknown) = known(&root, given);
        (kept.into_iter().skip(1).map(|it| it.into_string().unwrap()).collect(), unknown)
    }

    #[test]
    fn flags_alone_are_those_of_the_default_command() {
        assert_eq!(known_of(&["--config", "dir"]).0, ["discovery", "--config", "dir"]);
        assert_eq!(known_of(&["--help"]).0, ["--help"]);
        assert_eq!(known_of(&["version"]).0, ["version"]);
        assert!(known_of(&[]).0.is_empty());
    }

    #[test]
    fn unknown_flags_are_passed_over_with_their_values() {
        let given = ["discovery", "--old=1", "--vklog", "2", "--older", "value", "--oldest", "--configDir=d"];
        let (kept, unknown) = known_of(&given);
        assert_eq!(kept, ["discovery", "--vklog", "2", "--configDir=d"]);
        assert_eq!(unknown, ["old", "older", "oldest"]);
    }

    #[test]
    fn every_flag_of_pilot_discovery_is_known() {
        let command = Cli::command();
        let discovery = command.find_subcommand(DEFAULT).unwrap();
        let flags = "caCertFile clusterAliases clusterID clusterRegistriesNamespace cniNamespace configDir ctrlz_address \
            ctrlz_port domain grpcAddr httpAddr httpsAddr keepaliveInterval keepaliveMaxServerConnectionAge \
            keepaliveTimeout kubeconfig kubernetesApiBurst kubernetesApiQPS log_as_json log_caller log_output_level \
            log_stacktrace_level log_target meshConfig monitoringAddr namespace networksConfig profile registries \
            secureGRPCAddr shutdownDuration tls-cipher-suites tls-min-version tlsCertFile tlsKeyFile";
        let unknown: Vec<_> = flags.split_whitespace().filter(|flag| !is_known(discovery, flag)).collect();
        assert_eq!(unknown, [""; 0]);
        let arguments = ["canopusd", DEFAULT, "--profile", "--cniNamespace=x", "--ctrlz_port", "9876"];
        let again = Cli::command().try_get_matches_from(arguments);
        assert!(again.is_ok(), "{:?}", again.err());
    }

    #[test]
    fn help_is_grouped_by_what_flags_are_about() {
        let mut command = Cli::command();
        let help = command.find_subcommand_mut(DEFAULT).unwrap().render_long_help().to_string();
        let places: Vec<_> = ["Sources:", "Ports:", "TLS:", "Connections:", "Mesh:", "Log:"]
            .map(|heading| help.find(&format!("\n{heading}\n")))
            .into_iter()
            .collect();
        assert!(places.iter().all(Option::is_some), "{places:?} in {help}");
        let (mesh, log) = (places[4].unwrap(), places[5].unwrap());
        assert!((mesh..log).contains(&help.find("--meshConfig").unwrap()), "{help}");
    }

    #[test]
    fn arguments_of_the_chart_are_understood() {
        let (kept, unknown) = known_of(&[
            "discovery",
            "--monitoringAddr=:15014",
            "--log_output_level=default:info",
            "--domain",
            "cluster.local",
            "--keepaliveMaxServerConnectionAge",
            "30m",
        ]);
        assert!(unknown.is_empty(), "{unknown:?}");
        let arguments = ["canopusd".to_owned()].into_iter().chain(kept);
        Cli::command().try_get_matches_from(arguments).unwrap();
    }
}
