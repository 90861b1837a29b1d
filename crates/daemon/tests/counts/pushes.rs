//! What a push counts: a change that reaches proxies, one that has no effect, and the end of a service.

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{eventually, http};

use crate::{FILE, Lab, PATIENCE};

fn service(name: &str, labels: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: demo, labels: {{{labels}}}}}
spec: {{clusterIP: 10.0.0.10, selector: {{app: {name}}}, ports: [{{name: http, port: 80}}]}}
"
    )
}

const SERVICES: &str = "pilot_services";
const TRIGGERS: &str = "pilot_push_triggers{type=\"service\"}";
const UPDATES: &str = "pilot_inbound_updates{type=\"svc\"}";
const DELETIONS: &str = "pilot_inbound_updates{type=\"svcdelete\"}";
const EVENTS: &str = "pilot_k8s_reg_events{event=\"delete\",type=\"Services\"}";
const CLUSTERS: &str = "pilot_xds_pushes{type=\"cds\"}";

impl Lab {
    /// The value of a series, zero if there is none yet.
    async fn count(&self, name: &str) -> Result<f64> {
        let page = http::get(self.mesh.monitoring(), "/metrics").await?.ok()?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(Ok(0.0), |value| value.parse().with_context(|| format!("{name} is {value}")))
    }

    /// How much each of these has grown, once the first has grown by as much as this.
    async fn growth(&self, before: &[(&str, f64)], first: f64) -> Result<Vec<f64>> {
        let (name, value) = before[0];
        eventually("the first count", PATIENCE, async || {
            let grown = self.count(name).await? - value;
            ensure!(grown == first, "{name} has grown by {grown}, not {first}");
            Ok(())
        })
        .await?;
        let mut growth = Vec::new();
        for (name, value) in before {
            growth.push(self.count(name).await? - value);
        }
        Ok(growth)
    }

    async fn counts(&self, names: &[&'static str]) -> Result<Vec<(&'static str, f64)>> {
        let mut counts = Vec::new();
        for name in names {
            counts.push((*name, self.count(name).await?));
        }
        Ok(counts)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_service_is_counted_by_registry_and_push() -> Result<()> {
    let lab = Lab::open(&[service("cart", ""), service("list", "")].join("---")).await?;
    let sidecar = lab.sidecar().await?;
    lab.counts_are(&[("pilot_xds{version=\"unknown\"}", "1"), (SERVICES, "2"), (CLUSTERS, "1")]).await?;
    let before = lab.counts(&[CLUSTERS, SERVICES, EVENTS, DELETIONS, UPDATES]).await?;
    lab.mesh.write(FILE, &service("cart", ""))?;
    assert_eq!(lab.growth(&before, 1.0).await?, [1.0, -1.0, 1.0, 1.0, 0.0]);
    sidecar.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn change_without_effect_is_an_update_and_no_push() -> Result<()> {
    let lab = Lab::open(&service("cart", "")).await?;
    let sidecar = lab.sidecar().await?;
    lab.counts_are(&[("pilot_xds{version=\"unknown\"}", "1"), (CLUSTERS, "1")]).await?;
    let before = lab.counts(&[UPDATES, CLUSTERS, TRIGGERS, SERVICES]).await?;
    lab.mesh.write(FILE, &service("cart", "colour: blue"))?;
    assert_eq!(lab.growth(&before, 1.0).await?, [1.0, 0.0, 0.0, 0.0], "nobody is sent a byte");
    sidecar.abort();
    Ok(())
}
