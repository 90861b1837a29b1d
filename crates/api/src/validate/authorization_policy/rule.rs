//! The rules of a policy: where a request comes from, what it is for, and other conditions.

use canopus_proto::istio::security::v1beta1::{Condition, Operation, Rule, Source};

use crate::security::{self, Checked, InvalidValue};
use crate::validate::code::{Code, Fault, codes};
use crate::validate::report;
use crate::validate::scope::Scope;

codes! {
    NO_SOURCE: error "policy-source-missing", "give a source, or remove the item";
    EMPTY_SOURCE: error "policy-source-empty", "match on something; leave from out to match every caller";
    ACCOUNTS_AND_MORE: error "policy-accounts-and-principals",
        "use serviceAccounts alone: they say the namespace already";
    NO_OPERATION: error "policy-operation-missing", "give an operation, or remove the item";
    EMPTY_OPERATION: error "policy-operation-empty", "match on something; leave to out to match every request";
    NO_KEY: error "policy-condition-without-key", "name an attribute, such as request.headers[x-token]";
    NO_VALUES: error "policy-condition-without-values", "give values, notValues, or both";
    EMPTY_VALUE: error "policy-value-empty", "remove the empty value";
    WILDCARD: error "policy-value-wildcard", "use at most one *, at the beginning or the end";
    BAD_TRUST_DOMAIN: error "policy-trust-domain-invalid", "give a trust domain, such as cluster.local";
    BAD_ACCOUNT: error "policy-service-account-invalid", "write serviceAccount or namespace/serviceAccount";
    BAD_PATH: error "policy-path-invalid", "use {*} for one segment and {**} for the rest, each a whole segment";
    BAD_ADDRESS: error "policy-ip-invalid", "give an IP address or a subnet such as 10.0.0.0/8";
    BAD_PORT: error "policy-port-invalid", "give port numbers up to 65535";
    BAD_ATTRIBUTE: error "policy-attribute-unknown", "use an attribute that conditions know";
}

/// Checks the rule that messages know by its `place`.
pub(super) fn check(rule: &Rule, place: usize, mut scope: Scope<'_>) {
    scope.each("from", &rule.from, |from, mut scope| match &from.source {
        Some(source) => self::source(source, place, scope.field("source")),
        None => scope.add(NO_SOURCE.says(format!("`from.source` must not be nil, found at rule {place}"))),
    });
    scope.each("to", &rule.to, |to, mut scope| match &to.operation {
        Some(operation) => self::operation(operation, place, scope.field("operation")),
        None => {
            scope.add(NO_OPERATION.says(format!("`to.operation` must not be nil, found at rule {place}")));
        }
    });
    scope.each("when", &rule.when, condition);
}

/// Whether a rule matches only on what HTTP has, so that other traffic cannot be told apart.
pub(super) fn is_only_http(rule: &Rule) -> bool {
    let mut sources = rule.from.iter().filter_map(|from| from.source.as_ref()).peekable();
    let mut operations = rule.to.iter().filter_map(|to| to.operation.as_ref()).peekable();
    let (has_sources, has_operations) = (sources.peek().is_some(), operations.peek().is_some());
    let tcp_source = sources.any(|source| {
        let lists = [
            &source.principals,
            &source.not_principals,
            &source.ip_blocks,
            &source.not_ip_blocks,
            &source.namespaces,
            &source.not_namespaces,
            &source.remote_ip_blocks,
            &source.not_remote_ip_blocks,
            &source.service_accounts,
            &source.not_service_accounts,
        ];
        lists.iter().any(|list| !list.is_empty())
    });
    let tcp_operation = operations.any(|to| !to.ports.is_empty() || !to.not_ports.is_empty());
    (has_sources && !has_operations && !tcp_source) || (has_operations && !tcp_operation)
}

fn source(source: &Source, place: usize, mut scope: Scope<'_>) {
    let identified = [&source.principals, &source.not_principals, &source.namespaces, &source.not_namespaces];
    let accounts = [&source.service_accounts, &source.not_service_accounts];
    let given = |lists: &[&Vec<String>]| lists.iter().any(|list| !list.is_empty());
    if given(&identified) && given(&accounts) {
        let message =
            format!("cannot set serviceAccounts with namespaces or principals, found at rule {place}");
        scope.field("serviceAccounts").add(ACCOUNTS_AND_MORE.says(message));
    }
    scope.add_if(*source == Source::default(), || {
        EMPTY_SOURCE.says(format!("`from.source` must not be empty, found at rule {place}"))
    });
    ips(&source.ip_blocks, scope.field("ipBlocks"));
    ips(&source.not_ip_blocks, scope.field("notIpBlocks"));
    ips(&source.remote_ip_blocks, scope.field("remoteIpBlocks"));
    ips(&source.not_remote_ip_blocks, scope.field("notRemoteIpBlocks"));
    let (empty, account, trust): (Check, Check, Check) =
        (security::check_not_empty, security::check_service_accounts, security::check_trust_domains);
    let lists = [
        ("principals", "Principals", &source.principals, empty),
        ("requestPrincipals", "RequestPrincipals", &source.request_principals, empty),
        ("namespaces", "Namespaces", &source.namespaces, empty),
        ("serviceAccounts", "ServiceAccounts", &source.service_accounts, account),
        ("trustDomains", "TrustDomains", &source.trust_domains, trust),
        ("ipBlocks", "IpBlocks", &source.ip_blocks, empty),
        ("remoteIpBlocks", "RemoteIpBlocks", &source.remote_ip_blocks, empty),
        ("notPrincipals", "NotPrincipals", &source.not_principals, empty),
        ("notRequestPrincipals", "NotRequestPrincipals", &source.not_request_principals, empty),
        ("notNamespaces", "NotNamespaces", &source.not_namespaces, empty),
        ("notServiceAccounts", "NotServiceAccounts", &source.not_service_accounts, account),
        ("notTrustDomains", "NotTrustDomains", &source.not_trust_domains, trust),
        ("notIpBlocks", "NotIpBlocks", &source.not_ip_blocks, empty),
        ("notRemoteIpBlocks", "NotRemoteIpBlocks", &source.not_remote_ip_blocks, empty),
    ];
    values(&lists, scope);
}

