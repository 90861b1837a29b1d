//! A real Consul as a source.

use std::time::Duration;

use canopus_api::istio::ServiceEntry;
use canopus_api::{Kind, ObjectKey};
use canopus_sources::consul::{AgentOptions, Consul};
use canopus_sources::status::Phase;
use canopus_sources::{Intake, Source as _, SourceInfo};
use canopus_testkit::{Consul as Server, Relay};
use serde_json::json;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

async fn until(intake: &mut Intake, what: &str, holds: impl Fn(&Intake) -> bool) {
    let waiting = async {
        while !holds(intake) {
            intake.next().await;
        }
    };
    let Ok(()) = timeout(PATIENCE, waiting).await else {
        panic!("{what}: not so after {PATIENCE:?}: {:?}", intake.world().status())
    };
}

fn entry<'a>(intake: &'a Intake, service: &str) -> Option<&'a ServiceEntry> {
    let key = ObjectKey::new(Kind::ServiceEntry, "default", &format!("{service}.service.consul"));
    let object = intake.world().get("local", &key)?;
    object.get::<ServiceEntry>().map(AsRef::as_ref)
}

fn addresses(intake: &Intake, service: &str) -> Vec<String> {
    let endpoints = entry(intake, service).map(|entry| entry.spec.endpoints.clone()).unwrap_or_default();
    endpoints.into_iter().map(|endpoint| endpoint.address).collect()
}

fn is_stale(intake: &Intake) -> bool {
    matches!(intake.world().status()[0].parts[0].phase, Phase::Stale { .. })
}

fn is_live(intake: &Intake) -> bool {
    intake.world().status()[0].is_live()
}

fn instance(id: &str, address: &str) -> serde_json::Value {
    json!({
        "Name": "reviews", "ID": id, "Address": address, "Port": 9080, "Tags": ["version|v1"],
        "Meta": {"protocol": "http"}, "Check": {"CheckID": id, "TTL": "1h", "Status": "passing"},
    })
}

#[tokio::test]
async fn real_consul_world_follows_services_and_outlives_outages() {
    let mut server = Server::start().await.unwrap();
    let relay = Relay::start(server.address()).await.unwrap();
    let options = AgentOptions { url: format!("http://{}", relay.address()), token: None };
    let mut intake = Intake::new();
    let feed = intake.feed(SourceInfo::new("consul", "local", 0));
    let following = tokio::spawn(Consul::new(&options).unwrap().run(feed));
    until(&mut intake, "a whole world", |intake| intake.world().is_whole()).await;

    server.register(&instance("one", "10.0.0.1")).await.unwrap();
    until(&mut intake, "an instance", |intake| addresses(intake, "reviews") == ["10.0.0.1"]).await;
    let endpoint = &entry(&intake, "reviews").unwrap().spec.endpoints[0];
    assert_eq!((endpoint.labels["version"].as_str(), endpoint.locality.as_str()), ("v1", "dc1"));
    assert_eq!(entry(&intake, "reviews").unwrap().spec.ports[0].protocol, "HTTP");

    server.register(&instance("two", "10.0.0.2")).await.unwrap();
    until(&mut intake, "two instances", |intake| addresses(intake, "reviews").len() == 2).await;
    server.register(&instance("one", "10.0.0.3")).await.unwrap();
    until(&mut intake, "a moved instance", |intake| {
        addresses(intake, "reviews").contains(&"10.0.0.3".to_owned())
    })
    .await;

    server.put("/v1/agent/check/fail/two", &json!(null)).await.unwrap();
    until(&mut intake, "a sick instance", |intake| addresses(intake, "reviews") == ["10.0.0.3"]).await;
    server.put("/v1/agent/check/pass/two", &json!(null)).await.unwrap();
    until(&mut intake, "a healed instance", |intake| addresses(intake, "reviews").len() == 2).await;

    // The connection is cut: what is known stays, and what happened meanwhile is made up for.
    relay.cut();
    until(&mut intake, "staleness", is_stale).await;
    assert_eq!(addresses(&intake, "reviews").len(), 2);
    server.put("/v1/agent/service/deregister/two", &json!(null)).await.unwrap();
    relay.heal();
    until(&mut intake, "what happened meanwhile", |intake| {
        is_live(intake) && addresses(intake, "reviews") == ["10.0.0.3"]
    })
    .await;

    // The server starts over with nothing, which is then the truth.
    server.stop();
    until(&mut intake, "staleness", is_stale).await;
    assert_eq!(addresses(&intake, "reviews"), ["10.0.0.3"]);
    server.resume().await.unwrap();
    server.register(&json!({"Name": "ratings", "ID": "r", "Address": "10.0.0.9", "Port": 80})).await.unwrap();
    until(&mut intake, "a new catalogue", |intake| {
        is_live(intake) && entry(intake, "reviews").is_none() && addresses(intake, "ratings") == ["10.0.0.9"]
    })
    .await;

    drop(intake);
    following.await.unwrap();
}
