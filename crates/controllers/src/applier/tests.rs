use std::collections::BTreeMap;

use canopus_api::{Kind, ObjectKey};
use canopus_engine::{QueryError, Snapshot};
use canopus_sources::kubernetes::{ApiError, ApplyOptions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::controller::{Change, Ownership};

/// A server in memory: what it stores, what it refuses with, and what it was asked.
#[derive(Default)]
struct Server {
    objects: Mutex<BTreeMap<ObjectKey, Value>>,
    error: Mutex<Option<ApiError>>,
    asked: Mutex<Vec<String>>,
    /// The name of an object whose write takes nine seconds.
    slow: Mutex<&'static str>,
}

impl Server {
    fn ask(&self, question: String) -> Result<(), ApiError> {
        self.asked.lock().push(question);
        self.error.lock().clone().map_or(Ok(()), Err)
    }
}

impl Api for Server {
    async fn read(&self, key: &ObjectKey) -> Result<Option<Value>, ApiError> {
        Ok(self.objects.lock().get(key).cloned())
    }

    async fn apply(
        &self,
        key: &ObjectKey,
        fields: &Value,
        options: ApplyOptions<'_>,
    ) -> Result<Value, ApiError> {
        let ApplyOptions { force, dry_run, .. } = options;
        self.ask(format!("apply {} force={force} dry={dry_run}", key.name))?;
        let is_slow = *self.slow.lock() == &*key.name;
        if is_slow {
            sleep(Duration::from_secs(9)).await;
        }
        if !dry_run {
            self.objects.lock().insert(key.clone(), fields.clone());
        }
        Ok(fields.clone())
    }

    async fn replace_status(&self, key: &ObjectKey, _: &Value, _: bool) -> Result<(), ApiError> {
        self.ask(format!("status {}", key.name))
    }

    async fn create(&self, key: &ObjectKey, _: &Value, _: bool) -> Result<(), ApiError> {
        self.ask(format!("create {}", key.name))
    }

    async fn patch(&self, key: &ObjectKey, subresource: &str, _: &Value, _: bool) -> Result<(), ApiError> {
        self.ask(format!("patch {}/{subresource}", key.name))
    }

    async fn delete(&self, key: &ObjectKey, _: &str, _: bool) -> Result<(), ApiError> {
        self.ask(format!("delete {}", key.name))
    }
}

/// Wants one ConfigMap to say one thing.
struct Wish {
    server: Arc<Server>,
    text: Mutex<&'static str>,
}

fn key() -> ObjectKey {
    ObjectKey::new(Kind::ConfigMap, "shop", "roots")
}

impl Controller for Wish {
    fn name(&self) -> &'static str {
        "wish"
    }

    fn plan(&self, _: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        let fields = json!({"data": *self.text.lock()});
        let is_there = self.server.objects.lock().get(&key()) == Some(&fields);
        let change = Change::Apply { fields, ownership: Ownership::Take };
        let write = Arc::new(Write { target: key(), change });
        Ok(if is_there { Plan::default() } else { vec![write].into() })
    }
}

struct Started {
    server: Arc<Server>,
    wish: Arc<Wish>,
    revision: watch::Sender<u64>,
}

fn start(dry_run: bool) -> Started {
    let server = Arc::new(Server::default());
    let wish = Arc::new(Wish { server: Arc::clone(&server), text: Mutex::new("a") });
    let (revision, revisions) = watch::channel(0);
    let applier = Applier {
        controller: Arc::clone(&wish) as Arc<dyn Controller>,
        api: Arc::clone(&server),
        engine: Engine::new(),
        revisions,
        leadership: Leadership::unconditional(),
        dry_run,
        observer: Arc::new(()),
    };
    tokio::spawn(applier.run());
    Started { server, wish, revision }
}

