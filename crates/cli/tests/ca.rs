//! `canopus ca` as operators meet it.
#![expect(clippy::unwrap_used, reason = "a test that cannot run the program has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use canopus_identity::key::KeyKind;
use canopus_identity::rotation::{self, Phase, Policy, Replica};
use canopus_identity::self_signed::Profile;
use canopus_identity::store::DirectoryStore;
use canopus_identity::token;
use rustls_pki_types::UnixTime;
use tempfile::TempDir;

/// A directory with an authority in it, as a control plane leaves it.
async fn authority() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("mesh-ca");
    replica(&directory).tick(UnixTime::now(), None).await.unwrap();
    (root, directory)
}

fn replica(directory: &Path) -> Replica {
    let store = Arc::new(DirectoryStore::open(directory).unwrap());
    let profile = Profile { key: KeyKind::P256, ..Profile::default() };
    Replica::new(store, profile, Policy::default(), Vec::new())
}

fn canopus(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopus"));
    // Whoever runs this may have a cluster.
    command.arg("ca").args(arguments).env("KUBECONFIG", "/nowhere").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(arguments: &[&str]) -> (String, String) {
    let output = canopus(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn status_and_roots_are_those_of_the_directory() {
    let (_root, directory) = authority().await;
    let place = directory.to_str().unwrap();
    let (status, _) = succeeds(&["status", "--directory", place]);
    assert!(status.starts_with("Rotation: none under way (issuer "), "{status}");
    assert!(status.contains("root   O=cluster.local ("), "{status}");
    let (roots, _) = succeeds(&["roots", "--directory", place]);
    let stored = std::fs::read_to_string(directory.join("current/root-cert.pem")).unwrap();
    assert_eq!(roots, stored);
    assert!(!status.contains("PRIVATE") && !roots.contains("PRIVATE"));
}

#[tokio::test]
async fn rotation_that_is_asked_for_is_begun_by_the_control_plane() {
    let (_root, directory) = authority().await;
    let place = directory.to_str().unwrap();
    let (_, words) = succeeds(&["rotate", "--directory", place]);
    assert!(words.contains("begins within a minute"), "{words}");
    let (_, words) = succeeds(&["rotate", "--directory", place]);
    assert!(words.contains("was asked for before"), "{words}");
    assert!(succeeds(&["status", "--directory", place]).0.contains("asked for, about to begin"));

    let tick = replica(&directory).tick(UnixTime::now(), None).await.unwrap();
    assert!(matches!(tick.state.phase, Phase::Distributing { .. }), "{:?}", tick.state);
    assert!(succeeds(&["status", "--directory", place]).0.contains("distributing root"));
    let store = DirectoryStore::open(&directory).unwrap();
    let stored = rotation::inspect(&store, &Policy::default(), UnixTime::now()).await.unwrap().unwrap();
    assert_eq!(stored.roots.len(), 2);
}

#[tokio::test]
async fn token_counts_for_the_account_it_was_issued_to() {
    let (_root, directory) = authority().await;
    let place = directory.to_str().unwrap();
    let arguments =
        ["token", "--directory", place, "-n", "shop", "--service-account", "cart", "--single-use"];
    let (token, words) = succeeds(&arguments);
    assert_eq!(words, "Token for shop/cart, for 1h0m0s, for a single use\n");
    let issuer = token::open_directory(&directory, "istio-ca").await.unwrap();
    let owner = issuer.accept(token.trim(), UnixTime::now()).unwrap();
    assert_eq!(owner, ("shop".to_owned(), "cart".to_owned()));
    assert!(issuer.accept(token.trim(), UnixTime::now()).is_err());
}

#[tokio::test]
async fn command_says_what_is_wrong_and_makes_nothing_when_it_cannot_be_done() {
    let (root, directory) = authority().await;
    let place = directory.to_str().unwrap();
    let empty = root.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    let nowhere = root.path().join("nowhere");
    let fails = |arguments: &[&str], expected: &str| {
        let output = canopus(arguments);
        let words = text(&output.stderr);
        assert!(!output.status.success() && words.contains(expected), "{arguments:?}: {words}");
    };
    fails(&["status"], "say where the root is");
    fails(&["status", "--directory", nowhere.to_str().unwrap()], "is not a directory");
    fails(&["token", "--directory", empty], "not the directory of an authority");
    fails(&["token", "--directory", place, "--ttl", "25h"], "at most");
    fails(&["token", "--directory", place, "--service-account", "a:b"], "lower-case letters");
    assert_eq!(std::fs::read_dir(empty).unwrap().count(), 0);
    assert!(!nowhere.exists());
}
