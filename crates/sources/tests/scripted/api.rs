//! The scripted API server, and a source that follows it.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use canopus_api::{Kind, ObjectKey};
use canopus_sources::kubernetes::{Access, Cluster, Kubernetes, Listing, Options, RateLimit};
use canopus_sources::snapshot::{Keeper, Store};
use canopus_sources::status::Phase;
use canopus_sources::{Intake, Source as _, SourceInfo, SourcePart};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub(crate) const CONFIG_MAPS: &str = "/api/v1/configmaps";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const ENTRIES: &str = "/apis/networking.istio.io/v1/serviceentries";

const PATIENCE: Duration = Duration::from_secs(30);

/// What the server does with a request instead of answering it.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Answers with this status and text.
    Status(u16, String),
    /// Answers with this text and status 200, and closes the connection.
    Garbage(Vec<u8>),
    /// Announces more bytes than it sends, and closes the connection.
    Half(String),
    /// Closes the connection.
    HangUp,
    /// Answers as it should, a few bytes at a time with a pause after each.
    Trickle(usize, Duration),
    /// Begins an answer with this text, and then says nothing more for as long as the client stays.
    Stall(String),
}

/// Objects by path, and what happened to them.
#[derive(Clone, Default)]
struct Cabinet {
    version: u64,
    objects: BTreeMap<(String, String), Value>,
    /// Version, path, and the line that a watch is sent.
    history: Vec<(u64, String, Value)>,
}

#[derive(Default)]
struct State {
    store: Cabinet,
    /// Paths that are not served.
    missing: Vec<String>,
    /// Paths that are answered later.
    held: Vec<String>,
    /// Whether nobody is answered at all.
    is_away: bool,
    /// What is done with the next requests to a path.
    faults: BTreeMap<String, VecDeque<Fault>>,
    /// Requests by path, with their parameters.
    asked: Vec<String>,
    /// Watches of an earlier generation end.
    generation: u64,
}

/// The server.
pub(crate) struct Api {
    state: Arc<Mutex<State>>,
    /// Counts changes; watches look again.
    changes: watch::Sender<u64>,
    kubeconfig: PathBuf,
    _folder: TempDir,
    task: JoinHandle<()>,
}

