//! `canopus experimental authz check`: the AuthorizationPolicies in force at a proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::bail;
use canopus_proto::envoy::config::listener::v3::filter::ConfigType;
use canopus_proto::envoy::config::listener::v3::{Filter, Listener};
use canopus_proto::envoy::config::rbac::v3::Rbac as Rules;
use canopus_proto::envoy::config::rbac::v3::rbac::Action;
use canopus_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_filter;
use canopus_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use canopus_proto::{Message, Name};

use crate::cluster::KubeArguments;
use crate::exit;
use crate::global::Global;
use crate::output::{print, say};
use crate::proxy_config::dump::ConfigDump;
use crate::proxy_config::target::{Access, Source};
use crate::table::{aligned, row};

const HTTP_FILTER: &str = "envoy.filters.http.rbac";
const NETWORK_FILTER: &str = "envoy.filters.network.rbac";
const CUSTOM_PREFIX: &str = "istio-ext-authz-";
const MATCHES_NOTHING: &str = "_anonymous_match_nothing_";

/// Inspect AuthorizationPolicies.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List the policies in force at a proxy, as its own configuration has them.
    Check(CheckArguments),
}

/// List the policies in force at a proxy, as its own configuration has them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit codes: 0 printed, 1 the proxy or file could not be read, 64 the command line makes no sense.")]
struct CheckArguments {
    /// The proxy: `pod`, `pod.namespace` or `deployment/name.namespace`.
    proxy: Option<String>,
    /// A configuration dump.
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Port of Envoy's administration interface.
    #[arg(long, value_name = "PORT", default_value_t = 15000)]
    proxy_admin_port: u16,
}

pub(crate) fn run(global: &Global, kube: &KubeArguments, arguments: &Arguments) -> ExitCode {
    let Command::Check(arguments) = &arguments.command;
    match check(global, kube, arguments) {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn check(global: &Global, kube: &KubeArguments, arguments: &CheckArguments) -> anyhow::Result<String> {
    let access = Access { global, kube, port: arguments.proxy_admin_port, address: None };
    let text = match (&arguments.proxy, &arguments.file) {
        (_, Some(file)) => access
            .get(&Source::File(file), "")
            .map_err(|error| anyhow::anyhow!("failed to get config dump from file {file}: {error:#}"))?,
        (Some(proxy), None) => access.get(&Source::Proxy(proxy), "/config_dump")?,
        (None, None) => bail!("expecting pod name or config dump, found: 0"),
    };
    Ok(table(&ConfigDump::parse(&text)?.listeners()?))
}

/// Policies by action, and the rules of each policy.
#[derive(Default)]
struct Policies {
    by_action: BTreeMap<&'static str, BTreeSet<String>>,
    rules: BTreeMap<String, BTreeSet<String>>,
}

impl Policies {
    fn add(&mut self, action: &'static str, name: String, rule: String) {
        self.by_action.entry(action).or_default().insert(name.clone());
        self.rules.entry(name).or_default().insert(rule);
    }

    fn add_filter(&mut self, rules: Option<&Rules>, shadow: Option<&Rules>) {
        let action = match rules.map(Rules::action) {
            None | Some(Action::Allow) => "ALLOW",
            Some(Action::Deny) => "DENY",
            Some(Action::Log) => "LOG",
        };
        let names = |rules: Option<&Rules>| {
            rules.map(|rules| rules.policies.keys().cloned().collect::<Vec<_>>()).unwrap_or_default()
        };
        let enforced = names(rules);
        for (name, rule) in enforced.iter().filter_map(|name| parse_name(name)) {
            self.add(action, name, rule);
        }
        for name in names(shadow).iter().filter(|name| name.starts_with(CUSTOM_PREFIX)) {
            if let Some((name, rule)) = parse_name(name) {
                self.add("CUSTOM", name, rule);
            }
        }
        if enforced.is_empty() {
            self.add(action, MATCHES_NOTHING.to_owned(), "0".to_owned());
        }
    }
}

/// Reads `ns[foo]-policy[bar]-rule[0]`, as `bar.foo` and the rule.
fn parse_name(name: &str) -> Option<(String, String)> {
    let rest = name.strip_prefix(CUSTOM_PREFIX).unwrap_or(name).strip_prefix("ns[")?;
    let (namespace, rest) = rest.split_once("]-policy[")?;
    let (policy, rule) = rest.rsplit_once("]-rule[")?;
    Some((format!("{policy}.{namespace}"), rule.strip_suffix(']')?.to_owned()))
}

fn table(listeners: &[Listener]) -> String {
    let mut policies = Policies::default();
    let chains = listeners.iter().flat_map(|listener| &listener.filter_chains);
    for filter in chains.flat_map(|chain| &chain.filters) {
        if filter.name == NETWORK_FILTER {
            if let Some(rbac) = config::<NetworkRbac>(filter) {
                policies.add_filter(rbac.rules.as_ref(), rbac.shadow_rules.as_ref());
            }
        } else if let Some(manager) = config::<HttpConnectionManager>(filter) {
            for inner in manager.http_filters.iter().filter(|inner| inner.name == HTTP_FILTER) {
                if let Some(http_filter::ConfigType::TypedConfig(config)) = &inner.config_type
                    && let Ok(rbac) = config.unpack::<HttpRbac>()
                {
                    policies.add_filter(rbac.rules.as_ref(), rbac.shadow_rules.as_ref());
                }
            }
        }
    }
    let mut rows = vec![row(["ACTION", "AuthorizationPolicy", "RULES"])];
    for action in ["DENY", "ALLOW", "LOG", "CUSTOM"] {
        for name in policies.by_action.get(action).into_iter().flatten() {
            let rules = policies.rules.get(name).map_or(0, BTreeSet::len);
            rows.push(vec![action.to_owned(), name.clone(), rules.to_string()]);
        }
    }
    aligned(&rows, 3)
}

fn config<M: Message + Name + Default>(filter: &Filter) -> Option<M> {
    match &filter.config_type {
        Some(ConfigType::TypedConfig(config)) => config.unpack().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rules_are_taken_apart() {
        assert_eq!(parse_name("ns[foo]-policy[b-a]-rule[2]"), Some(("b-a.foo".to_owned(), "2".to_owned())));
        assert_eq!(
            parse_name("istio-ext-authz-ns[foo]-policy[p]-rule[0]"),
            Some(("p.foo".to_owned(), "0".to_owned()))
        );
        assert_eq!(parse_name("something else"), None);
    }
}
