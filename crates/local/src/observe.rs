//! Asking the mesh how it is: proxies for their metrics, the control plane for its ledger and its quarantine.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use canopus_base::protocol::Protocol;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::http;
use crate::metrics::{Counters, Identities, Sample, ServiceTraffic, Traffic};
use crate::node::Node;
use crate::plan::Plan;
use crate::snapshot::{HeldObject, Push};

/// Pushes that are shown.
const PUSHES: usize = 12;

/// Asks proxies and control plane.
pub(crate) struct Observer {
    node: Rc<Node>,
    debug: SocketAddr,
    proxies: Vec<(String, SocketAddr)>,
    identities: Arc<Identities>,
    services: Vec<ServiceTraffic>,
}

/// What the control plane tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlPlane {
    pub(crate) answers: bool,
    pub(crate) pushes: Vec<Push>,
    pub(crate) quarantined: Vec<HeldObject>,
}

impl ControlPlane {
    /// The number of the newest change that it has written down.
    pub(crate) fn last_revision(&self) -> u64 {
        self.pushes.first().map_or(0, |push| push.revision)
    }
}

impl Observer {
    pub(crate) fn new(plan: &Plan, node: Rc<Node>) -> Self {
        let proxy = |pod: &crate::plan::Pod| {
            let port = pod.proxy.as_ref()?.metrics;
            Some((pod.name.clone(), SocketAddr::from((pod.address, port))))
        };
        Self {
            node,
            debug: plan.debug,
            proxies: plan.pods.iter().filter_map(proxy).collect(),
            identities: Arc::new(identities(plan)),
            services: services(plan),
        }
    }

    /// Scrapes every proxy; one that does not answer is left out.
    pub(crate) async fn traffic(&self, counters: &mut Counters) -> Result<Traffic> {
        let (proxies, identities) = (self.proxies.clone(), Arc::clone(&self.identities));
        let sample = self.node.run(async move {
            let mut scrapes = JoinSet::new();
            for (name, address) in proxies {
                scrapes.spawn(async move { (name, scrape(address).await) });
            }
            let mut sample = Sample::default();
            while let Some(scraped) = scrapes.join_next().await {
                if let Ok((name, Ok(text))) = scraped {
                    sample.add(&name, &text, &identities);
                }
            }
            sample
        });
        counters.push(Instant::now(), sample.await?);
        Ok(counters.traffic())
    }

    /// Traffic with the services of the mesh that have none.
    pub(crate) fn with_idle(&self, mut traffic: Traffic) -> Traffic {
        traffic.add_idle(&self.services);
        traffic
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

/// The services that accounts stand for. An account that several services share stands for none of them.
fn identities(plan: &Plan) -> Identities {
    let mut identities = Identities::new();
    for pod in plan.pods.iter().filter(|pod| pod.proxy.is_some()) {
        let account = &pod.service_account;
        let service = pod.service.as_ref().unwrap_or(&pod.workload);
        let name = identities.entry(format!("{}/sa/{account}", pod.namespace)).or_insert(service.clone());
        if name != service {
            name.clone_from(account);
        }
    }
    identities
}

/// The services of a mesh with their versions, and those outside of it.
fn services(plan: &Plan) -> Vec<ServiceTraffic> {
    let inside = plan.pods.iter().filter_map(|pod| {
        let port = pod.ports.first()?;
        let version = pod.labels.get("version").cloned().unwrap_or_default();
        Some((pod.service.clone()?, version, port.protocol))
    });
    let outside = plan
        .externals
        .iter()
        .filter_map(|service| Some((service.host.clone(), String::new(), service.ports.first()?.protocol)));
    let service = |(service, version, protocol): (String, String, Protocol)| ServiceTraffic {
        service,
        version,
        protocol: protocol.as_str().to_lowercase(),
        ..ServiceTraffic::default()
    };
    let mut services: Vec<ServiceTraffic> = inside.chain(outside).map(service).collect();
    // Replicas are of one version.
    services.dedup();
    services
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

fn held(value: &Value) -> Option<HeldObject> {
    let reason = value["reason"]["message"].as_str().unwrap_or_default();
    Some(HeldObject { object: value["object"].as_str()?.to_owned(), reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::mesh_file::MeshFile;
    use crate::plan::Mode;

    #[test]
    fn services_and_who_stands_for_them_follow_from_the_plan() {
        let file = "
name: shop
namespace: shop
workloads:
- {name: web, command: web, port: 80}
- {name: stock-v1, service: stock, serviceAccount: keeper, version: v1, command: stock, port: 7000, protocol: TCP, replicas: 2}
- {name: one, serviceAccount: shared, command: one, port: 81}
- {name: two, serviceAccount: shared, command: two, port: 82}
- {name: pay, command: pay, port: 83, external: pay.example.com}
";
        let file = MeshFile::parse(file.as_bytes()).unwrap();
        let plan = Plan::new(&file, Path::new("/srv/shop"), Mode::Namespaces, &mut || 1);
        let identities = identities(&plan);
        assert_eq!(identities["shop/sa/keeper"], "stock");
        assert_eq!(identities["shop/sa/shared"], "shared");
        let known = services(&plan);
        let known: Vec<_> = known
            .iter()
            .map(|service| (service.service.as_str(), service.version.as_str(), service.protocol.as_str()))
            .collect();
        let expected = [
            ("web", "", "http"),
            ("stock", "v1", "tcp"),
            ("one", "", "http"),
            ("two", "", "http"),
            ("pay.example.com", "", "http"),
        ];
        assert_eq!(known, expected);
    }
}
