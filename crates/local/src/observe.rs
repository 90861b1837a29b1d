//! Asking the mesh how it is: proxies for their metrics, the control plane for its ledger and its quarantine.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::http;
use crate::metrics::{Counters, Sample, Traffic};
use crate::node::Node;
use crate::plan::Plan;
use crate::snapshot::{Held, Push};

/// Pushes that are shown.
const PUSHES: usize = 12;

/// Asks proxies and control plane.
pub(crate) struct Observer {
    node: Rc<Node>,
    debug: SocketAddr,
    proxies: Vec<(String, SocketAddr)>,
}

/// What the control plane tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlPlane {
    pub(crate) answers: bool,
    pub(crate) pushes: Vec<Push>,
    pub(crate) quarantined: Vec<Held>,
}

impl Observer {
    pub(crate) fn new(plan: &Plan, node: Rc<Node>) -> Self {
        let proxy = |pod: &crate::plan::Pod| {
            let port = pod.proxy.as_ref()?.metrics;
            Some((pod.name.clone(), SocketAddr::from((pod.address, port))))
        };
        Self { node, debug: plan.debug, proxies: plan.pods.iter().filter_map(proxy).collect() }
    }

    /// Scrapes every proxy; one that does not answer is left out.
    pub(crate) async fn traffic(&self, counters: &mut Counters) -> Result<Traffic> {
        let proxies = self.proxies.clone();
        let sample = self.node.run(async move {
            let mut scrapes = JoinSet::new();
            for (name, address) in proxies {
                scrapes.spawn(async move { (name, scrape(address).await) });
            }
            let mut sample = Sample::default();
            while let Some(scraped) = scrapes.join_next().await {
                if let Ok((name, Ok(text))) = scraped {
                    sample.add(&name, &text);
                }
            }
            sample
        });
        counters.push(Instant::now(), sample.await?);
        Ok(counters.traffic())
    }

    /// Asks the control plane.
    pub(crate) async fn control_plane(&self) -> ControlPlane {
        let (Ok(ledger), Ok(quarantine)) = (
            self.debug(&format!("/debug/ledger?limit={PUSHES}")).await,
            self.debug("/debug/quarantine").await,
        ) else {
            return ControlPlane::default();
        };
        let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
        ControlPlane {
            answers: true,
            pushes: list(&ledger, "pushes").iter().map(push).collect(),
            quarantined: list(&quarantine, "objects").iter().filter_map(held).collect(),
        }
    }

    /// An answer of the control plane's debug port.
    pub(crate) async fn debug(&self, path: &str) -> Result<Value> {
        let (address, path) = (self.debug, path.to_owned());
        let text = self.node.run(async move { http::get(address, &path).await?.text() }).await??;
        serde_json::from_str(&text).context("the control plane's answer")
    }
}

async fn scrape(address: SocketAddr) -> Result<String> {
    http::get(address, "/stats/prometheus").await?.text()
}

fn push(value: &Value) -> Push {
    let names = |field: &str| -> Vec<String> {
        let list = value[field].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    Push {
        revision: value["revision"].as_u64().unwrap_or_default(),
        objects: names("objects"),
        reasons: value["reasons"]
            .as_object()
            .map(|reasons| reasons.keys().cloned().collect())
            .unwrap_or_default(),
        recipients: value["recipients"].as_array().map_or(0, Vec::len),
        rejected: value["rejected"]
            .as_u64()
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or_default(),
        acknowledged: value["changeToAckSeconds"].as_f64().map(|seconds| seconds * 1000.0),
    }
}

fn held(value: &Value) -> Option<Held> {
    let reason = value["reason"]["message"].as_str().unwrap_or_default();
    Some(Held { object: value["object"].as_str()?.to_owned(), reason: reason.to_owned() })
}
