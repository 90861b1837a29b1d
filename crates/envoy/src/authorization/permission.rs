//! What a caller wants to do: Envoy's permissions.

use canopus_api::security;
use canopus_base::net::parse_prefix_or_ip;
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::{CidrRange, TypedExtensionConfig};
use canopus_proto::envoy::config::rbac::v3::{Permission, permission::Rule};
use canopus_proto::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use canopus_proto::envoy::r#type::matcher::v3::{PathMatcher, path_matcher};

use super::matcher;
use super::rule::{Attribute, Site, Terms, Unsupported};
use super::term::Term;
use crate::address;

/// What policies can ask about the operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Permitted<'a> {
    /// The authority of the request.
    Host,
    /// The method of the request.
    Method,
    /// The path of the request.
    Path,
    /// The port of the connection.
    Port,
    /// The address of the connection.
    DestinationIp,
    /// The name a TLS client asks for.
    ServerName,
    /// What some filter noted; the key says which.
    FilterMetadata(&'a str),
}

impl<'a> Permitted<'a> {
    /// The attribute a condition is about; `None` if it is not one of the operation.
    pub(super) fn from_key(key: &'a str) -> Option<Self> {
        match key {
            "destination.ip" => Some(Self::DestinationIp),
            "destination.port" => Some(Self::Port),
            "connection.sni" => Some(Self::ServerName),
            _ => key.starts_with("experimental.envoy.filters.").then_some(Self::FilterMetadata(key)),
        }
    }

    /// The key of an attribute that only requests have.
    fn request_key(self) -> Option<&'static str> {
        match self {
            Self::Host => Some("hosts"),
            Self::Method => Some("methods"),
            Self::Path => Some("paths"),
            _ => None,
        }
    }
}

impl Attribute for Permitted<'_> {
    type Message = Permission;

    fn terms(&self, values: &[String], site: &Site<'_>) -> Terms<Permission> {
        if let Some(key) = self.request_key().filter(|_| !site.layer.sees_requests()) {
            return Terms::Together(Err(Unsupported::RequestsOnly { key: key.into() }));
        }
        let term = |rule| Term::from(Permission { rule: Some(rule) });
        let each = |rule: &dyn Fn(&str) -> Result<Rule, Unsupported>| {
            Terms::Each(values.iter().map(|value| rule(value).map(term)).collect())
        };
        match *self {
            Self::Host => each(&|value| Ok(Rule::Header(matcher::header(":authority", value, true)))),
            Self::Method => each(&|value| Ok(Rule::Header(matcher::header(":method", value, false)))),
            Self::Path => each(&|value| Ok(path(value))),
            Self::Port => each(&|value| port(value).map(Rule::DestinationPort)),
            Self::DestinationIp => each(&|value| range(value).map(Rule::DestinationIp)),
            Self::ServerName => each(&|value| Ok(Rule::RequestedServerName(matcher::wildcard(value)))),
            Self::FilterMetadata(key) => Terms::Together(filter_metadata(key, values).map(term)),
        }
    }
}

fn path(value: &str) -> Rule {
    if security::contains_path_template(value) {
        let path_template = value.replace(security::MATCH_ONE, "*").replace(security::MATCH_ANY, "**");
        let template = UriTemplateMatchConfig { path_template };
        return Rule::UriTemplate(TypedExtensionConfig {
            name: "uri-template".into(),
            typed_config: Some(Any::pack(&template)),
        });
    }
    Rule::UrlPath(PathMatcher { rule: Some(path_matcher::Rule::Path(matcher::wildcard(value))) })
}

/// A range of addresses, or one.
pub(super) fn range(value: &str) -> Result<CidrRange, Unsupported> {
    let error = || Unsupported::Value { value: value.into(), expected: "an IP address or CIDR" };
    parse_prefix_or_ip(value).map(address::cidr).map_err(|_| error())
}

/// A port as policies write it.
pub fn port(value: &str) -> Result<u32, Unsupported> {
    let error = || Unsupported::Port { value: value.into() };
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.then(|| value.parse::<u16>().ok()).flatten();
    port.map(u32::from).ok_or_else(error)
}

/// Key `experimental.envoy.filters.a.b[c]` asks filter `envoy.filters.a.b` for `c`; a value in brackets for a list.
#[expect(deprecated, reason = "proxies before Envoy 1.35 know no other field")]
fn filter_metadata(key: &str, values: &[String]) -> Result<Rule, Unsupported> {
    let named = key.strip_prefix("experimental.").unwrap_or(key);
    let named = named.strip_suffix(']').unwrap_or(named);
    let (filter, name) = named.split_once('[').ok_or_else(|| Unsupported::Key { key: key.into() })?;
    let value = |value: &String| {
        if value.starts_with('[') && value.ends_with(']') {
            let inner = matcher::wildcard(value.trim_matches(['[', ']']));
            matcher::list_with(matcher::text_value(inner))
        } else {
            matcher::text_value(matcher::wildcard(value))
        }
    };
    let values = values.iter().map(value).collect();
    Ok(Rule::Metadata(matcher::metadata(filter, [name], matcher::one_of(values))))
}
