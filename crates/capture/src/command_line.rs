//! The command line of `istio-iptables`, to be mounted by a binary as a subcommand.
//!
//! A flag that is given wins; then the variables of its row in [`VARIABLES`] count, the last one set over the earlier
//! ones; then the default. A variable whose text the flag would not take is ignored, as Istio ignores it.

mod settle;

use std::time::Duration;

use canopus_base::duration;
use clap::Args;

/// The environment, as a binary hands it in: a variable's name to its text.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Set up packet rules that send a workload's traffic to its sidecar.
///
/// Needs the capabilities NET_ADMIN and NET_RAW in the network namespace of the workload. Exits with 126 when
/// --run-validation finds that traffic is not captured, with 1 on any other failure.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandLine {
    /// Port of the proxy to which outbound TCP traffic is redirected [default: 15001]
    #[arg(short = 'p', long, value_name = "PORT")]
    pub envoy_port: Option<String>,

    /// Port to which inbound TCP traffic is redirected [default: 15006]
    #[arg(short = 'z', long, value_name = "PORT")]
    pub inbound_capture_port: Option<String>,

    /// Port of inbound tunnels, which are not redirected [default: 15008]
    #[arg(short = 'e', long, value_name = "PORT")]
    pub inbound_tunnel_port: Option<String>,

    /// Users whose traffic is not redirected, usually that of the proxy [default: the user ENVOY_USER, else 1337]
    #[arg(short = 'u', long, value_name = "UIDS")]
    pub proxy_uid: Option<String>,

    /// Groups whose traffic is not redirected [default: as --proxy-uid]
    #[arg(short = 'g', long, value_name = "GIDS")]
    pub proxy_gid: Option<String>,

    /// How inbound connections reach the proxy: REDIRECT or TPROXY
    #[arg(short = 'm', long, value_name = "MODE")]
    pub istio_inbound_interception_mode: Option<String>,

    /// Mark of packets captured by TPROXY [default: 1337]
    #[arg(short = 't', long, value_name = "MARK")]
    pub istio_inbound_tproxy_mark: Option<String>,

    /// Routing table for packets captured by TPROXY [default: 133]
    #[arg(short = 'r', long, value_name = "TABLE")]
    pub istio_inbound_tproxy_route_table: Option<String>,

    /// Inbound ports to redirect, comma-separated; "*" for all, empty for none
    #[arg(short = 'b', long, value_name = "PORTS")]
    pub istio_inbound_ports: Option<String>,

    /// Inbound ports not to redirect, comma-separated; only with --istio-inbound-ports "*"
    #[arg(short = 'd', long, value_name = "PORTS")]
    pub istio_local_exclude_ports: Option<String>,

    /// Interfaces whose traffic is not captured in either direction, comma-separated
    #[arg(short = 'c', long, value_name = "INTERFACES")]
    pub istio_exclude_interfaces: Option<String>,

    /// Destinations of outbound traffic to redirect, comma-separated prefixes; "*" for all, empty for none
    #[arg(short = 'i', long, value_name = "CIDRS")]
    pub istio_service_cidr: Option<String>,

    /// Destinations of outbound traffic not to redirect, comma-separated prefixes
    #[arg(short = 'x', long, value_name = "CIDRS")]
    pub istio_service_exclude_cidr: Option<String>,

    /// Outbound ports to redirect whatever the destination, comma-separated
    #[arg(short = 'q', long, value_name = "PORTS")]
    pub istio_outbound_ports: Option<String>,

    /// Outbound ports not to redirect, comma-separated
    #[arg(short = 'o', long, value_name = "PORTS")]
    pub istio_local_outbound_ports_exclude: Option<String>,

    /// Virtual interfaces whose inbound traffic is treated as outbound, comma-separated
    #[arg(short = 'k', long, value_name = "INTERFACES")]
    pub kube_virt_interfaces: Option<String>,

    /// Print what would be run, and change nothing
    #[arg(short = 'n', long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub dry_run: Option<bool>,

    /// Port that the validation probe connects to [default: 15002]
    #[arg(long, value_name = "PORT")]
    pub iptables_probe_port: Option<u16>,

    /// Time after which validation fails [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = go_duration)]
    pub probe_timeout: Option<Duration>,

    /// Do not apply rules
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub skip_rule_apply: Option<bool>,

    /// Check that traffic is captured
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub run_validation: Option<bool>,

    /// Capture DNS queries
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub redirect_dns: Option<bool>,

    /// Drop packets that connection tracking finds invalid
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub drop_invalid: Option<bool>,

    /// Capture both families when any local address is IPv6
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub dual_stack: Option<bool>,

    /// With --redirect-dns: capture queries to all servers, not only to those of /etc/resolv.conf
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub capture_all_dns: Option<bool>,

    /// File of the network namespace to apply rules in [default: the current one]
    #[arg(long, value_name = "FILE")]
    pub network_namespace: Option<String>,

    /// Run with the host's file system: use a lock of the namespace alone, and no name service
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub cni_mode: Option<bool>,

    /// Replace rules of an earlier run that differ, instead of failing
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub reconcile: Option<bool>,

    /// Remove rules, and add none
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub cleanup_only: Option<bool>,

    /// Apply rules even if they seem to be there
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub force_apply: Option<bool>,

    /// Use nftables instead of iptables
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    pub native_nftables: Option<bool>,

    /// Which iptables to use, legacy or nft [default: the one with rules, else nft]
    #[arg(long, value_name = "VARIANT")]
    pub force_iptables_binary: Option<String>,

    /// Groups whose outbound traffic is captured. Has no flag.
    #[arg(skip)]
    pub owner_groups: Option<String>,

    /// Groups whose outbound traffic is not captured. Has no flag.
    #[arg(skip)]
    pub owner_groups_exclude: Option<String>,

    /// IPv4 destinations that mean the application's own container. Has no flag.
    #[arg(skip)]
    pub ipv4_loopback_cidr: Option<String>,

    /// The user the proxy runs as, by name. Has no flag.
    #[arg(skip)]
    pub envoy_user: Option<String>,

    /// A file to write the commands of a dry run to. Has no flag.
    #[arg(skip)]
    pub dry_run_file: Option<String>,
}