impl Api {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let folder = TempDir::new().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let state: Arc<Mutex<State>> = Arc::default();
        let changes = watch::Sender::new(0);
        let task = tokio::spawn({
            let (state, changes) = (state.clone(), changes.clone());
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, state.clone(), changes.subscribe()));
                }
            }
        });
        Self { state, changes, kubeconfig, _folder: folder, task }
    }

    /// The file that leads to the server.
    #[allow(dead_code, reason = "tests of the daemon, which start it too, need it")]
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Follows the server.
    pub(crate) async fn follow(&self, kinds: &[Kind], adjust: impl FnOnce(&mut Options)) -> Follower {
        self.follow_from(None, kinds, adjust).await
    }

    /// Follows the server, from what a snapshot has.
    pub(crate) async fn follow_from(
        &self,
        store: Option<&Store>,
        kinds: &[Kind],
        adjust: impl FnOnce(&mut Options),
    ) -> Follower {
        let access = Access::Kubeconfig(self.kubeconfig.clone());
        let cluster = Cluster::connect(&access, RateLimit { qps: 0.0, burst: 0 }).await.unwrap();
        let mut intake = Intake::new();
        let feed = intake.feed(SourceInfo::new("kubernetes:east", "east", 0));
        if let Some(saved) = store.and_then(|store| store.load(feed.source()).unwrap()) {
            intake.restore(feed.source(), saved);
        }
        let mut options = Options::new(kinds.iter().copied().collect());
        adjust(&mut options);
        let task = tokio::spawn(Kubernetes::new(cluster, options).run(feed));
        Follower { intake, task, notices: Vec::new() }
    }

    pub(crate) fn set(&self, path: &str, name: &str, data: &str) {
        self.change(path, name, Some(data));
    }

    pub(crate) fn remove(&self, path: &str, name: &str) {
        self.change(path, name, None);
    }

    /// Changes an object and tells no watch of it.
    pub(crate) fn set_silently(&self, path: &str, name: &str, data: &str) {
        self.change(path, name, Some(data));
        self.state.lock().store.history.pop();
    }

    fn change(&self, path: &str, name: &str, data: Option<&str>) {
        let mut state = self.state.lock();
        let store = &mut state.store;
        store.version += 1;
        let namespace = if path == DEFINITIONS { "" } else { "a" };
        let mut object = json!({
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": store.version.to_string()},
        });
        if path == CONFIG_MAPS {
            object["data"] = json!({"key": data});
        } else if path == ENTRIES {
            let ports = json!([{"number": 80, "name": "http", "protocol": "HTTP"}]);
            object["spec"] = json!({"hosts": [data], "resolution": "NONE", "ports": ports});
        } else {
            let versions = json!([{"name": "v1", "served": true}]);
            object["spec"] = json!({ "versions": versions });
        }
        let key = (path.to_owned(), name.to_owned());
        let kind = match data {
            Some(_) => "MODIFIED",
            None => "DELETED",
        };
        store.history.push((store.version, path.to_owned(), json!({"type": kind, "object": object})));
        match data {
            Some(_) => drop(store.objects.insert(key, object)),
            None => drop(store.objects.remove(&key)),
        }
        drop(state);
        self.changes.send_modify(|count| *count += 1);
    }

    /// A copy of everything, as a backup has it.
    pub(crate) fn back_up(&self) -> Backup {
        Backup(self.state.lock().store.clone())
    }

    /// Puts a backup in the place of everything. Watches end, as they do when a server is started anew.
    pub(crate) fn restore(&self, backup: Backup) {
        let Backup(mut store) = backup;
        // A server that starts remembers nothing.
        store.history.clear();
        self.state.lock().store = store;
        self.hang_up();
    }

    /// Ends all watches.
    pub(crate) fn hang_up(&self) {
        self.state.lock().generation += 1;
        self.changes.send_modify(|count| *count += 1);
    }

    /// Whether the server is away: connections are closed without a word.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.state.lock().is_away = is_away;
        self.hang_up();
    }

    /// The values of all ConfigMaps, by name.
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        let state = self.state.lock();
        let maps = state.store.objects.iter().filter(|((path, _), _)| path == CONFIG_MAPS);
        maps.map(|((_, name), map)| (name.clone(), map["data"]["key"].as_str().unwrap().to_owned())).collect()
    }

    pub(crate) fn set_missing(&self, paths: &[&str]) {
        self.state.lock().missing = paths.iter().map(ToString::to_string).collect();
    }

    pub(crate) fn hold(&self, paths: &[&str]) {
        self.state.lock().held = paths.iter().map(ToString::to_string).collect();
    }

    pub(crate) fn fail(&self, path: &str, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().faults.entry(path.to_owned()).or_default().extend(faults);
    }

    pub(crate) fn asked(&self, path: &str) -> usize {
        self.state.lock().asked.iter().filter(|asked| asked.contains(path)).count()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) struct Backup(Cabinet);

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>, mut changes: watch::Receiver<u64>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.split_whitespace().nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    state.lock().asked.push(target.to_owned());
    if state.lock().is_away {
        return;
    }
    let mut stream = Line { stream, pace: None };
    while state.lock().held.iter().any(|held| held == path) {
        sleep(Duration::from_millis(5)).await;
    }
    let fault = state.lock().faults.get_mut(path).and_then(VecDeque::pop_front);
    match fault {
        Some(Fault::Status(status, text)) => return answer(&mut stream, status, text.as_bytes()).await,
        Some(Fault::Garbage(bytes)) => return answer(&mut stream, 200, &bytes).await,
        Some(Fault::Half(text)) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len() + 1000);
            let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
            return;
        }
        Some(Fault::HangUp) => return,
        Some(Fault::Trickle(bytes, pause)) => stream.pace = Some((bytes, pause)),
        Some(Fault::Stall(text)) => {
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{text}").as_bytes())
                .await
                .ok();
            // The end of the connection is the first the client says.
            let _ = stream.stream.read_u8().await;
            return;
        }
        None => {}
    }
    if state.lock().missing.iter().any(|missing| missing == path) {
        return answer(&mut stream, 404, b"404 page not found").await;
    }
    let single = path.rsplit_once('/').map(|(path, name)| (path.to_owned(), name.to_owned()));
    let object = single.and_then(|key| state.lock().store.objects.get(&key).cloned());
    if let Some(object) = object {
        return answer(&mut stream, 200, object.to_string().as_bytes()).await;
    }
    if query.contains("watch=true") {
        return follow(&mut stream, path, query, &state, &mut changes).await;
    }
    let list = {
        let state = state.lock();
        let items: Vec<&Value> = items(&state.store, path).collect();
        json!({"metadata": {"resourceVersion": state.store.version.to_string()}, "items": items})
    };
    answer(&mut stream, 200, list.to_string().as_bytes()).await;
}

