//! What single attributes of authorization policies become: Envoy's permissions and principals.

use anyhow::{Context, bail};
use canopus_base::tree::Limits;
use canopus_base::yaml;
use canopus_envoy::authorization::permission::{self, Permitted};
use canopus_envoy::authorization::principal::{self, Caller};
use canopus_envoy::authorization::rule::{Attribute, Site, Terms, Unsupported};
use canopus_envoy::authorization::{Layer, Peer};
use canopus_mesh::trust_domain::TrustDomains;
use canopus_proto::descriptors::to_dynamic;
use canopus_proto::envoy::config::rbac::v3::Principal;
use canopus_proto::envoy::config::rbac::v3::principal::Identifier;
use canopus_proto::envoy::r#type::matcher::v3::filter_state_matcher::Matcher;
use canopus_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use canopus_proto::{Message, Name};
use regex::Regex;

use super::Check;
use super::row::{Row, equal};
use crate::compare::tree::Rules;
use crate::compare::{Difference, proto};

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestRequestPrincipal" => request_principal,
        "TestGenerator" => generator,
        "TestServiceAccount" => service_account,
        "TestNamespaceMatcherRegex_Match" => namespace,
        "TestConvertToPort" => port,
        "TestExtractNameInBrackets" => name,
        "TestExtractNameInNestedBrackets" => names,
        _ => return None,
    })
}

/// The only term that an attribute with one value becomes.
fn term<A: Attribute<Message: Message + Default>>(
    attribute: &A,
    value: &str,
    layer: Layer,
) -> Result<A::Message, Unsupported> {
    let domains = TrustDomains::none();
    let site = Site { layer, peer: Peer::FilterState, namespace: "", allows: true, domains: &domains };
    let term = match attribute.terms(&[value.to_owned()], &site) {
        Terms::Together(term) => term,
        Terms::Each(mut terms) => terms.remove(0),
    };
    term.map(|term| term.to_message())
}

fn request_principal(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    against(row.text("want")?, term(&Caller::RequestPrincipal, row.text("in")?, Layer::Http))
}

/// An attribute by the name of Istio's generator of it.
fn generator(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let layer = if row.truth("forTCP")? { Layer::Tcp } else { Layer::Http };
    let (want, value) = (row.text("want")?, row.text("value")?);
    let permission = |attribute: Permitted<'_>| against(want, term(&attribute, value, layer));
    let principal = |attribute: Caller<'_>| against(want, term(&attribute, value, layer));
    match row.text("g")? {
        "destPortGenerator" => permission(Permitted::Port),
        "hostGenerator" => permission(Permitted::Host),
        "pathGenerator" => permission(Permitted::Path),
        "methodGenerator" => permission(Permitted::Method),
        "envoyFilterGenerator" => permission(Permitted::FilterMetadata(row.text("key")?)),
        "remoteIPGenerator" => principal(Caller::RemoteIp),
        "srcNamespaceGenerator" => principal(Caller::Namespace),
        "srcTrustDomainGenerator" => principal(Caller::TrustDomain),
        other => bail!("no attribute for {other}"),
    }
}

/// Compares with an expectation written in YAML; where nothing is written, an error is expected.
fn against<M: Message + Name>(
    expected: &str,
    got: Result<M, Unsupported>,
) -> anyhow::Result<Vec<Difference>> {
    if expected.is_empty() {
        return Ok(equal("want", &true, &got.is_err()));
    }
    let expected = proto::read(&M::full_name(), &yaml::parse_one(expected, &Limits::default())?)?;
    Ok(proto::difference(&expected, &to_dynamic(&got?), &Rules::default()))
}

fn service_account(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let expression = expression(&term(&Caller::ServiceAccount, row.text("Input")?, Layer::Http)?)?;
    Ok(equal("Match", &row.truth("Match")?, &expression.is_match(row.text("Identity")?)))
}

fn namespace(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let expression = expression(&term(&Caller::Namespace, row.text("v")?, Layer::Http)?)?;
    let mut found = equal("match", &true, &expression.is_match(row.text("match")?));
    found.extend(equal("noMatch", &false, &expression.is_match(row.text("noMatch")?)));
    Ok(found)
}

/// The expression for the peer's whole identity.
fn expression(principal: &Principal) -> anyhow::Result<Regex> {
    let Some(Identifier::FilterState(state)) = &principal.identifier else { bail!("not about the peer") };
    let Some(Matcher::StringMatch(text)) = &state.matcher else { bail!("not about text") };
    let Some(MatchPattern::SafeRegex(regex)) = &text.match_pattern else { bail!("not an expression") };
    Regex::new(&format!("^(?:{})$", regex.regex)).context("not an expression that can be matched")
}

fn port(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let (expected, part) = (row.integer("Expect")?, row.text("Err")?);
    Ok(match permission::port(row.text("V")?) {
        Ok(port) => equal("Expect", &expected, &port.into()),
        Err(error) if !part.is_empty() && error.to_string().contains(part) => Vec::new(),
        Err(error) => equal("Err", &part, &error.to_string().as_str()),
    })
}

fn name(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = principal::in_brackets(row.text("s")?);
    let mut found = equal("err", &row.truth("err")?, &got.is_none());
    found.extend(equal("want", &row.text("want")?, &got.unwrap_or_default()));
    Ok(found)
}

fn names(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = principal::in_nested_brackets(row.text("s")?);
    let mut found = equal("err", &row.truth("err")?, &got.is_none());
    let want = row.texts("want")?;
    let want: Vec<&str> = want.iter().map(String::as_str).collect();
    found.extend(equal("want", &want, &got.unwrap_or_default()));
    Ok(found)
}