/// A boolean as Go's flag packages read it.
pub(crate) fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

fn go_duration(text: &str) -> Result<Duration, String> {
    let span: duration::Duration =
        text.parse().map_err(|error: duration::InvalidDuration| error.to_string())?;
    span.to_std().ok_or_else(|| "expected a duration that is not negative".to_owned())
}

/// Takes a variable's text into a setting; whether it could.
type Take = fn(&mut CommandLine, &str) -> bool;

/// A setting and the variables that set it, the strongest last.
struct Variables {
    names: &'static [&'static str],
    is_set: fn(&CommandLine) -> bool,
    take: Take,
}

/// A row for a text, a boolean, a number or a duration.
macro_rules! row {
    ($field:ident, $parse:expr, $($name:literal),+) => {
        Variables {
            names: &[$($name),+],
            is_set: |line| line.$field.is_some(),
            take: |line, text| match $parse(text) {
                Ok(value) => {
                    line.$field = Some(value);
                    true
                }
                Err(_) => false,
            },
        }
    };
}

fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Every setting that has variables. Parity: `--envoy-port` has none in Istio either.
static VARIABLES: [Variables; 35] = [
    row!(inbound_capture_port, text, "INBOUND_CAPTURE_PORT"),
    row!(inbound_tunnel_port, text, "INBOUND_TUNNEL_PORT"),
    row!(proxy_uid, text, "PROXY_UID"),
    row!(proxy_gid, text, "PROXY_GID"),
    row!(istio_inbound_interception_mode, text, "ISTIO_INBOUND_INTERCEPTION_MODE"),
    row!(istio_inbound_tproxy_mark, text, "ISTIO_INBOUND_TPROXY_MARK"),
    row!(istio_inbound_tproxy_route_table, text, "ISTIO_INBOUND_TPROXY_ROUTE_TABLE"),
    row!(istio_inbound_ports, text, "ISTIO_INBOUND_PORTS"),
    row!(istio_local_exclude_ports, text, "ISTIO_LOCAL_EXCLUDE_PORTS"),
    row!(istio_exclude_interfaces, text, "ISTIO_EXCLUDE_INTERFACES"),
    row!(istio_service_cidr, text, "ISTIO_SERVICE_CIDR"),
    row!(istio_service_exclude_cidr, text, "ISTIO_SERVICE_EXCLUDE_CIDR"),
    row!(istio_outbound_ports, text, "ISTIO_OUTBOUND_PORTS"),
    row!(istio_local_outbound_ports_exclude, text, "ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE"),
    row!(kube_virt_interfaces, text, "KUBE_VIRT_INTERFACES"),
    row!(dry_run, go_bool, "DRY_RUN"),
    row!(iptables_probe_port, str::parse::<u16>, "IPTABLES_PROBE_PORT"),
    row!(probe_timeout, go_duration, "PROBE_TIMEOUT"),
    row!(skip_rule_apply, go_bool, "SKIP_RULE_APPLY"),
    row!(run_validation, go_bool, "RUN_VALIDATION"),
    row!(redirect_dns, go_bool, "REDIRECT_DNS", "ISTIO_META_DNS_CAPTURE"),
    row!(drop_invalid, go_bool, "DROP_INVALID", "INVALID_DROP"),
    row!(dual_stack, go_bool, "DUAL_STACK", "ISTIO_DUAL_STACK"),
    row!(capture_all_dns, go_bool, "CAPTURE_ALL_DNS"),
    row!(network_namespace, text, "NETWORK_NAMESPACE"),
    row!(cni_mode, go_bool, "CNI_MODE"),
    row!(reconcile, go_bool, "RECONCILE"),
    row!(cleanup_only, go_bool, "CLEANUP_ONLY"),
    row!(force_apply, go_bool, "FORCE_APPLY"),
    row!(native_nftables, go_bool, "NATIVE_NFTABLES"),
    row!(force_iptables_binary, text, "FORCE_IPTABLES_BINARY"),
    row!(owner_groups, text, "ISTIO_OUTBOUND_OWNER_GROUPS"),
    row!(owner_groups_exclude, text, "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"),
    row!(ipv4_loopback_cidr, text, "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"),
    row!(envoy_user, text, "ENVOY_USER"),
];

