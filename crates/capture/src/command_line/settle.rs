use std::str::FromStr;
use std::time::Duration;

use canopus_base::net::{IpNet, Ipv4Net, parse_ip, parse_prefix};

use super::CommandLine;
use crate::apply::{Options, VariantChoice};
use crate::config::{
    CaptureConfig, ConfigError, DnsCapture, InboundPorts, InterceptionMode, OutboundRanges, Owner,
    OwnerGroups, items,
};
use crate::facts::HostFacts;
use crate::settings::Settings;
use crate::validation::Probe;

/// The kernel bounds the matches of one rule, and every included group is one.
const OWNER_GROUPS_MAX: usize = 64;

const EXCLUDED_RANGES: &str = "--istio-service-exclude-cidr";
const OWNER_GROUPS: &str = "ISTIO_OUTBOUND_OWNER_GROUPS";
const LOOPBACK: &str = "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR";

/// The text of a setting, empty when unset.
fn value(setting: &Option<String>) -> &str {
    setting.as_deref().unwrap_or_default()
}

fn parsed<T>(setting: &'static str, text: &Option<String>, default: T) -> Result<T, ConfigError>
where
    T: FromStr<Err: ToString>,
{
    let Some(text) = text.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(default);
    };
    text.parse()
        .map_err(|error: T::Err| ConfigError::invalid(setting, format!("{text:?}: {}", error.to_string())))
}

