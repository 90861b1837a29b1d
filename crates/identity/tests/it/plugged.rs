//! Files of a plugged-in authority.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use canopus_identity::Certificate;
use canopus_identity::authority::{Authority, Lifetimes};
use canopus_identity::bundle::Bundle;
use canopus_identity::plugged::{Files, PluggedError};
use canopus_identity::watch::{Follower, ReloadError};
use tempfile::TempDir;

use crate::openssl::{Hierarchy, OpenSsl, now};

fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(directory.path().join(name), content).unwrap();
    }
    directory
}

fn write(directory: &Path, pki: &Hierarchy, roots: &str) {
    fs::write(directory.join("ca-cert.pem"), &pki.signing).unwrap();
    fs::write(directory.join("ca-key.pem"), &pki.key).unwrap();
    fs::write(directory.join("cert-chain.pem"), pki.intermediates.concat()).unwrap();
    fs::write(directory.join("root-cert.pem"), roots).unwrap();
}

fn bundle(directory: &Path) -> Bundle {
    let files = Files::find(directory, true).unwrap().unwrap();
    Bundle::new(&files.read().unwrap(), now()).unwrap()
}

#[test]
fn nothing_is_found_when_no_file_is_there() {
    assert_eq!(Files::find(directory(&[]).path(), true).unwrap(), None);
    assert_eq!(Files::find(Path::new("/nonexistent/cacerts"), true).unwrap(), None);
    // A revocation list alone is no authority.
    assert_eq!(Files::find(directory(&[("ca-crl.pem", "")]).path(), true).unwrap(), None);
}

#[test]
fn bundle_is_refused_when_a_file_is_missing() {
    let pki = OpenSsl::new().hierarchy("P-256", 1);
    let directory = directory(&[("ca-cert.pem", &pki.signing), ("root-cert.pem", &pki.root)]);
    let error = Files::find(directory.path(), true).unwrap_err();
    let PluggedError::Incomplete { missing, .. } = &error else { panic!("{error}") };
    assert_eq!(missing, &["ca-key.pem", "cert-chain.pem"]);
    assert!(error.to_string().contains("incomplete signing CA bundle detected"), "{error}");
}

#[test]
fn files_of_a_tls_secret_chain_up_to_the_root() {
    let pki = OpenSsl::new().hierarchy("P-256", 1);
    let files = [("tls.crt", pki.signing.as_str()), ("tls.key", &pki.key), ("ca.crt", &pki.root)];
    let bundle = bundle(directory(&files).path());
    assert_eq!((bundle.chain_pem().len(), bundle.roots().len()), (2, 1));
    assert_eq!(bundle.chain()[1], bundle.roots()[0]);
}

#[test]
fn root_that_signs_itself_needs_no_chain() {
    let pki = OpenSsl::new().hierarchy("RSA-2048", 0);
    let directory = directory(&[]);
    write(directory.path(), &pki, &pki.root);
    assert!(bundle(directory.path()).chain_pem().is_empty());
}

#[test]
fn generated_files_are_told_apart() {
    let pki = OpenSsl::new().hierarchy("P-256", 0);
    let directory = directory(&[("istio-generated", "")]);
    write(directory.path(), &pki, &pki.root);
    assert!(Files::find(directory.path(), true).unwrap().unwrap().is_generated());
}

/// An authority with the files of a directory, and what follows them.
fn follow(directory: &Path, multi_root: bool) -> (Arc<Authority>, Follower) {
    let authority = Authority::with_bundle(Lifetimes::default(), Arc::new(bundle(directory)));
    let authority = Arc::new(authority);
    let follower = Follower::new(directory, Arc::clone(&authority), multi_root, true).unwrap();
    (authority, follower)
}

#[test]
fn roots_may_be_added_and_removed_but_not_exchanged() {
    let openssl = OpenSsl::new();
    let (old, new) = (openssl.hierarchy("P-256", 1), openssl.hierarchy("P-256", 1));
    let directory = directory(&[]);
    let path = directory.path();
    write(path, &old, &old.root);
    let (authority, follower) = follow(path, true);
    let signs = || authority.bundle().unwrap().signer().certificate().to_pem().unwrap();
    // Exchanged at once: refused, and nothing changes.
    write(path, &new, &new.root);
    assert!(matches!(follower.reload(now()).unwrap_err(), ReloadError::Refused(_)));
    let before = signs();
    // Both roots, the old signer; then the new signer; then the new root alone.
    let both = old.root.clone() + &new.root;
    write(path, &old, &both);
    assert!(follower.reload(now()).unwrap().is_some());
    assert_eq!(signs(), before);
    write(path, &new, &both);
    assert!(follower.reload(now()).unwrap().is_some());
    assert_ne!(signs(), before);
    write(path, &new, &new.root);
    assert_eq!(follower.reload(now()).unwrap().unwrap().roots().len(), 1);
    assert!(follower.reload(now()).unwrap().is_none());
}

#[test]
fn other_roots_are_refused_when_a_mesh_has_one() {
    let openssl = OpenSsl::new();
    let (old, new) = (openssl.hierarchy("P-256", 1), openssl.hierarchy("P-256", 1));
    let directory = directory(&[]);
    write(directory.path(), &old, &old.root);
    let (_, follower) = follow(directory.path(), false);
    write(directory.path(), &old, &(old.root.clone() + &new.root));
    let error = follower.reload(now()).unwrap_err();
    assert!(error.to_string().contains("ISTIO_MULTIROOT_MESH"), "{error}");
}

