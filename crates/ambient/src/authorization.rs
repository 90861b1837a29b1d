//! AuthorizationPolicies converted for ztunnels, which see connections but no requests.

use canopus_api::annotations;
use canopus_api::istio::AuthorizationPolicy;
use canopus_base::net::{parse_ip, parse_prefix};
use canopus_mesh::authorization::http_attributes;
use canopus_mesh::world::MeshSettings;
use canopus_proto::google::protobuf::Empty;
use canopus_proto::istio::security::string_match::MatchType;
use canopus_proto::istio::security::v1beta1::authorization_policy::Action as Written;
use canopus_proto::istio::security::v1beta1::{Condition, Operation, Rule, Source};
use canopus_proto::istio::security::{
    Action, Address, Authorization, Group, Match, Rules, Scope, ServiceAccountMatch, StringMatch,
};
use canopus_runtime::flags::AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY;

use crate::address;

/// Converts a policy. Returns `None` if ztunnels do not enforce it.
pub(crate) fn convert(settings: &MeshSettings, policy: &AuthorizationPolicy) -> Option<Authorization> {
    let spec = &policy.spec;
    let annotation = policy.meta.annotation(annotations::DRY_RUN.name);
    let dry_run = matches!(annotation, Some("1" | "t" | "T" | "true" | "TRUE" | "True"));
    let supports_dry_run = settings.flags.get(AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY);
    let has_targets = spec.target_ref.is_some() || !spec.target_refs.is_empty();
    if has_targets || (dry_run && !supports_dry_run) {
        return None;
    }
    let action = match Written::try_from(spec.action).ok()? {
        Written::Allow => Action::Allow,
        Written::Deny => Action::Deny,
        Written::Audit | Written::Custom => return None,
    };
    let scope = match &spec.selector {
        Some(_) => Scope::WorkloadSelector,
        None if *policy.meta.namespace == *settings.root_namespace() => Scope::Global,
        None => Scope::Namespace,
    };
    let groups = spec.rules.iter().filter_map(|rule| group(action, rule, &policy.meta.namespace));
    Some(Authorization {
        name: policy.meta.name.to_string(),
        namespace: policy.meta.namespace.to_string(),
        scope: scope as i32,
        action: action as i32,
        groups: groups.collect(),
        dry_run,
        ..Default::default()
    })
}

/// Converts a rule, all of whose conditions must hold. A rule with HTTP attributes never allows a connection; a DENY rule is
/// enforced without its HTTP attributes.
fn group(action: Action, rule: &Rule, namespace: &str) -> Option<Group> {
    let operations: Vec<_> = rule.to.iter().filter_map(|to| to.operation.as_ref()).collect();
    let sources: Vec<_> = rule.from.iter().filter_map(|from| from.source.as_ref()).collect();
    if action == Action::Allow && !http_attributes(rule).is_empty() {
        return None;
    }
    let to: Vec<_> = operations.into_iter().map(operation_match).collect();
    let from: Vec<_> = sources.into_iter().map(|source| source_match(source, namespace)).collect();
    let when = rule.when.iter().map(|condition| vec![condition_match(condition)]);
    let parts = [to, from].into_iter().filter(|matches| !matches.is_empty()).chain(when);
    Some(Group { rules: parts.map(|matches| Rules { matches }).collect() })
}

fn operation_match(operation: &Operation) -> Match {
    Match {
        destination_ports: ports(&operation.ports),
        not_destination_ports: ports(&operation.not_ports),
        ..Default::default()
    }
}

fn source_match(source: &Source, namespace: &str) -> Match {
    Match {
        source_ips: addresses(&source.ip_blocks),
        not_source_ips: addresses(&source.not_ip_blocks),
        namespaces: texts(&source.namespaces),
        not_namespaces: texts(&source.not_namespaces),
        service_accounts: accounts(&source.service_accounts, namespace),
        not_service_accounts: accounts(&source.not_service_accounts, namespace),
        principals: texts(&source.principals),
        not_principals: texts(&source.not_principals),
        ..Default::default()
    }
}

fn condition_match(condition: &Condition) -> Match {
    let (values, not_values) = (&condition.values, &condition.not_values);
    match condition.key.as_str() {
        "source.namespace" => {
            Match { namespaces: texts(values), not_namespaces: texts(not_values), ..Default::default() }
        }
        "source.principal" => {
            Match { principals: texts(values), not_principals: texts(not_values), ..Default::default() }
        }
        "source.ip" => Match {
            source_ips: addresses(values),
            not_source_ips: addresses(not_values),
            ..Default::default()
        },
        "destination.port" => Match {
            destination_ports: ports(values),
            not_destination_ports: ports(not_values),
            ..Default::default()
        },
        "destination.ip" => Match {
            destination_ips: addresses(values),
            not_destination_ips: addresses(not_values),
            ..Default::default()
        },
        _ => Match::default(),
    }
}

/// Converts texts that may begin or end with a wildcard.
fn texts(written: &[String]) -> Vec<StringMatch> {
    let text = |text: &String| {
        let kind = if text == "*" {
            presence()
        } else if let Some(suffix) = text.strip_prefix('*') {
            MatchType::Suffix(suffix.to_owned())
        } else if let Some(prefix) = text.strip_suffix('*') {
            MatchType::Prefix(prefix.to_owned())
        } else {
            MatchType::Exact(text.clone())
        };
        StringMatch { match_type: Some(kind) }
    };
    written.iter().map(text).collect()
}

/// Matches any value.
pub(crate) fn presence() -> MatchType {
    MatchType::Presence(Empty::default())
}

/// Converts service accounts, which are in the policy's namespace unless they name another.
fn accounts(written: &[String], namespace: &str) -> Vec<ServiceAccountMatch> {
    let account = |text: &String| {
        let (namespace, account) = text.split_once('/').unwrap_or((namespace, text));
        ServiceAccountMatch { namespace: namespace.to_owned(), service_account: account.to_owned() }
    };
    written.iter().map(account).collect()
}

fn ports(written: &[String]) -> Vec<u32> {
    written.iter().filter_map(|text| text.parse::<u16>().ok()).map(u32::from).collect()
}

fn addresses(written: &[String]) -> Vec<Address> {
    let address = |text: &String| {
        if let Ok(ip) = parse_ip(text) {
            let length = if ip.is_ipv4() { 32 } else { 128 };
            return Some(Address { address: address::octets(ip), length });
        }
        let range = parse_prefix(text).ok()?;
        Some(Address { address: address::octets(range.addr()), length: range.prefix_len().into() })
    };
    written.iter().filter_map(address).collect()
}