fn list<T>(setting: &'static str, text: &Option<String>) -> Result<Vec<T>, ConfigError>
where
    T: FromStr<Err: ToString>,
{
    let parse = |item: &str| item.parse().map_err(|error: T::Err| ConfigError::invalid(setting, error));
    items(value(text)).map(parse).collect()
}

fn prefixes(setting: &'static str, text: &str) -> Result<Vec<IpNet>, ConfigError> {
    items(text).map(|item| parse_prefix(item).map_err(|error| ConfigError::invalid(setting, error))).collect()
}

impl CommandLine {
    /// Checks the settings and completes them with what the machine tells.
    pub fn settle(&self, facts: &HostFacts) -> Result<Settings, ConfigError> {
        let is_dual_stack = self.dual_stack.unwrap_or_default();
        let (host, ipv6) = facts.local_address(is_dual_stack).ok_or(ConfigError::NoLocalAddress)?;
        let capture = self.capture(facts, ipv6)?;
        let probe = Probe {
            is_ipv6: host.is_ipv6(),
            listen_ports: [capture.proxy_port, capture.inbound_capture_port],
            probe_port: self.iptables_probe_port.unwrap_or(15002),
            timeout: self.probe_timeout.unwrap_or(Duration::from_secs(5)),
        };
        Ok(Settings {
            capture,
            options: self.options()?,
            skip_rule_apply: self.skip_rule_apply.unwrap_or_default(),
            dry_run: self.dry_run.unwrap_or_default(),
            dry_run_file: self.dry_run_file.clone().filter(|path| !path.is_empty()).map(Into::into),
            native_nftables: self.native_nftables.unwrap_or_default(),
            run_validation: self.run_validation.unwrap_or_default(),
            probe,
        })
    }

    fn options(&self) -> Result<Options, ConfigError> {
        let variant = match value(&self.force_iptables_binary) {
            "" => VariantChoice::Detect,
            "legacy" => VariantChoice::Legacy,
            "nft" => VariantChoice::Nft,
            other => {
                let reason = format!("{other:?} is not a variant of iptables; use legacy or nft");
                return Err(ConfigError::invalid("--force-iptables-binary", reason));
            }
        };
        Ok(Options {
            reconcile: self.reconcile.unwrap_or_default(),
            cleanup_only: self.cleanup_only.unwrap_or_default(),
            force_apply: self.force_apply.unwrap_or_default(),
            variant,
            cni_mode: self.cni_mode.unwrap_or_default(),
            network_namespace: self.network_namespace.clone().filter(|path| !path.is_empty()).map(Into::into),
            tools: None,
        })
    }

    fn capture(&self, facts: &HostFacts, ipv6: bool) -> Result<CaptureConfig, ConfigError> {
        let default = CaptureConfig::default();
        let proxy_uids = self.proxy_uids(facts)?;
        let proxy_gids = match value(&self.proxy_gid) {
            "" => proxy_uids.clone(),
            _ => list("--proxy-gid", &self.proxy_gid)?,
        };
        Ok(CaptureConfig {
            proxy_port: parsed("--envoy-port", &self.envoy_port, default.proxy_port)?,
            inbound_capture_port: parsed(
                "--inbound-capture-port",
                &self.inbound_capture_port,
                default.inbound_capture_port,
            )?,
            inbound_tunnel_port: parsed(
                "--inbound-tunnel-port",
                &self.inbound_tunnel_port,
                default.inbound_tunnel_port,
            )?,
            proxy_uids,
            proxy_gids,
            interception_mode: self.interception_mode()?,
            tproxy_mark: parsed(
                "--istio-inbound-tproxy-mark",
                &self.istio_inbound_tproxy_mark,
                default.tproxy_mark,
            )?,
            tproxy_route_table: parsed(
                "--istio-inbound-tproxy-route-table",
                &self.istio_inbound_tproxy_route_table,
                default.tproxy_route_table,
            )?,
            inbound_ports: self.inbound_ports()?,
            owner_groups: self.owner_groups()?,
            outbound_ports_include: list("--istio-outbound-ports", &self.istio_outbound_ports)?,
            outbound_ports_exclude: list(
                "--istio-local-outbound-ports-exclude",
                &self.istio_local_outbound_ports_exclude,
            )?,
            outbound_ranges: match value(&self.istio_service_cidr).trim() {
                "*" => OutboundRanges::All,
                ranges => OutboundRanges::Only(prefixes("--istio-service-cidr", ranges)?),
            },
            outbound_ranges_exclude: match value(&self.istio_service_exclude_cidr).trim() {
                "*" => return Err(ConfigError::ExcludesAll { setting: EXCLUDED_RANGES }),
                ranges => prefixes(EXCLUDED_RANGES, ranges)?,
            },
            virtual_interfaces: list("--kube-virt-interfaces", &self.kube_virt_interfaces)?,
            excluded_interfaces: list("--istio-exclude-interfaces", &self.istio_exclude_interfaces)?,
            dns: self.dns(facts),
            drop_invalid: self.drop_invalid.unwrap_or_default(),
            ipv6,
            loopback_v4: self.loopback(default.loopback_v4)?,
        })
    }

    fn proxy_uids(&self, facts: &HostFacts) -> Result<Vec<Owner>, ConfigError> {
        match value(&self.proxy_uid) {
            "" => Ok(vec![Owner::id(facts.proxy_user.unwrap_or(1337))]),
            _ => list("--proxy-uid", &self.proxy_uid),
        }
    }

    fn interception_mode(&self) -> Result<InterceptionMode, ConfigError> {
        match value(&self.istio_inbound_interception_mode) {
            "" | "REDIRECT" => Ok(InterceptionMode::Redirect),
            "TPROXY" => Ok(InterceptionMode::Tproxy),
            other => {
                let reason = format!("{other:?} is not a mode; use REDIRECT or TPROXY");
                Err(ConfigError::invalid("--istio-inbound-interception-mode", reason))
            }
        }
    }

    fn inbound_ports(&self) -> Result<InboundPorts, ConfigError> {
        match value(&self.istio_inbound_ports).trim() {
            "" => Ok(InboundPorts::None),
            "*" => list("--istio-local-exclude-ports", &self.istio_local_exclude_ports)
                .map(InboundPorts::AllExcept),
            _ => list("--istio-inbound-ports", &self.istio_inbound_ports).map(InboundPorts::Only),
        }
    }

    fn owner_groups(&self) -> Result<OwnerGroups, ConfigError> {
        if self.owner_groups.as_deref().unwrap_or("*") == "*" {
            return list("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", &self.owner_groups_exclude)
                .map(OwnerGroups::AllExcept);
        }
        let groups: Vec<Owner> = list(OWNER_GROUPS, &self.owner_groups)?;
        if groups.len() > OWNER_GROUPS_MAX {
            let (setting, count, limit) = (OWNER_GROUPS, groups.len(), OWNER_GROUPS_MAX);
            return Err(ConfigError::TooManyGroups { setting, count, limit });
        }
        Ok(OwnerGroups::Only(groups))
    }

    fn dns(&self, facts: &HostFacts) -> Option<DnsCapture> {
        if !self.redirect_dns.unwrap_or_default() {
            return None;
        }
        if self.capture_all_dns.unwrap_or_default() {
            return Some(DnsCapture::All);
        }
        let address = |server: &String| Some((parse_ip(server).ok()?, server.split('%').next()?.to_owned()));
        let servers: Vec<_> = facts.nameservers.iter().filter_map(address).collect();
        if servers.is_empty() {
            tracing::warn!("no DNS server is known and --capture-all-dns is off: DNS is not captured");
            return None;
        }
        let (v4, v6): (Vec<_>, Vec<_>) = servers.into_iter().partition(|(address, _)| address.is_ipv4());
        let texts = |servers: Vec<(_, String)>| servers.into_iter().map(|(_, text)| text).collect();
        Some(DnsCapture::Servers { v4: texts(v4), v6: texts(v6) })
    }

    fn loopback(&self, default: Ipv4Net) -> Result<Ipv4Net, ConfigError> {
        let Some(text) = self.ipv4_loopback_cidr.as_deref() else {
            return Ok(default);
        };
        match parse_prefix(text).map_err(|error| ConfigError::invalid(LOOPBACK, error))? {
            IpNet::V4(net) if net.addr().is_loopback() && net.prefix_len() >= 8 => Ok(net),
            other => {
                let reason = format!("{other} is not within 127.0.0.0/8");
                Err(ConfigError::invalid(LOOPBACK, reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortRange;

    fn facts() -> HostFacts {
        HostFacts {
            addresses: vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            nameservers: vec!["10.96.0.10".to_owned(), "fe80::1%eth0".to_owned()],
            proxy_user: None,
        }
    }

    fn settle(change: impl FnOnce(&mut CommandLine)) -> Result<CaptureConfig, String> {
        let mut line = CommandLine::default();
        change(&mut line);
        line.settle(&facts()).map(|settings| settings.capture).map_err(|error| error.to_string())
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn settings_are_istios_defaults_when_nothing_is_given() {
        assert_eq!(settle(|_| ()), Ok(CaptureConfig::default()));
    }

    #[test]
    fn groups_are_the_users_when_only_users_are_given() {
        let config = settle(|line| line.proxy_uid = some("3,4")).unwrap();
        assert_eq!(config.proxy_gids, config.proxy_uids);
    }

    #[test]
    fn dual_stack_looks_for_ipv6_behind_the_first_address() {
        assert!(!settle(|_| ()).unwrap().ipv6);
        assert!(settle(|line| line.dual_stack = Some(true)).unwrap().ipv6);
    }

    #[test]
    fn name_servers_lose_their_zone() {
        let config = settle(|line| line.redirect_dns = Some(true)).unwrap();
        let expected =
            DnsCapture::Servers { v4: vec!["10.96.0.10".to_owned()], v6: vec!["fe80::1".to_owned()] };
        assert_eq!(config.dns, Some(expected));
        let all =
            settle(|line| (line.redirect_dns, line.capture_all_dns) = (Some(true), Some(true))).unwrap();
        assert_eq!(all.dns, Some(DnsCapture::All));
        assert_eq!(settle(|line| line.capture_all_dns = Some(true)).unwrap().dns, None);
    }

    #[test]
    fn excluded_inbound_ports_count_only_beside_the_wildcard() {
        let ports = |include, exclude| {
            settle(|line| {
                line.istio_inbound_ports = some(include);
                line.istio_local_exclude_ports = some(exclude);
            })
            .unwrap()
            .inbound_ports
        };
        assert_eq!(ports("*", "1"), InboundPorts::AllExcept(vec![PortRange::from(1)]));
        assert_eq!(ports("2", "1"), InboundPorts::Only(vec![PortRange::from(2)]));
        assert_eq!(ports("", "1"), InboundPorts::None);
    }

    #[test]
    fn bad_values_are_refused_with_setting_and_remedy() {
        let check = |change: fn(&mut CommandLine), expected: &str| {
            let message = settle(change).unwrap_err();
            assert!(message.contains(expected), "{message}");
        };
        check(|line| line.envoy_port = some("http"), "--envoy-port: \"http\"");
        check(
            |line| line.istio_service_exclude_cidr = some("*"),
            "--istio-service-exclude-cidr: \"*\" would",
        );
        check(|line| line.istio_service_cidr = some("10.0.0.0"), "--istio-service-cidr: \"10.0.0.0\" is not");
        check(|line| line.istio_inbound_interception_mode = some("tproxy"), "use REDIRECT or TPROXY");
        check(|line| line.force_iptables_binary = some("new"), "use legacy or nft");
        check(|line| line.ipv4_loopback_cidr = some("10.0.0.0/8"), "is not within 127.0.0.0/8");
        check(|line| line.ipv4_loopback_cidr = some("127.0.0.0/7"), "is not within 127.0.0.0/8");
        check(|line| line.owner_groups = Some(vec!["1"; 65].join(",")), "65 groups are more than the 64");
        check(|line| line.kube_virt_interfaces = some("eth0\n-F"), "--kube-virt-interfaces");
        check(
            |line| line.istio_local_outbound_ports_exclude = some("80 -j"),
            "--istio-local-outbound-ports-exclude",
        );
    }

    #[test]
    fn machine_without_an_address_is_refused() {
        let error = CommandLine::default().settle(&HostFacts::default()).unwrap_err();
        assert_eq!(error, ConfigError::NoLocalAddress);
    }
}
