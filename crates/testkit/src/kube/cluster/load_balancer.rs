use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::addresses::Addresses;
use crate::KubeProxy;
use crate::http::Method;

/// How often Services are looked at.
const PACE: Duration = Duration::from_millis(300);

/// Gives every Service of type LoadBalancer an address, which kube-proxy then serves.
pub(super) async fn run(api: KubeProxy, addresses: Addresses) {
    loop {
        // The API server may be away for a moment; the next round finds it again.
        let _ = assign(&api, addresses).await;
        sleep(PACE).await;
    }
}

async fn assign(api: &KubeProxy, addresses: Addresses) -> Result<()> {
    let answer = api.request(Method::GET, "/api/v1/services").send().await?.ok()?;
    let services: Value = serde_json::from_str(&answer)?;
    let is_balanced = |service: &&Value| service["spec"]["type"] == "LoadBalancer";
    let balanced: Vec<&Value> =
        services["items"].as_array().into_iter().flatten().filter(is_balanced).collect();
    let given =
        |service: &Value| service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned);
    let mut taken: BTreeSet<String> = balanced.iter().filter_map(|service| given(service)).collect();
    for service in balanced.into_iter().filter(|service| given(service).is_none()) {
        let free = (1..=254).map(|index| addresses.load_balancer(index).to_string());
        let address =
            free.into_iter().find(|address| !taken.contains(address)).context("no address is left")?;
        taken.insert(address.clone());
        let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{}/services/{}/status", text("namespace"), text("name"));
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}});
        api.request(Method::PATCH, &path)
            .header("content-type", "application/merge-patch+json")
            .body(status.to_string())
            .send()
            .await?
            .ok()?;
    }
    Ok(())
}
