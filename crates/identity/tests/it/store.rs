//! The store in a directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use canopus_identity::store::{DirectoryStore, Record, RootStore};

fn record(text: &str) -> Record {
    let mut record = Record::default();
    record.set("ca-cert.pem", text);
    record.set("ca-key.pem", "secret");
    record
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn only_the_owner_can_look_inside() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("ca");
    let store = DirectoryStore::open(&directory).unwrap();
    store.create_if_absent(&record("a")).await.unwrap();
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("current")), 0o700);
    assert_eq!(mode(&directory.join("current/ca-key.pem")), 0o600);
    assert_eq!(mode(&directory.join("lock")), 0o600);
}

#[test]
fn directory_is_refused_when_others_can_look_inside() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let error = DirectoryStore::open(root.path()).unwrap_err();
    assert!(error.to_string().contains("chmod 700"), "{error}");
}

#[tokio::test]
async fn record_is_created_once_however_many_try() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("ca");
    let store = Arc::new(DirectoryStore::open(&directory).unwrap());
    let tries: Vec<_> = (0..16)
        .map(|number| {
            // Each with an opening of its own, as processes have.
            let store = DirectoryStore::open(&directory).unwrap();
            std::thread::spawn(move || {
                let record = record(&number.to_string());
                tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap()
                    .block_on(store.create_if_absent(&record))
            })
        })
        .collect();
    let results: Vec<_> = tries.into_iter().map(|one| one.join().unwrap().unwrap()).collect();
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(store.load().await.unwrap().unwrap(), results[0]);
}

#[tokio::test]
async fn record_is_replaced_only_by_who_knows_it() {
    let root = tempfile::tempdir().unwrap();
    let store = DirectoryStore::open(&root.path().join("ca")).unwrap();
    assert_eq!(store.load().await.unwrap(), None);
    let first = store.create_if_absent(&record("a")).await.unwrap();
    let second = store.compare_and_swap(&first.version, &record("b")).await.unwrap().unwrap();
    assert_eq!(store.compare_and_swap(&first.version, &record("c")).await.unwrap(), None);
    assert_eq!(store.load().await.unwrap(), Some(second.clone()));
    assert_eq!(second.record.get("ca-cert.pem"), Some(b"b".as_slice()));
}

#[tokio::test]
async fn what_a_crash_left_behind_is_not_read_and_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("ca");
    let store = DirectoryStore::open(&directory).unwrap();
    let first = store.create_if_absent(&record("a")).await.unwrap();
    // A writer that crashed before its generation became current, and one while it was about to.
    fs::create_dir(directory.join("generation-2")).unwrap();
    fs::write(directory.join("generation-2/ca-cert.pem"), "half").unwrap();
    std::os::unix::fs::symlink("generation-2", directory.join("current.new")).unwrap();
    assert_eq!(store.load().await.unwrap(), Some(first.clone()));
    let second = store.compare_and_swap(&first.version, &record("b")).await.unwrap().unwrap();
    assert_eq!(store.load().await.unwrap(), Some(second));
    assert!(!directory.join("current.new").exists());
}

#[test]
fn debug_shows_names_and_no_content() {
    assert_eq!(format!("{:?}", record("a")), r#"["ca-cert.pem", "ca-key.pem"]"#);
}
