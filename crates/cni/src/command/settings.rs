//! The agent's settings, from flags and environment.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use canopus_capture::ambient::AmbientConfig;
use canopus_capture::apply::VariantChoice;
use canopus_runtime::flags::{
    Flags, HOST_PROBE_SNAT_IP, HOST_PROBE_SNAT_IPV6, NODE_NAME, POD_NAMESPACE, SYSTEM_NAMESPACE,
};
use clap::Args;

use crate::ambient::AgentSettings;
use crate::install::{ApiServer, InstallSettings, PluginConfig};
use crate::repair::{Mode, RepairSettings};
use crate::selector::{self, Enablement, EnablementError};

/// The name of the agent's own network configuration, unless told otherwise.
const OWNED_CONFIG: &str = "02-istio-cni.conflist";

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// A value.
    #[error("{name}: {value:?} is not {expected}")]
    Value {
        /// The variable.
        name: String,
        /// What it says.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A required setting is missing.
    #[error("{name} is not set; {remedy}")]
    Missing {
        /// The variable.
        name: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The selectors.
    #[error("AMBIENT_ENABLEMENT_SELECTOR: {0}")]
    Enablement(#[from] EnablementError),
}

macro_rules! install_args {
    ($($(#[doc = $doc:literal])* $field:ident = $flag:literal;)*) => {
        /// Every flag of the agent. One that is not given is taken from the variable of its name in upper case.
        #[derive(Clone, Debug, Default, Args)]
        pub struct InstallArgs {
            $($(#[doc = $doc])* #[arg(long = $flag, value_name = "VALUE", num_args = 0..=1, default_missing_value = "true")]
            $field: Option<String>,)*
        }

        impl InstallArgs {
            fn with_environment(&self, flags: &Flags) -> Self {
                Self {
                    $($field: self.$field.clone().or_else(|| flags.variable(&variable($flag)).map(str::to_owned)),)*
                }
            }
        }
    };
}

fn variable(flag: &str) -> String {
    flag.replace('-', "_").to_uppercase()
}

install_args! {
    /// The host's directory of network configurations
    mounted_cni_net_dir = "mounted-cni-net-dir";
    /// The network configuration to add the plugin to
    cni_conf_name = "cni-conf-name";
    /// Whether the plugin is added to another plugin's configuration
    chained_cni_plugin = "chained-cni-plugin";
    /// Whether the plugin is added to a copy of the configuration instead of the configuration itself
    istio_owned_cni_config = "istio-owned-cni-config";
    /// The name of that copy
    istio_owned_cni_config_filename = "istio-owned-cni-config-filename";
    /// The same, as charts name it
    istio_owned_cni_conf_filename = "istio-owned-cni-conf-filename";
    /// How much the plugin logs
    plugin_log_level = "plugin-log-level";
    /// How much is logged where nothing else says so
    log_level = "log-level";
    /// The agent's directory, with its sockets and the kubeconfig
    cni_agent_run_dir = "cni-agent-run-dir";
    /// Permissions of the kubeconfig
    kubeconfig_mode = "kubeconfig-mode";
    /// Whether the group may read network configurations that the agent makes
    cni_conf_group_read = "cni-conf-group-read";
    /// The certificates that the kubeconfig trusts
    kube_ca_file = "kube-ca-file";
    /// Whether the kubeconfig trusts any certificate
    skip_tls_verify = "skip-tls-verify";
    /// The port of metrics
    monitoring_port = "monitoring-port";
    /// The socket for ztunnel
    ztunnel_uds_address = "ztunnel-uds-address";
    /// Namespaces whose pods are left alone
    exclude_namespaces = "exclude-namespaces";
    /// Whether pods may be in ambient mode
    ambient_enabled = "ambient-enabled";
    /// Which pods are
    ambient_enablement_selector = "ambient-enablement-selector";
    /// Whether DNS queries of pods in ambient mode are captured
    ambient_dns_capture = "ambient-dns-capture";
    /// Whether IPv6 is captured in ambient mode
    ambient_ipv6 = "ambient-ipv6";
    /// Whether everything is removed when the agent ends, even for an upgrade
    ambient_disable_safe_upgrade = "ambient-disable-safe-upgrade";
    /// Whether enrolled pods get the rules of this version when the agent starts
    ambient_reconcile_pod_rules_on_startup = "ambient-reconcile-pod-rules-on-startup";
    /// Accepted for compatibility: the plugin always asks again
    enable_ambient_detection_retry = "enable-ambient-detection-retry";
    /// Use nftables instead of iptables
    native_nftables = "native-nftables";
    /// Which iptables to use: legacy or nft
    force_iptables_binary = "force-iptables-binary";
    /// Whether pods are repaired that started without the plugin
    repair_enabled = "repair-enabled";
    /// Repair them by making their rules
    repair_repair_pods = "repair-repair-pods";
    /// Delete them
    repair_delete_pods = "repair-delete-pods";
    /// Label them
    repair_label_pods = "repair-label-pods";
    /// The label's name
    repair_broken_pod_label_key = "repair-broken-pod-label-key";
    /// The label's value
    repair_broken_pod_label_value = "repair-broken-pod-label-value";
    /// The node whose pods are repaired
    repair_node_name = "repair-node-name";
    /// The annotation of pods with a sidecar
    repair_sidecar_annotation = "repair-sidecar-annotation";
    /// The init container that fails without rules
    repair_init_container_name = "repair-init-container-name";
    /// Termination message of that init container
    repair_init_container_termination_message = "repair-init-container-termination-message";
    /// Exit code of that init container
    repair_init_container_exit_code = "repair-init-container-exit-code";
    /// Selects pods by labels
    repair_label_selectors = "repair-label-selectors";
    /// Selects pods by fields
    repair_field_selectors = "repair-field-selectors";
    /// The directory of iptables and nft
    tools_directory = "tools-directory";
    /// Where the host's files are mounted
    host_root = "host-root";
    /// The directory that programs are copied from
    cni_bin_source_dir = "cni-bin-source-dir";
    /// The host's directory of CNI plugins
    cni_bin_target_dir = "cni-bin-target-dir";
    /// The directory of the service account
    service_account_dir = "service-account-dir";
    /// The file of the node's network namespace
    host_network_namespace = "host-network-namespace";
    /// The kubeconfig of the agent itself; the service account if not set
    kubeconfig = "kubeconfig";
    /// The port of probes
    health_port = "health-port";
}

/// What the agent does.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) install: InstallSettings,
    pub(super) repair: Option<RepairSettings>,
    pub(super) ambient: Option<AmbientSettings>,
    pub(super) run_directory: PathBuf,
    pub(super) host_root: PathBuf,
    pub(super) monitoring_port: u16,
    pub(super) health_port: u16,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) namespace: String,
}

/// What the agent does in ambient mode.
#[derive(Clone, Debug)]
pub(super) struct AmbientSettings {
    pub(super) agent: AgentSettings,
    pub(super) config: AmbientConfig,
    pub(super) native_nftables: bool,
    pub(super) variant: VariantChoice,
    pub(super) tools: Option<PathBuf>,
    pub(super) host_namespace: PathBuf,
    pub(super) disable_safe_upgrade: bool,
}

fn text(value: &Option<String>, default: &str) -> String {
    value.clone().unwrap_or_else(|| default.to_owned())
}

fn truth(name: &str, value: &Option<String>, default: bool) -> Result<bool, SettingError> {
    match value.as_deref() {
        None | Some("") => Ok(default),
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(value) => Err(SettingError::Value {
            name: variable(name),
            value: value.to_owned(),
            expected: "true or false",
        }),
    }
}

fn number<T: FromStr>(name: &str, value: &Option<String>, default: T) -> Result<T, SettingError> {
    match value.as_deref() {
        None | Some("") => Ok(default),
        Some(value) => value.parse().map_err(|_| SettingError::Value {
            name: variable(name),
            value: value.to_owned(),
            expected: "a number in range",
        }),
    }
}

fn path(value: &Option<String>) -> Option<PathBuf> {
    value.as_deref().filter(|text| !text.is_empty()).map(PathBuf::from)
}

impl InstallArgs {
    /// Completes the flags by the environment, and checks them.
    pub(super) fn settle(&self, flags: &Flags) -> Result<Settings, SettingError> {
        let args = self.with_environment(flags);
        let variable = |name: &str| flags.variable(name).unwrap_or_default().to_owned();
        let host_root = PathBuf::from(text(&args.host_root, "/host"));
        let ambient_enabled = truth("ambient-enabled", &args.ambient_enabled, false)?;
        let native_nftables = truth("native-nftables", &args.native_nftables, false)?;
        let selectors = selector::parse(&text(&args.ambient_enablement_selector, ""))?;
        let excluded = selector::split_namespaces(&text(&args.exclude_namespaces, ""));
        let run_directory = PathBuf::from(text(&args.cni_agent_run_dir, "/var/run/istio-cni"));
        let namespace = flags.get(POD_NAMESPACE).to_owned();
        let log_level = text(&args.log_level, "warn");
        let plugin = PluginConfig {
            plugin_log_level: text(&args.plugin_log_level, &log_level),
            cni_agent_run_dir: run_directory.display().to_string(),
            ambient_enabled,
            enablement_selectors: selectors.clone(),
            exclude_namespaces: (!excluded.is_empty()).then(|| excluded.clone()),
            pod_namespace: namespace.clone(),
            native_nftables,
            enable_ambient_detection_retry: truth(
                "enable-ambient-detection-retry",
                &args.enable_ambient_detection_retry,
                false,
            )?,
            ..PluginConfig::default()
        };
        let is_chained = truth("chained-cni-plugin", &args.chained_cni_plugin, true)?;
        // Parity: a copy of the configuration is for chained plugins in ambient mode alone.
        let owns_config = truth("istio-owned-cni-config", &args.istio_owned_cni_config, false)?
            && is_chained
            && ambient_enabled;
        let owned_name = args
            .istio_owned_cni_config_filename
            .clone()
            .or_else(|| args.istio_owned_cni_conf_filename.clone())
            .filter(|name| !name.is_empty());
        let group_read = truth("cni-conf-group-read", &args.cni_conf_group_read, false)?;
        let kubeconfig_mode = match args.kubeconfig_mode.as_deref() {
            None | Some("") => 0o600,
            Some(value) => mode(value)?,
        };
        let install = InstallSettings {
            network_directory: PathBuf::from(text(&args.mounted_cni_net_dir, "/host/etc/cni/net.d")),
            network_config: text(&args.cni_conf_name, ""),
            is_chained,
            owned_config: owns_config.then(|| owned_name.unwrap_or_else(|| OWNED_CONFIG.to_owned())),
            config_mode: if group_read { 0o640 } else { 0o600 },
            programs: PathBuf::from(text(&args.cni_bin_source_dir, "/opt/cni/bin")),
            program_targets: vec![PathBuf::from(text(&args.cni_bin_target_dir, "/host/opt/cni/bin"))],
            run_directory: run_directory.clone(),
            kubeconfig_mode,
            service_account: PathBuf::from(text(
                &args.service_account_dir,
                "/var/run/secrets/kubernetes.io/serviceaccount",
            )),
            api_server: ApiServer {
                protocol: variable("KUBERNETES_SERVICE_PROTOCOL"),
                host: variable("KUBERNETES_SERVICE_HOST"),
                port: variable("KUBERNETES_SERVICE_PORT"),
                ca: None,
            },
            ca_file: path(&args.kube_ca_file),
            skip_tls_verify: truth("skip-tls-verify", &args.skip_tls_verify, false)?,
            plugin: plugin.named(),
        };
        let ambient = ambient_enabled
            .then(|| args.ambient(flags, &host_root, &selectors, &excluded, native_nftables))
            .transpose()?;
        Ok(Settings {
            repair: args.repair(native_nftables)?,
            install,
            ambient,
            run_directory,
            host_root,
            monitoring_port: number("monitoring-port", &args.monitoring_port, 15014)?,
            health_port: number("health-port", &args.health_port, 8000)?,
            kubeconfig: path(&args.kubeconfig),
            namespace,
        })
    }

    fn ambient(
        &self,
        flags: &Flags,
        host_root: &std::path::Path,
        selectors: &[selector::EnablementSelector],
        excluded: &[String],
        native_nftables: bool,
    ) -> Result<AmbientSettings, SettingError> {
        let node = flags.get(NODE_NAME).to_owned();
        if node.is_empty() {
            return Err(SettingError::Missing {
                name: "NODE_NAME",
                remedy: "set it to the pod's spec.nodeName",
            });
        }
        let address = |name: &str, value: &str| SettingError::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "an address of its family",
        };
        let (v4, v6) = (flags.get(HOST_PROBE_SNAT_IP), flags.get(HOST_PROBE_SNAT_IPV6));
        let variant = match self.force_iptables_binary.as_deref() {
            None | Some("") => VariantChoice::Detect,
            Some("legacy") => VariantChoice::Legacy,
            Some("nft") => VariantChoice::Nft,
            Some(value) => {
                return Err(SettingError::Value {
                    name: "FORCE_IPTABLES_BINARY".to_owned(),
                    value: value.to_owned(),
                    expected: "legacy or nft",
                });
            }
        };
        let reconciles = &self.ambient_reconcile_pod_rules_on_startup;
        Ok(AmbientSettings {
            agent: AgentSettings {
                node,
                enablement: Enablement::new(selectors)?,
                excluded_namespaces: excluded.iter().cloned().collect(),
                system_namespace: flags.get(SYSTEM_NAMESPACE).to_owned(),
                ztunnel_socket: PathBuf::from(text(
                    &self.ztunnel_uds_address,
                    "/var/run/ztunnel/ztunnel.sock",
                )),
                reconciles_rules: truth("ambient-reconcile-pod-rules-on-startup", reconciles, false)?,
            },
            config: AmbientConfig {
                ipv6: truth("ambient-ipv6", &self.ambient_ipv6, false)?,
                redirect_dns: truth("ambient-dns-capture", &self.ambient_dns_capture, false)?,
                probe_source_v4: v4.parse::<Ipv4Addr>().map_err(|_| address("HOST_PROBE_SNAT_IP", v4))?,
                probe_source_v6: v6.parse::<Ipv6Addr>().map_err(|_| address("HOST_PROBE_SNAT_IPV6", v6))?,
            },
            native_nftables,
            variant,
            tools: path(&self.tools_directory),
            host_namespace: path(&self.host_network_namespace)
                .unwrap_or_else(|| host_root.join("proc/1/ns/net")),
            disable_safe_upgrade: truth(
                "ambient-disable-safe-upgrade",
                &self.ambient_disable_safe_upgrade,
                false,
            )?,
        })
    }

    fn repair(&self, native_nftables: bool) -> Result<Option<RepairSettings>, SettingError> {
        if !truth("repair-enabled", &self.repair_enabled, true)? {
            return Ok(None);
        }
        let mode = if truth("repair-repair-pods", &self.repair_repair_pods, false)? {
            Mode::Repair
        } else if truth("repair-delete-pods", &self.repair_delete_pods, false)? {
            Mode::Delete
        } else if truth("repair-label-pods", &self.repair_label_pods, false)? {
            Mode::Label
        } else {
            return Ok(None);
        };
        Ok(Some(RepairSettings {
            mode,
            node: text(&self.repair_node_name, ""),
            label: (
                text(&self.repair_broken_pod_label_key, "cni.istio.io/uninitialized"),
                text(&self.repair_broken_pod_label_value, "true"),
            ),
            annotation: text(&self.repair_sidecar_annotation, "sidecar.istio.io/status"),
            container: text(&self.repair_init_container_name, "istio-validation"),
            message: text(&self.repair_init_container_termination_message, ""),
            exit_code: number(
                "repair-init-container-exit-code",
                &self.repair_init_container_exit_code,
                i32::from(canopus_capture::VALIDATION_FAILED),
            )?,
            labels: text(&self.repair_label_selectors, ""),
            fields: text(&self.repair_field_selectors, ""),
            native_nftables,
        }))
    }
}

/// Permissions. Istio takes a decimal number; one with a leading zero is octal, as everybody writes it.
fn mode(value: &str) -> Result<u32, SettingError> {
    let parsed = match value.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u32::from_str_radix(octal.trim_start_matches('o'), 8),
        _ => value.parse(),
    };
    parsed.ok().filter(|mode| *mode <= 0o777).ok_or_else(|| SettingError::Value {
        name: "KUBECONFIG_MODE".to_owned(),
        value: value.to_owned(),
        expected: "permissions such as 0600",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(variables: &[(&'static str, &'static str)]) -> Result<Settings, SettingError> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables: std::collections::BTreeMap<String, String> = variables.collect();
        InstallArgs::default().settle(&Flags::read(&variables))
    }

    #[test]
    fn defaults_are_those_of_istio() {
        let settings = settle(&[]).unwrap();
        assert_eq!(settings.install.network_directory, PathBuf::from("/host/etc/cni/net.d"));
        assert!(settings.install.is_chained && settings.ambient.is_none() && settings.repair.is_none());
        assert_eq!((settings.monitoring_port, settings.health_port), (15014, 8000));
        assert_eq!(settings.install.plugin.exclude_namespaces, None);
    }

    #[test]
    fn variables_stand_for_flags() {
        let settings = settle(&[
            ("AMBIENT_ENABLED", "true"),
            ("NODE_NAME", "a"),
            ("EXCLUDE_NAMESPACES", "kube-system, istio-system"),
            ("AMBIENT_IPV6", "true"),
            ("REPAIR_REPAIR_PODS", "true"),
            ("REPAIR_DELETE_PODS", "true"),
            ("ISTIO_OWNED_CNI_CONFIG", "true"),
            ("KUBECONFIG_MODE", "0640"),
        ])
        .unwrap();
        let ambient = settings.ambient.unwrap();
        assert!(ambient.config.ipv6 && ambient.agent.excluded_namespaces.contains("istio-system"));
        assert_eq!(ambient.host_namespace, PathBuf::from("/host/proc/1/ns/net"));
        assert_eq!(settings.repair.unwrap().mode, Mode::Repair);
        assert_eq!(settings.install.owned_config.as_deref(), Some("02-istio-cni.conflist"));
        assert_eq!(settings.install.kubeconfig_mode, 0o640);
    }

    #[test]
    fn malformed_settings_are_named() {
        let message = |variables: &[(&'static str, &'static str)]| settle(variables).unwrap_err().to_string();
        assert_eq!(message(&[("AMBIENT_ENABLED", "yes")]), "AMBIENT_ENABLED: \"yes\" is not true or false");
        assert!(message(&[("AMBIENT_ENABLED", "true")]).starts_with("NODE_NAME is not set"));
        assert!(message(&[("MONITORING_PORT", "70000")]).contains("a number in range"));
    }
}