#[test]
fn authority_stays_as_it_was_when_new_files_are_broken() {
    let openssl = OpenSsl::new();
    let pki = openssl.hierarchy("P-256", 1);
    let directory = directory(&[]);
    write(directory.path(), &pki, &pki.root);
    let (authority, follower) = follow(directory.path(), true);
    fs::write(directory.path().join("ca-key.pem"), openssl.key("P-256")).unwrap();
    let error = follower.reload(now()).unwrap_err();
    assert!(error.to_string().contains("does not match the key"), "{error}");
    fs::remove_file(directory.path().join("ca-cert.pem")).unwrap();
    assert!(follower.reload(now()).is_err());
    assert!(authority.bundle().is_some());
}

#[test]
fn revocation_lists_are_needed_for_all_of_a_chain_or_for_none() {
    let pki = OpenSsl::new().hierarchy("P-256", 1);
    let directory = directory(&[("ca-crl.pem", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")]);
    write(directory.path(), &pki, &pki.root);
    let files = Files::find(directory.path(), true).unwrap().unwrap();
    let error = Bundle::new(&files.read().unwrap(), now()).unwrap_err();
    assert!(error.to_string().contains("revocation list"), "{error}");
    // Without PILOT_ENABLE_CA_CRL it is not looked at.
    let files = Files::find(directory.path(), false).unwrap().unwrap();
    Bundle::new(&files.read().unwrap(), now()).unwrap();
}

#[test]
fn revocation_lists_are_taken_where_other_roots_are_not() {
    let openssl = OpenSsl::new();
    let (own, other) = (openssl.hierarchy("P-256", 1), openssl.hierarchy("P-256", 1));
    let directory = directory(&[]);
    let path = directory.path();
    write(path, &own, &own.root);
    let (authority, follower) = follow(path, false);
    assert!(authority.bundle().unwrap().crl_pem().is_none());
    fs::write(path.join("root-cert.pem"), own.root.clone() + &other.root).unwrap();
    fs::write(path.join("ca-crl.pem"), openssl.lists(&own, &["7B"])).unwrap();
    let taken = follower.reload(now()).unwrap().unwrap();
    assert_eq!((taken.roots().len(), taken.revocations().iter().count()), (1, 2));
    assert!(matches!(follower.reload(now()).unwrap_err(), ReloadError::Refused(_)));
    // Emptied: the lists are withdrawn.
    fs::write(path.join("ca-crl.pem"), "").unwrap();
    assert!(follower.reload(now()).unwrap().unwrap().revocations().is_empty());
}

#[test]
fn revocation_lists_are_refused_when_proxies_would_refuse_everybody_by_them() {
    let openssl = OpenSsl::new();
    let (own, other) = (openssl.hierarchy("P-256", 1), openssl.hierarchy("P-256", 1));
    let directory = directory(&[]);
    write(directory.path(), &own, &own.root);
    let refused = |lists: &str| {
        fs::write(directory.path().join("ca-crl.pem"), lists).unwrap();
        let files = Files::find(directory.path(), true).unwrap().unwrap();
        Bundle::new(&files.read().unwrap(), now()).err().map(|error| error.to_string())
    };
    let whole = openssl.lists(&own, &["7B", "01FF"]);
    assert_eq!(refused(&whole), None);
    let serial = Certificate::from_pem(own.signing.as_bytes()).unwrap().serial();
    let of_itself = openssl.list(&own.root, &own.root_key, &[&serial.to_uppercase()]);
    for (lists, reason) in [
        (openssl.list(&own.signing, &own.key, &[]), "missing CRL signed by certificates"),
        (openssl.list(&own.root, &own.root_key, &[]), "missing CRL signed by certificates"),
        (openssl.lists(&other, &[]), "missing CRL signed by certificates"),
        (whole[..whole.len() - 40].to_owned(), "revocation list"),
        (
            openssl.list(&own.signing, &own.key, &[]) + &of_itself,
            "the authority's own certificates are revoked",
        ),
    ] {
        let error = refused(&lists).unwrap();
        assert!(error.contains(reason), "{error}");
    }

    // OpenSSL signs a list whether or not the authority may.
    let key = openssl.key("P-256");
    let usage = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"];
    let root = openssl.certify(&key, "/O=Example Corp/CN=no lists", None, &usage);
    let list = openssl.list(&root, &key, &[]);
    let pki =
        Hierarchy { intermediates: Vec::new(), signing: root.clone(), root_key: key.clone(), root, key };
    write(directory.path(), &pki, &pki.root);
    let error = refused(&list).unwrap();
    assert!(error.contains("cRLSign"), "{error}");
}

#[tokio::test]
async fn new_signing_certificate_is_taken_while_running() {
    let openssl = OpenSsl::new();
    let old = openssl.hierarchy("P-256", 0);
    let directory = directory(&[]);
    write(directory.path(), &old, &old.root);
    let (authority, follower) = follow(directory.path(), true);
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let following = tokio::spawn(follower.run(move |bundle| {
        let _ = told.send(bundle.roots().len());
    }));
    let new = openssl.hierarchy("P-256", 1);
    write(directory.path(), &new, &(old.root.clone() + &new.root));
    let roots = tokio::time::timeout(Duration::from_secs(20), heard.recv()).await.unwrap();
    assert_eq!(roots, Some(2));
    assert_eq!(authority.bundle().unwrap().signer().certificate().to_pem().unwrap(), new.signing);
    following.abort();
}