async fn settle() {
    // Planning happens on a thread of its own, which paused time does not wait for.
    for _ in 0..20 {
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(2));
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_and_nothing_is_written_while_all_is_well() {
    let Started { server, revision, .. } = start(false);
    settle().await;
    assert_eq!(*server.asked.lock(), ["apply roots force=true dry=false"]);
    for number in 1..5 {
        revision.send_replace(number);
        settle().await;
    }
    assert_eq!(server.asked.lock().len(), 1);
    server.objects.lock().clear();
    revision.send_replace(5);
    settle().await;
    assert_eq!(server.asked.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn change_of_mind_is_written_when_the_world_moves() {
    let Started { server, wish, revision } = start(false);
    settle().await;
    *wish.text.lock() = "b";
    revision.send_replace(1);
    settle().await;
    assert_eq!(server.objects.lock()[&key()], json!({"data": "b"}));
}

#[tokio::test(start_paused = true)]
async fn failure_is_tried_again_with_growing_pauses_until_it_works() {
    let Started { server, revision: _stays, .. } = start(false);
    *server.error.lock() = Some(ApiError { code: 500, message: "down".into() });
    for _ in 0..30 {
        settle().await;
    }
    let tries = server.asked.lock().len();
    assert!((4..12).contains(&tries), "{tries} tries in a minute");
    *server.error.lock() = None;
    for _ in 0..40 {
        settle().await;
    }
    assert_eq!(server.objects.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn dry_run_asks_and_stores_nothing() {
    let Started { server, revision: _stays, .. } = start(true);
    settle().await;
    assert_eq!(server.asked.lock().first().map(String::as_str), Some("apply roots force=true dry=true"));
    assert!(server.objects.lock().is_empty());
}

/// Wants ConfigMaps of some names.
struct Wishes {
    server: Arc<Server>,
    names: Mutex<Vec<&'static str>>,
}

impl Controller for Wishes {
    fn name(&self) -> &'static str {
        "wishes"
    }

    fn plan(&self, _: &Snapshot, _: Timestamp) -> Result<Plan, QueryError> {
        let names = self.names.lock().clone();
        let keys = names.iter().map(|name| ObjectKey::new(Kind::ConfigMap, "shop", name));
        let missing = keys.filter(|key| !self.server.objects.lock().contains_key(key));
        let write = |target| {
            let change = Change::Apply { fields: json!({}), ownership: Ownership::Take };
            Arc::new(Write { target, change })
        };
        Ok(missing.map(write).collect::<Vec<_>>().into())
    }
}

#[tokio::test(start_paused = true)]
async fn change_does_not_wait_for_a_write_that_takes_long() {
    let server = Arc::new(Server { slow: Mutex::new("slow"), ..Server::default() });
    let wishes = Arc::new(Wishes { server: Arc::clone(&server), names: Mutex::new(vec!["slow"]) });
    let (revision, revisions) = watch::channel(0);
    let applier = Applier {
        controller: Arc::clone(&wishes) as Arc<dyn Controller>,
        api: Arc::clone(&server),
        engine: Engine::new(),
        revisions,
        leadership: Leadership::unconditional(),
        dry_run: false,
        observer: Arc::new(()),
    };
    tokio::spawn(applier.run());
    let start = Instant::now();
    while server.asked.lock().is_empty() {
        settle_briefly().await;
    }
    wishes.names.lock().push("fresh");
    revision.send_replace(1);
    while server.asked.lock().len() < 2 {
        settle_briefly().await;
    }
    assert!(server.asked.lock()[1].starts_with("apply fresh"), "{:?}", server.asked.lock());
    assert!(start.elapsed() < Duration::from_secs(9), "it waited: {:?}", start.elapsed());
    assert!(server.objects.lock().keys().all(|key| &*key.name == "fresh"), "the slow one still is under way");
}

async fn settle_briefly() {
    tokio::task::yield_now().await;
    std::thread::sleep(Duration::from_millis(2));
    sleep(Duration::from_millis(10)).await;
}