fn operation(operation: &Operation, place: usize, mut scope: Scope<'_>) {
    scope.add_if(*operation == Operation::default(), || {
        EMPTY_OPERATION.says(format!("`to.operation` must not be empty, found at rule {place}"))
    });
    ports(&operation.ports, scope.field("ports"));
    ports(&operation.not_ports, scope.field("notPorts"));
    let (empty, path): (Check, Check) = (security::check_not_empty, security::check_path_templates);
    let lists = [
        ("ports", "Ports", &operation.ports, empty),
        ("methods", "Methods", &operation.methods, empty),
        ("paths", "Paths", &operation.paths, empty),
        ("hosts", "Hosts", &operation.hosts, empty),
        ("notPorts", "NotPorts", &operation.not_ports, empty),
        ("notMethods", "NotMethods", &operation.not_methods, empty),
        ("notPaths", "NotPaths", &operation.not_paths, empty),
        ("notHosts", "NotHosts", &operation.not_hosts, empty),
        ("paths", "Paths", &operation.paths, path),
        ("notPaths", "NotPaths", &operation.not_paths, path),
    ];
    values(&lists, scope);
}

/// A check of a list that is called something in messages.
type Check = fn(&str, &[String]) -> Checked;

/// Checks lists, each by its field, by what messages call it, and in its own way.
fn values(lists: &[(&'static str, &str, &Vec<String>, Check)], mut scope: Scope<'_>) {
    for (field, name, values, check) in lists {
        if let Err(invalid) = check(name, values) {
            scope.field(field).add(fault(&invalid));
        }
    }
}

fn ips(values: &[String], mut scope: Scope<'_>) {
    for invalid in security::check_ips(values) {
        scope.add(fault(&invalid).listed());
    }
}

fn ports(values: &[String], mut scope: Scope<'_>) {
    for invalid in security::check_ports(values) {
        scope.add(fault(&invalid).listed());
    }
}

fn condition(condition: &Condition, mut scope: Scope<'_>) {
    let Condition { key, values, not_values } = condition;
    if key.is_empty() {
        return scope.field("key").add(NO_KEY.says("`key` must not be empty"));
    }
    if values.is_empty() && not_values.is_empty() {
        let message = format!("at least one of `values` or `notValues` must be set for key {key}");
        return scope.add(NO_VALUES.says(message));
    }
    // Parity: an attribute nobody knows is said of both lists, be they empty.
    attribute(key, values, "value", scope.field("values"));
    attribute(key, not_values, "notValue", scope.field("notValues"));
}

fn attribute(key: &str, values: &[String], name: &str, mut scope: Scope<'_>) {
    let invalid = security::check_attribute(key, values);
    let Some(first) = invalid.first() else { return };
    let why = match first {
        InvalidValue::Ip { .. } | InvalidValue::Cidr { .. } | InvalidValue::Port { .. } => {
            let messages: Vec<_> = invalid.iter().map(ToString::to_string).collect();
            report::list(messages.iter().map(String::as_str))
        }
        _ => first.to_string(),
    };
    scope.add(fault(first).reworded(|_| format!("invalid `{name}` for `key` {key}: {why}")));
}

fn fault(invalid: &InvalidValue) -> Fault {
    let (code, value): (&'static Code, Option<&str>) = match invalid {
        InvalidValue::Empty { .. } => (&EMPTY_VALUE, None),
        InvalidValue::ManyWildcards { value, .. } | InvalidValue::InnerWildcard { value, .. } => {
            (&WILDCARD, Some(value))
        }
        InvalidValue::Wildcard { .. } => (&WILDCARD, None),
        InvalidValue::TrustDomainPath { value, .. } => (&BAD_TRUST_DOMAIN, Some(value)),
        InvalidValue::TooMany => (&BAD_ACCOUNT, None),
        InvalidValue::ServiceAccount { value, .. } | InvalidValue::TooLong { value, .. } => {
            (&BAD_ACCOUNT, Some(value))
        }
        InvalidValue::Path { path, .. } => (&BAD_PATH, Some(path)),
        InvalidValue::Ip { value } | InvalidValue::Cidr { value, .. } => (&BAD_ADDRESS, Some(value)),
        InvalidValue::Port { value, .. } => (&BAD_PORT, Some(value)),
        InvalidValue::MapKey { key }
        | InvalidValue::Replaced { key, .. }
        | InvalidValue::Deprecated { key }
        | InvalidValue::UnknownAttribute { key } => (&BAD_ATTRIBUTE, Some(key)),
    };
    let fault = code.says(invalid.to_string());
    match value {
        Some(value) => fault.with_value(value),
        None => fault,
    }
}
