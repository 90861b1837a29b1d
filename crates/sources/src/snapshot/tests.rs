use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::decode_documents;
use tempfile::TempDir;

use super::*;
use crate::change::{Batch, Change, SourcePart};
use crate::world::{Update, World};

const OBJECTS: &str = r#"
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  uid: 7a1c
  resourceVersion: "12"
  generation: 3
  creationTimestamp: "2026-01-31T12:00:00Z"
  labels: {app: web}
  annotations: {note: "zeile\n\u00e9"}
  ownerReferences: [{apiVersion: v1, kind: Pod, name: a, uid: b, controller: true}]
spec: {clusterIP: 10.0.0.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop}
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: web, ports: [{containerPort: 8080}]}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{timeout: 1.5s, retries: {attempts: 2}, route: [{destination: {host: web}, weight: 100}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec: {parentRefs: [{name: gate}], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
apiVersion: v1
kind: Secret
metadata: {name: certificate, namespace: shop}
data: {tls.key: c2VjcmV0}
"#;

fn objects() -> Vec<Object> {
    let outcomes = decode_documents(OBJECTS, &Limits::default(), Options::watch());
    outcomes.into_iter().map(|outcome| outcome.unwrap().value).collect()
}

fn source() -> SourceInfo {
    SourceInfo::new("kubernetes:east", "east", 0)
}

fn saved() -> (TempDir, Store, PathBuf) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path().join("state")).unwrap();
    store.save(&source(), &objects(), Some(&[Kind::Service, Kind::Pod].into())).unwrap();
    let path = store.path(&source());
    (folder, store, path)
}

fn refusal(store: &Store) -> String {
    store.load(&source()).unwrap_err().to_string()
}

#[test]
fn what_was_saved_is_read_back_without_secrets() {
    let (_folder, store, path) = saved();
    let expected: Vec<Object> =
        objects().into_iter().filter(|object| object.kind() != Kind::Secret).collect();
    let saved = store.load(&source()).unwrap().unwrap();
    assert_eq!(saved.objects, expected);
    assert_eq!((saved.kinds, saved.unreadable.len()), (Some([Kind::Service, Kind::Pod].into()), 0));
    let text = fs::read_to_string(path).unwrap();
    assert!(!text.contains("c2VjcmV0") && !text.contains("certificate"), "{text}");
}

#[test]
fn nothing_saved_is_nothing_read() {
    let (_folder, store, _) = saved();
    assert_eq!(store.load(&SourceInfo::new("kubernetes:west", "west", 0)).unwrap(), None);
}

#[test]
fn files_are_for_their_owner_alone_and_no_scratch_is_left() {
    let (folder, store, path) = saved();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(folder.path().join("state")).unwrap().permissions().mode() & 0o777, 0o700);
    store.save(&source(), &[], None).unwrap();
    assert_eq!(store.load(&source()).unwrap(), Some(Saved::default()));
    assert_eq!(fs::read_dir(folder.path().join("state")).unwrap().count(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn last_snapshot_stays_when_the_disk_is_full() {
    let (folder, store, path) = saved();
    let before = fs::read(&path).unwrap();
    // Every write to this device fails as one to a full disk does.
    std::os::unix::fs::symlink("/dev/full", path.with_extension("new")).unwrap();
    let error = store.save(&source(), &[], None).unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path().join("state")).unwrap().count(), 1, "nothing is left behind");
    store.save(&source(), &[], None).unwrap();
}

#[test]
fn any_damage_makes_the_whole_file_unusable() {
    let (_folder, store, path) = saved();
    let whole = fs::read(&path).unwrap();
    // Every place matters: each byte changed, and each length the file may be cut to.
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(store.load(&source()).is_err(), "byte {at}");
        fs::write(&path, &whole[..at]).unwrap();
        assert!(store.load(&source()).is_err(), "cut at {at}");
    }
    fs::write(&path, b"\xff\xfe\n").unwrap();
    assert!(refusal(&store).ends_with("not a snapshot"));
}

