//! The steps of a request, for programs and for people.

use std::fmt::Write as _;

use canopus_envoy::simulate::{End, Journey, Verdict};
use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterNotFoundResponseCode;
use serde_json::{Value, json};

use super::flags;
use super::proxy::{KnownProxy, Target};
use crate::proxy_config::cluster::management;

/// How many of the routes that were not taken are listed.
const MOST_OTHERS: usize = 5;

/// The steps of a request at one proxy.
pub(super) fn answer(proxy: &KnownProxy, journey: &Journey) -> Value {
    let targets = proxy.targets(journey);
    // With several clusters it depends on which is chosen.
    let failure = match targets.as_slice() {
        [target] => target.failure(),
        _ => None,
    };
    let made_from = |metadata| Some(management(metadata)).filter(|name| !name.is_empty());
    let others = journey.others.iter().map(|other| {
        json!({
            "route": other.route.name,
            "object": made_from(other.route.metadata.as_ref()),
            "mismatch": other.mismatch,
        })
    });
    json!({
        "listener": journey.listener,
        "filterChain": journey.filter_chain,
        "routeTable": journey.route_table,
        "virtualHost": journey.virtual_host,
        "route": journey.route,
        "object": journey.found.as_ref().and_then(|route| made_from(route.metadata.as_ref())),
        "otherRoutes": others.collect::<Vec<_>>(),
        "authorization": journey.verdicts.iter().map(verdict).collect::<Vec<_>>(),
        "clusters": targets.iter().map(|target| cluster(journey, target)).collect::<Vec<_>>(),
        "outcome": outcome(journey),
        "status": failure.map(|flag| refusal(journey, flag)).or(journey.status()),
        "flag": failure.or(flag(journey)),
        "fails": journey.end.is_err(),
    })
}

/// Adds what happens at the proxies of a cluster's endpoints.
pub(super) fn add_servers(answer: &mut Value, cluster: &str, mut servers: Vec<Value>) {
    for server in &mut servers {
        // A server that closes the connection leaves the client's proxy to answer.
        if server["fails"] == json!(true) && server["status"].is_null() {
            (server["status"], server["flag"]) = (json!(503), json!("UF"));
        }
    }
    let is_only = answer["clusters"].as_array().is_some_and(|clusters| clusters.len() == 1);
    let first = servers.first().map(|first| (first["status"].clone(), first["flag"].clone()));
    if let Some((status, flag)) = first
        && is_only
        && answer["status"].is_null()
        && servers.iter().all(|server| server["status"] == status)
    {
        (answer["status"], answer["flag"]) = (status, flag);
    }
    let clusters = answer["clusters"].as_array_mut();
    if let Some(found) = clusters.into_iter().flatten().find(|one| one["name"] == json!(cluster)) {
        found["servers"] = json!(servers);
    }
}

/// The status that the proxy answers with if it cannot send a request to the cluster of its route.
fn refusal(journey: &Journey, flag: &str) -> u32 {
    let action = journey.found.as_ref().and_then(|route| route.action.as_ref());
    match action {
        Some(Action::Route(action)) if flag == "NC" => match action.cluster_not_found_response_code() {
            ClusterNotFoundResponseCode::ServiceUnavailable => 503,
            ClusterNotFoundResponseCode::NotFound => 404,
            ClusterNotFoundResponseCode::InternalServerError => 500,
        },
        _ => 503,
    }
}

fn cluster(journey: &Journey, target: &Target<'_>) -> Value {
    let endpoints: Vec<String> = target.endpoints.iter().map(|one| one.address.to_string()).collect();
    json!({
        "name": target.name,
        "weight": target.weight,
        "exists": target.cluster.is_some(),
        "object": target.cluster.map(|cluster| management(cluster.metadata.as_ref())).filter(|name| !name.is_empty()),
        "endpoints": endpoints,
        "flag": target.failure(),
        "status": target.failure().map(|flag| refusal(journey, flag)),
    })
}

fn verdict(verdict: &Verdict) -> Value {
    json!({
        "action": if verdict.denies { "DENY" } else { "ALLOW" },
        "matched": verdict.matched.as_deref().map(policy),
        "policies": verdict.policies.iter().map(|name| policy(name)).collect::<Vec<_>>(),
        "passes": verdict.passes,
    })
}

/// `ns[shop]-policy[readers]-rule[0]` as people say it: `AuthorizationPolicy shop/readers, rule 0`.
pub(super) fn policy(name: &str) -> String {
    let part = |start: &str| name.split_once(start)?.1.split_once(']').map(|(part, _)| part);
    match (part("ns["), part("-policy["), part("-rule[")) {
        (Some(namespace), Some(policy), Some(rule)) => {
            format!("AuthorizationPolicy {namespace}/{policy}, rule {rule}")
        }
        _ => name.to_owned(),
    }
}

fn outcome(journey: &Journey) -> String {
    match &journey.end {
        Ok(End::Cluster(_) | End::Weighted(_)) => "forwarded".to_owned(),
        Ok(End::ClusterHeader(header)) => format!("forwarded to the cluster that header {header} names"),
        Ok(End::Redirect(_)) => "redirected".to_owned(),
        Ok(End::Response(status)) => format!("answered with {status} by the proxy"),
        Ok(End::Fault(status)) => format!("ended with {status} by a fault that the route injects"),
        Ok(End::Nothing) => "ends in a filter that forwards nothing".to_owned(),
        Err(failure) => failure.to_string(),
    }
}