fn items<'a>(store: &'a Cabinet, path: &str) -> impl Iterator<Item = &'a Value> {
    store.objects.iter().filter(move |((own, _), _)| own == path).map(|(_, object)| object)
}

/// A connection that may be slow.
struct Line {
    stream: TcpStream,
    pace: Option<(usize, Duration)>,
}

impl Line {
    async fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some((piece, pause)) = self.pace else { return self.stream.write_all(bytes).await };
        for piece in bytes.chunks(piece) {
            self.stream.write_all(piece).await?;
            sleep(pause).await;
        }
        Ok(())
    }
}

async fn answer(stream: &mut Line, status: u16, body: &[u8]) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
}

/// Sends what happens until the connection is to end.
async fn follow(
    stream: &mut Line,
    path: &str,
    query: &str,
    state: &Mutex<State>,
    changes: &mut watch::Receiver<u64>,
) {
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await;
    let resumed = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
    let mut lines = Vec::new();
    let generation = state.lock().generation;
    let mut sent = {
        let state = state.lock();
        match resumed {
            Some(version) => version.parse().unwrap(),
            None => {
                lines.extend(
                    items(&state.store, path).map(|object| json!({"type": "ADDED", "object": object})),
                );
                lines.push(json!({"type": "BOOKMARK", "object": {"metadata": {
                    "resourceVersion": state.store.version.to_string(),
                    "annotations": {"k8s.io/initial-events-end": "true"},
                }}}));
                state.store.version
            }
        }
    };
    loop {
        {
            let state = state.lock();
            // As real servers do: what is not newer than where the watch began is not sent.
            for (version, own, line) in &state.store.history {
                if *version > sent && own == path {
                    sent = *version;
                    lines.push(line.clone());
                }
            }
        }
        let text: String = lines.drain(..).map(written).collect();
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        if changes.changed().await.is_err() || state.lock().generation != generation {
            return;
        }
    }
}

/// A line as servers write it: its type comes before its object, and what names the object before the rest of it.
fn written(mut line: Value) -> String {
    let object = line["object"].as_object_mut().unwrap();
    let metadata = object.remove("metadata").unwrap();
    let rest: String = object.iter().map(|(key, value)| format!(",{}:{value}", json!(key))).collect();
    format!("{{\"type\":{},\"object\":{{\"metadata\":{metadata}{rest}}}}}\n", line["type"])
}

/// A source that follows the server, and the world it feeds.
pub(crate) struct Follower {
    pub(crate) intake: Intake,
    task: JoinHandle<()>,
    pub(crate) notices: Vec<String>,
}

impl Follower {
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !holds(self) {
                let update = self.intake.next().await;
                self.notices.extend(update.notices.into_iter().map(|notice| notice.text));
            }
        };
        if timeout(PATIENCE, waiting).await.is_err() {
            panic!(
                "{what}: not so after {PATIENCE:?}: {:#?}, {:#?}",
                self.intake.world().status(),
                self.notices
            )
        }
    }

    /// Takes what comes within a moment.
    pub(crate) async fn settle(&mut self, moment: Duration) {
        let end = tokio::time::Instant::now() + moment;
        while let Ok(update) = tokio::time::timeout_at(end, self.intake.next()).await {
            self.notices.extend(update.notices.into_iter().map(|notice| notice.text));
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.intake.world().is_whole()
    }

    /// The value of a ConfigMap.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let key = ObjectKey::new(Kind::ConfigMap, "a", name);
        let node = self.intake.world().get("east", &key)?.to_node();
        Some(node.pointer("/data/key")?.as_str()?.to_owned())
    }

    /// The values of all ConfigMaps, by name.
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        let objects = self.intake.world().holdings().flat_map(|holdings| holdings.objects());
        let names = objects.map(|object| object.meta().name.to_string());
        names.filter_map(|name| Some((name.clone(), self.value(&name)?))).collect()
    }

    /// Writes what is known, as a process does before it ends.
    pub(crate) async fn save(&self, store: &Store) {
        Keeper::new(store.clone(), |_| true).finish(self.intake.world()).await;
    }

    pub(crate) fn has_entry(&self, name: &str) -> bool {
        self.intake.world().get("east", &ObjectKey::new(Kind::ServiceEntry, "a", name)).is_some()
    }

    pub(crate) fn is_live(&self, kind: Kind) -> bool {
        let status = self.intake.world().status().remove(0);
        status.parts.iter().any(|part| part.part == SourcePart::Kind(kind) && part.phase == Phase::Live)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Both ways to ask for listings.
pub(crate) const LISTINGS: [Listing; 2] = [Listing::Stream, Listing::Pages(500)];