#[test]
fn object_that_cannot_be_decoded_leaves_the_others() {
    let (_folder, store, path) = saved();
    let text = fs::read_to_string(&path).unwrap();
    // As a version would write it that knows another form of the object.
    let lines: Vec<&str> = text.lines().collect();
    let changed = lines[2].replacen("\"spec\":{", "\"spec\":7,\"other\":{", 1);
    assert_ne!(changed, lines[2]);
    let mut file: String =
        [lines[0], lines[1], &changed, lines[3], lines[4]].map(|line| format!("{line}\n")).concat();
    let mut hasher = Hasher::new();
    hasher.update(file.as_bytes());
    file += &serde_json::to_string(&Tail { checksum: hasher.finish() }).unwrap();
    fs::write(&path, file + "\n").unwrap();
    let saved = store.load(&source()).unwrap().unwrap();
    assert_eq!(saved.objects.len(), 3);
    assert!(saved.unreadable[0].starts_with("object 2: "), "{:?}", saved.unreadable);
}

#[test]
fn other_versions_and_other_sources_are_refused() {
    let (_folder, store, path) = saved();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"canopusSnapshot\":1", "\"canopusSnapshot\":2", 1)).unwrap();
    assert!(refusal(&store).contains("version 2"), "{}", refusal(&store));
    fs::write(&path, text.replacen("\"cluster\":\"east\"", "\"cluster\":\"west\"", 1)).unwrap();
    assert!(refusal(&store).contains("for cluster west"), "{}", refusal(&store));
}

#[test]
fn directory_that_cannot_be_written_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(Store::open(file.join("below")), Err(SnapshotError::Io { .. })));
}

#[tokio::test(start_paused = true)]
async fn keeper_saves_known_sources_that_changed() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let info = Arc::new(source());
    let mut world = World::default();
    let take = |world: &mut World, events| {
        world.take(Batch { source: Arc::clone(&info), events }, &mut Update::default());
    };
    let count = || store.load(&source()).unwrap().map(|saved| saved.objects.len());
    let mut keeper = Keeper::new(store.clone(), |_| true);

    keeper.due().await;
    take(&mut world, objects().into_iter().map(Change::Set).collect());
    keeper.save(&world).await;
    keeper.settle().await;
    assert_eq!(count(), None, "half a world is no world");

    take(&mut world, vec![Change::Live(SourcePart::Whole)]);
    keeper.due().await;
    keeper.save(&world).await;
    keeper.settle().await;
    assert_eq!(count(), Some(4));

    fs::remove_file(store.path(&source())).unwrap();
    keeper.save(&world).await;
    keeper.settle().await;
    assert_eq!(count(), None, "nothing changed, so nothing was written");
    take(&mut world, vec![Change::Remove(objects()[0].key())]);
    keeper.due().await;
    keeper.save(&world).await;
    keeper.settle().await;
    assert_eq!(count(), None, "it was written a moment ago");
    tokio::time::advance(Duration::from_secs(15)).await;
    keeper.save(&world).await;
    keeper.settle().await;
    assert_eq!(count(), Some(3));
    assert_eq!(store.sources(), [source()]);

    let west = Arc::new(SourceInfo::new("kubernetes:west", "west", 0));
    let events = objects().into_iter().map(Change::Set).chain([Change::Live(SourcePart::Whole)]).collect();
    world.take(Batch { source: Arc::clone(&west), events }, &mut Update::default());
    keeper.due().await;
    keeper.save(&world).await;
    keeper.settle().await;
    assert!(store.load(&west).unwrap().is_some(), "what was never written is not made to wait");
    world.forget(&west.name, &mut Update::default());

    world.forget(&source().name, &mut Update::default());
    keeper.finish(&world).await;
    assert_eq!(store.sources(), [], "a source that is no more must not come back with a restart");
}
