//! What the agent knows of certificates now, and who wants to hear of changes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use zeroize::Zeroizing;

use super::files::{self, FileSecret};

/// Most files that are followed; more are served, but not followed.
const MAX_FILES: usize = 1024;

/// A workload's certificate with its key and the root above it, all PEM.
#[derive(Clone)]
pub struct Identity {
    /// The chain, the leaf first.
    pub chain: String,
    /// The key.
    pub key: Zeroizing<String>,
    /// The root.
    pub root: String,
    /// When it ends.
    pub expires: SystemTime,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// The identity and the additional roots. Every change is a new revision.
#[derive(Debug)]
pub struct Secrets {
    state: Mutex<State>,
    revision: watch::Sender<u64>,
    /// A file was asked for that is not watched yet.
    file_wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    identity: Option<Identity>,
    /// Roots the control plane adds, such as those of other trust domains.
    additional_roots: Vec<String>,
    /// The mesh's revocation lists, PEM.
    revocations: Option<String>,
    /// Files that somebody asked for, by the name of the secret; `None` as long as they cannot be read.
    files: BTreeMap<String, Option<FileSecret>>,
}

impl Default for Secrets {
    fn default() -> Self {
        Self { state: Mutex::default(), revision: watch::Sender::new(0), file_wanted: Notify::new() }
    }
}

impl Secrets {
    /// Replaces the workload's certificate.
    pub fn set_identity(&self, identity: Identity) {
        self.state.lock().identity = Some(identity);
        self.changed();
    }

    /// The control plane has these additional roots, PEM each.
    pub fn set_additional_roots(&self, roots: Vec<String>) {
        let mut state = self.state.lock();
        if state.additional_roots != roots {
            state.additional_roots = roots;
            drop(state);
            self.changed();
        }
    }

    /// These are the mesh's revocation lists, if it has any.
    pub fn set_revocations(&self, revocations: Option<String>) {
        let mut state = self.state.lock();
        if state.revocations != revocations {
            state.revocations = revocations;
            drop(state);
            self.changed();
        }
    }

    /// The mesh's revocation lists, if it has any.
    pub fn revocations(&self) -> Option<String> {
        self.state.lock().revocations.clone()
    }

    /// The certificate, if there is one yet.
    pub fn identity(&self) -> Option<Identity> {
        self.state.lock().identity.clone()
    }

    /// All roots, without repetition.
    pub fn roots(&self) -> Option<String> {
        let state = self.state.lock();
        let root = &state.identity.as_ref()?.root;
        let mut roots = vec![root.trim()];
        for additional in &state.additional_roots {
            if !roots.contains(&additional.trim()) {
                roots.push(additional.trim());
            }
        }
        Some(roots.iter().flat_map(|root| [root, "\n"]).collect())
    }

    /// The contents of files by the name of their secret. Files that were asked for are followed from then on.
    pub(crate) fn file(&self, name: &str) -> Option<FileSecret> {
        if let Some(Some(known)) = self.state.lock().files.get(name) {
            return Some(known.clone());
        }
        let loaded = files::load(name);
        let mut state = self.state.lock();
        if files::is_name(name) && state.files.len() < MAX_FILES {
            state.files.insert(name.to_owned(), loaded.clone());
            self.file_wanted.notify_one();
        }
        loaded
    }

    /// The secrets that are files.
    pub(super) fn file_names(&self) -> Vec<String> {
        self.state.lock().files.keys().cloned().collect()
    }

    /// Waits until a file is asked for that was not before.
    pub(super) async fn file_wanted(&self) {
        self.file_wanted.notified().await;
    }

    /// Reads the files again that somebody has.
    pub(super) fn reload_files(&self) {
        let mut changed = false;
        for name in self.file_names() {
            // A file that is gone or broken for now is served as it was.
            let Some(loaded) = files::load(&name) else { continue };
            let mut state = self.state.lock();
            changed |= state.files.insert(name, Some(loaded.clone())) != Some(Some(loaded));
        }
        if changed {
            self.changed();
        }
    }

    /// Revisions, for those who want to hear of changes.
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    fn changed(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }
}
