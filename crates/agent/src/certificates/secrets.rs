//! What the agent knows of certificates now, and who wants to hear of changes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::watch;
use zeroize::Zeroizing;

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
}

#[derive(Debug, Default)]
struct State {
    identity: Option<Identity>,
    /// Roots the control plane adds, such as those of other trust domains.
    additional_roots: Vec<String>,
    /// Files that somebody asked for, by the name of the secret.
    files: BTreeMap<String, super::files::FileSecret>,
}

impl Default for Secrets {
    fn default() -> Self {
        Self { state: Mutex::default(), revision: watch::Sender::new(0) }
    }
}

impl Secrets {
    /// There is a new certificate.
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

    /// The contents of files by the name of their secret. Files that were asked for are watched from then on.
    pub(crate) fn file(&self, name: &str) -> Option<super::files::FileSecret> {
        if let Some(known) = self.state.lock().files.get(name) {
            return Some(known.clone());
        }
        let loaded = super::files::load(name)?;
        self.state.lock().files.insert(name.to_owned(), loaded.clone());
        Some(loaded)
    }

    /// Reads the files again that somebody has.
    pub(crate) fn reload_files(&self) {
        let names: Vec<String> = self.state.lock().files.keys().cloned().collect();
        let mut changed = false;
        for name in names {
            // A file that is gone or broken for now is served as it was.
            let Some(loaded) = super::files::load(&name) else { continue };
            let mut state = self.state.lock();
            changed |= state.files.insert(name, loaded.clone()).as_ref() != Some(&loaded);
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