impl CommandLine {
    /// Takes from the environment what no flag has set.
    #[must_use]
    pub fn with_environment(mut self, environment: Environment<'_>) -> Self {
        for row in &VARIABLES {
            if (row.is_set)(&self) {
                continue;
            }
            for name in row.names {
                if let Some(text) = environment(name)
                    && !(row.take)(&mut self, &text)
                {
                    tracing::warn!("ignoring {name}={text:?}: not a value of this setting");
                }
            }
        }
        self.dry_run_file = self.dry_run_file.or_else(|| environment("DRY_RUN_FILE_PATH"));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser, Debug)]
    struct Tool {
        #[command(flatten)]
        line: CommandLine,
    }

    fn parse(arguments: &[&str], variables: &[(&str, &str)]) -> CommandLine {
        let arguments = ["tool"].iter().chain(arguments);
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        };
        Tool::try_parse_from(arguments).unwrap().line.with_environment(&find)
    }

    #[test]
    fn arguments_of_the_injection_template_are_understood() {
        let line = parse(
            &[
                "-p",
                "15001",
                "-z",
                "15006",
                "-u",
                "1337",
                "-m",
                "REDIRECT",
                "-i",
                "*",
                "-x",
                "",
                "-b",
                "*",
                "-d",
                "15090,15021,15020",
            ],
            &[],
        );
        assert_eq!(line.istio_service_exclude_cidr.as_deref(), Some(""));
        assert_eq!(line.istio_local_exclude_ports.as_deref(), Some("15090,15021,15020"));
    }

    #[test]
    fn flag_wins_over_variable_and_the_later_variable_over_the_earlier() {
        let line = parse(
            &["--redirect-dns=false"],
            &[
                ("REDIRECT_DNS", "true"),
                ("DUAL_STACK", "false"),
                ("ISTIO_DUAL_STACK", "1"),
                ("PROXY_UID", "7"),
            ],
        );
        assert_eq!(line.redirect_dns, Some(false));
        assert_eq!(line.dual_stack, Some(true));
        assert_eq!(line.proxy_uid.as_deref(), Some("7"));
    }

    #[test]
    fn variable_of_the_wrong_form_is_ignored() {
        let line = parse(
            &[],
            &[("DROP_INVALID", "maybe"), ("PROBE_TIMEOUT", "soon"), ("IPTABLES_PROBE_PORT", "99999")],
        );
        assert_eq!((line.drop_invalid, line.probe_timeout, line.iptables_probe_port), (None, None, None));
    }

    #[test]
    fn boolean_flags_need_no_value_and_durations_are_gos() {
        let line = parse(&["-n", "--run-validation", "--probe-timeout", "1m30s"], &[]);
        assert_eq!((line.dry_run, line.run_validation), (Some(true), Some(true)));
        assert_eq!(line.probe_timeout, Some(Duration::from_secs(90)));
    }

    #[test]
    fn every_flag_with_a_variable_is_named_after_it() {
        let command = Tool::command();
        let flags: Vec<_> = command.get_arguments().filter_map(|argument| argument.get_long()).collect();
        for row in &VARIABLES[..31] {
            let flag = row.names[0].to_lowercase().replace('_', "-");
            assert!(flags.contains(&flag.as_str()), "{flag}");
        }
    }
}
