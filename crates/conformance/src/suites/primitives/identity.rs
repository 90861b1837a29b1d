//! SPIFFE identities, credential names and claim routes.

use canopus_api::credential::{self, Credential, Home};
use canopus_api::jwt::{self, Separator};
use canopus_base::spiffe::{self, Identity};
use canopus_base::tree::Node;
use serde_json::json;

use super::Check;
use super::row::{Row, equal, equal_tree, with_lower_case_keys};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestGenSpiffeURI" => make,
        "TestExpandWithTrustDomains" => expand,
        "TestIdentity" => parse,
        "TestParseResourceName" => credential_resource,
        "TestToResourceName" => credential_name,
        "TestToKubernetesGatewayResource" => gateway_credential_name,
        "TestToRoutingClaim" => routing_claim,
        _ => return None,
    })
}

fn make(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = Identity::new(row.text("trustDomain")?, row.text("namespace")?, row.text("serviceAccount")?);
    Ok(match (row.text("expectedError")?, got) {
        ("", Ok(identity)) => equal("expectedURI", &row.text("expectedURI")?, &identity.to_string().as_str()),
        (part, Err(error)) if !part.is_empty() && error.to_string().contains(part) => Vec::new(),
        (part, got) => vec![Difference::new("/expectedError", part, format_args!("{got:?}"))],
    })
}

fn expand(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let identities = row.texts("spiffeURI")?;
    let aliases = row.texts("trustDomains")?;
    let got = spiffe::expand(identities.iter().map(String::as_str), &aliases);
    let want = row.get("want").and_then(Node::as_map);
    let expected = want.map(|map| map.iter().map(|entry| entry.key.to_string()).collect());
    Ok(equal("want", &expected.unwrap_or_default(), &got))
}

fn parse(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = match row.text("input")?.parse::<Identity>() {
        Ok(identity) => json!({
            "trustdomain": identity.trust_domain,
            "namespace": identity.namespace,
            "serviceaccount": identity.service_account,
        }),
        Err(_) => json!(null),
    };
    let expected = row.get("expected").map(with_lower_case_keys).unwrap_or_default();
    Ok(equal_tree(&expected, &got.into()))
}

/// The clusters the table asks for, in the order of [`Home`].
const PROXY_CLUSTER: &str = "cluster";
const CONFIG_CLUSTER: &str = "config";

fn credential_resource(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let resource = row.text("resource")?;
    let got = Credential::parse(resource, row.text("defaultNamespace")?);
    let mut found = equal("err", &row.truth("err")?, &got.is_err());
    let expected = row.get("expected").map(with_lower_case_keys);
    if let (Ok(credential), Some(expected)) = (got, expected) {
        found.extend(equal_tree(&expected, &described(resource, &credential)));
    }
    Ok(found)
}

fn described(resource: &str, credential: &Credential) -> Node {
    let described = match credential {
        Credential::Object { source, namespace, name } => json!({
            "resourcetype": source.scheme().trim_end_matches("://"),
            "resourcekind": source.kind(),
            "name": name,
            "namespace": namespace,
            "resourcename": resource,
            "cluster": match source.home() {
                Home::ProxyCluster => PROXY_CLUSTER,
                Home::ConfigCluster => CONFIG_CLUSTER,
            },
        }),
        Credential::Invalid => json!({
            "resourcetype": "invalid",
            "resourcename": resource,
            "cluster": CONFIG_CLUSTER,
        }),
    };
    described.into()
}

fn credential_name(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = credential::resource_name(row.text("name")?);
    Ok(equal("want", &row.text("want")?, &got.as_str()))
}

fn gateway_credential_name(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = credential::gateway_resource_name(row.text("namespace")?, row.text("name")?);
    Ok(equal("want", &row.text("want")?, &got.as_str()))
}

fn routing_claim(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = jwt::routing_claim(row.text("name")?);
    let expected = with_lower_case_keys(row.get("want").unwrap_or(&Node::default()));
    let want = Row::new(&expected);
    let mut found = equal("want/match", &want.truth("match")?, &got.is_some());
    if let Some(claim) = got {
        found.extend(equal("want/claims", &want.texts("claims")?, &claim.path));
        // The second of Istio's separators; the table may give its name or its number, and leaves out the first.
        let brackets = want
            .get("separator")
            .is_some_and(|separator| separator.as_i64() == Some(1) || separator.as_str() == Some("Square"));
        found.extend(equal("want/separator", &brackets, &(claim.separator == Separator::Brackets)));
    }
    Ok(found)
}
