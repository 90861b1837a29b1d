//! The example of an adapter, with a registry that answers, says nonsense and goes away.

#[path = "../examples/adapter.rs"]
mod adapter;

use std::time::Duration;

use canopus_api::{Kind, ObjectKey};
use canopus_sources::{Intake, Source as _, SourceInfo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use adapter::Registry;

const PATIENCE: Duration = Duration::from_secs(30);

/// Serves whatever is in the channel as the body of every answer.
async fn serve(listener: TcpListener, answer: watch::Receiver<&'static str>) {
    while let Ok((mut connection, _)) = listener.accept().await {
        let mut request = [0; 4096];
        let read = connection.read(&mut request).await.unwrap_or(0);
        assert!(request[..read].starts_with(b"GET /services "), "the request of the adapter");
        let body = *answer.borrow();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        // A client that is gone does not read.
        let _ = connection.write_all(format!("{head}{body}").as_bytes()).await;
    }
}

async fn until(intake: &mut Intake, what: &str, holds: impl Fn(&Intake) -> bool) {
    let waiting = async {
        while !holds(intake) {
            intake.next().await;
        }
    };
    assert!(timeout(PATIENCE, waiting).await.is_ok(), "{what}: {:?}", intake.world().status());
}

fn has(intake: &Intake, service: &str) -> bool {
    let key = ObjectKey::new(Kind::ServiceEntry, "default", &format!("{service}.registry.internal"));
    intake.world().get("local", &key).is_some()
}

#[tokio::test]
async fn world_follows_a_registry_and_outlives_its_nonsense() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/services", listener.local_addr().unwrap()).parse().unwrap();
    let (answers, answer) = watch::channel(
        r#"[{"name": "cart", "port": 80, "instances": ["10.0.0.1"]}, {"name": "a b", "port": 1, "instances": []}]"#,
    );
    let server = tokio::spawn(serve(listener, answer));

    let mut intake = Intake::new();
    let feed = intake.feed(SourceInfo::new("registry", "local", 0));
    tokio::spawn(Registry { url, interval: Duration::from_millis(20) }.run(feed));
    until(&mut intake, "a service is there", |intake| has(intake, "cart")).await;
    assert!(intake.world().is_whole());

    answers.send_replace("not JSON");
    until(&mut intake, "nonsense is told", |intake| !intake.world().status()[0].is_live()).await;
    assert!(has(&intake, "cart"), "what was known stays");

    answers.send_replace(r#"[{"name": "pay", "port": 80, "instances": []}]"#);
    until(&mut intake, "the listing is the truth", |intake| has(intake, "pay") && !has(intake, "cart")).await;

    server.abort();
    until(&mut intake, "its absence is told", |intake| !intake.world().status()[0].is_live()).await;
    assert!(has(&intake, "pay"), "a registry that is away is not an empty one");
}
