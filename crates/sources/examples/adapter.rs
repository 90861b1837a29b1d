//! A source in a hundred lines: the services of a registry that answers with JSON over HTTP. See docs/adapters.md.
//!
//! `cargo run -p canopus-sources --example adapter -- http://127.0.0.1:8600/services` follows one and prints what changes.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use canopus_api::istio::ServiceEntry;
use canopus_api::{Kind, Object, ObjectKey};
use canopus_base::labels::is_dns_label;
use canopus_proto::istio::networking::v1alpha3 as networking;
use canopus_sources::{Change, Closed, Feed, ProblemScope, Source, SourcePart};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use tokio::time::{sleep, timeout};

/// A registry decides what it answers, not how much memory that takes.
const MAX_BYTES: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
const NAMESPACE: &str = "default";

/// What the registry says of a service.
#[derive(Deserialize)]
struct Service {
    name: String,
    port: u16,
    /// Addresses of the instances that are healthy.
    instances: Vec<String>,
}

/// A registry as a source.
pub(crate) struct Registry {
    pub(crate) url: Uri,
    pub(crate) interval: Duration,
}

impl Source for Registry {
    async fn run(self, feed: Feed) {
        // The only way to end is that nobody listens any more.
        let _ = self.follow(&feed).await;
    }
}

impl Registry {
    async fn follow(&self, feed: &Feed) -> Result<(), Closed> {
        loop {
            let changes = match timeout(PATIENCE, self.services()).await {
                Ok(Ok(services)) => listing(&services),
                // What was known stays in force: a registry that is away is not an empty one.
                Ok(Err(reason)) => vec![Change::Lost(SourcePart::Whole, reason)],
                Err(_) => vec![Change::Lost(SourcePart::Whole, format!("no answer in {PATIENCE:?}"))],
            };
            feed.send(changes).await?;
            tokio::select! {
                () = sleep(self.interval) => {}
                () = feed.closed() => return Err(Closed),
            }
        }
    }

    async fn services(&self) -> Result<Vec<Service>, String> {
        let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(HttpConnector::new());
        let request = Request::get(self.url.clone()).body(Empty::new()).map_err(|error| error.to_string())?;
        let response = client.request(request).await.map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("{} answered {}", self.url, response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| format!("{} cannot be understood: {error}", self.url))
    }
}

/// A complete listing: what it neither sets nor keeps is gone.
fn listing(services: &[Service]) -> Vec<Change> {
    let mut changes = vec![Change::Begin(SourcePart::Whole)];
    for service in services {
        let key = ObjectKey::new(Kind::ServiceEntry, NAMESPACE, &host(service));
        match service_entry(service) {
            Ok(object) => changes.push(Change::Set(object)),
            Err(problem) => {
                // One service that makes no sense keeps its last good value, and the others go on.
                changes.push(Change::Keep(key.clone()));
                changes.push(Change::Problems(ProblemScope::Object(key), vec![problem]));
            }
        }
    }
    changes.push(Change::End(SourcePart::Whole));
    changes
}

fn host(service: &Service) -> String {
    format!("{}.registry.internal", service.name)
}

fn service_entry(service: &Service) -> Result<Object, String> {
    if !is_dns_label(&service.name) {
        return Err(format!("{:?} cannot be part of a host name; rename the service", service.name));
    }
    let endpoint = |address: &String| networking::WorkloadEntry {
        address: address.clone(),
        ports: BTreeMap::from([("http".to_owned(), u32::from(service.port))]),
        ..Default::default()
    };
    let port = networking::ServicePort {
        number: u32::from(service.port),
        protocol: "HTTP".to_owned(),
        name: "http".to_owned(),
        ..Default::default()
    };
    let spec = networking::ServiceEntry {
        hosts: vec![host(service)],
        ports: vec![port],
        location: networking::service_entry::Location::MeshInternal.into(),
        resolution: networking::service_entry::Resolution::Static.into(),
        endpoints: service.instances.iter().map(endpoint).collect(),
        ..Default::default()
    };
    Ok(ServiceEntry::new(NAMESPACE, &host(service), spec).into())
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, clippy::print_stdout, reason = "a program that prints; its test has the rest alone")]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_default().parse::<Uri>()?;
    let mut intake = canopus_sources::Intake::new();
    let feed = intake.feed(canopus_sources::SourceInfo::new(format!("registry:{url}"), "Kubernetes", 0));
    let following = Registry { url, interval: Duration::from_secs(5) }.run(feed);
    let printing = async {
        loop {
            for (origin, object) in intake.next().await.changes {
                println!("{} {origin:?}", if object.is_some() { "set" } else { "gone" });
            }
        }
    };
    tokio::select! {
        () = following => Ok(()),
        () = printing => Ok(()),
    }
}