/// The response flag that the proxy's access log would have.
fn flag(journey: &Journey) -> Option<&'static str> {
    use canopus_envoy::simulate::Failure;
    match &journey.end {
        Ok(End::Fault(_)) => Some("FI"),
        Err(Failure::NoVirtualHost | Failure::NoRoute | Failure::NoFilterChain) => Some("NR"),
        _ => None,
    }
}

/// The steps for people.
pub(super) fn text(answer: &Value) -> String {
    let mut text = String::new();
    steps(&mut text, answer);
    for cluster in answer["clusters"].as_array().into_iter().flatten() {
        for server in cluster["servers"].as_array().into_iter().flatten() {
            let word = |key: &str| server[key].as_str().unwrap_or_default();
            let _ = writeln!(text, "\nat {} ({})", word("endpoint"), word("proxy"));
            steps(&mut text, server);
        }
    }
    if let Some(status) = answer["status"].as_u64() {
        let flag = answer["flag"].as_str();
        let _ = writeln!(
            text,
            "\n{:>13}  {status}{}",
            "status",
            flag.map(|f| format!(" ({f})")).unwrap_or_default()
        );
        if let Some(flag) = flag.and_then(flags::find) {
            let _ = writeln!(text, "{:>13}  {}", "", flag.meaning);
            let _ = writeln!(text, "{:>13}  {}", "", flag.remedy);
        }
    }
    text
}

fn steps(text: &mut String, answer: &Value) {
    let mut line = |title: &str, value: &str| {
        let _ = writeln!(text, "{title:>13}  {value}");
    };
    for (title, key) in [
        ("listener", "listener"),
        ("filter chain", "filterChain"),
        ("route table", "routeTable"),
        ("virtual host", "virtualHost"),
        ("route", "route"),
        ("made from", "object"),
    ] {
        if let Some(value) = answer[key].as_str() {
            line(title, if value.is_empty() { "(unnamed)" } else { value });
        }
    }
    let others: Vec<&Value> = answer["otherRoutes"].as_array().into_iter().flatten().collect();
    for other in others.iter().take(MOST_OTHERS) {
        let word = |key: &str| other[key].as_str();
        let name = word("route").filter(|name| !name.is_empty()).unwrap_or("(unnamed)");
        let object = word("object").map(|object| format!(" of {object}")).unwrap_or_default();
        let why = word("mismatch").map_or_else(
            || "would match too, but comes later".to_owned(),
            |mismatch| format!("does not match: {mismatch}"),
        );
        line("not", &format!("{name}{object}: {why}"));
    }
    if others.len() > MOST_OTHERS {
        line("not", &format!("{} more routes", others.len() - MOST_OTHERS));
    }
    for verdict in answer["authorization"].as_array().into_iter().flatten() {
        let action = verdict["action"].as_str().unwrap_or_default();
        let said = match (verdict["matched"].as_str(), verdict["passes"].as_bool().unwrap_or_default()) {
            (Some(policy), true) => format!("allowed by {policy}"),
            (Some(policy), false) => format!("denied by {policy}"),
            (None, true) => "no policy that denies matches".to_owned(),
            (None, false) => {
                let policies = verdict["policies"].as_array().into_iter().flatten().filter_map(Value::as_str);
                format!("denied: no policy that allows matches ({})", policies.collect::<Vec<_>>().join("; "))
            }
        };
        line("access", &format!("{action}: {said}"));
    }
    for cluster in answer["clusters"].as_array().into_iter().flatten() {
        let weight = cluster["weight"].as_u64().map(|weight| format!("  (weight {weight})"));
        let name = cluster["name"].as_str().unwrap_or_default();
        line("cluster", &format!("{name}{}", weight.unwrap_or_default()));
        let endpoints = cluster["endpoints"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let endpoints: Vec<&str> = endpoints.collect();
        match (cluster["flag"].as_str(), endpoints.is_empty()) {
            (Some("NC"), _) => line("", "the proxy has no such cluster"),
            (Some(flag), _) => line("endpoints", &format!("none: such requests get 503 ({flag})")),
            (None, false) => line("endpoints", &endpoints.join(", ")),
            (None, true) => {}
        }
    }
    line("outcome", answer["outcome"].as_str().unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_named_as_people_name_them() {
        assert_eq!(policy("ns[shop]-policy[readers]-rule[12]"), "AuthorizationPolicy shop/readers, rule 12");
        assert_eq!(policy("istio-ext-authz-x"), "istio-ext-authz-x");
    }

    #[test]
    fn a_server_that_closes_the_connection_makes_the_client_answer() {
        let client = || json!({"status": null, "flag": null, "clusters": [{"name": "c"}]});
        let mut answer = client();
        add_servers(&mut answer, "c", vec![json!({"fails": true, "status": null})]);
        assert_eq!((&answer["status"], &answer["flag"]), (&json!(503), &json!("UF")));
        let mut answer = client();
        add_servers(&mut answer, "c", vec![json!({"fails": true, "status": 403})]);
        assert_eq!((&answer["status"], &answer["flag"]), (&json!(403), &json!(null)));
        let mut answer = client();
        add_servers(&mut answer, "c", vec![json!({"fails": true, "status": 403}), json!({"fails": false})]);
        assert!(answer["status"].is_null(), "it depends on the endpoint: {answer}");
    }
}
