//! Where kubeconfigs of remote clusters are written: Secrets, or files of a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::kube::SecretBytes;
use canopus_api::{Kind, Object};
use canopus_runtime::tasks;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use tracing::warn;

use super::RemoteDefinitions;
use crate::change::Change;
use crate::kubernetes::collector::{Message, Topic};
use crate::kubernetes::kubeconfig::{self, AllowedFields};
use crate::kubernetes::resource::Resource;
use crate::kubernetes::watch::{Out, Watch, WatchEvent, WatchOptions};
use crate::kubernetes::{AUDIT_INTERVAL, Cluster, Listing};

/// What marks a Secret as one that leads to remote clusters.
const LABEL: &str = "istio/multiCluster=true";

/// How often a directory is looked at.
const DIRECTORY_INTERVAL: Duration = Duration::from_secs(2);

/// A file larger than this is no kubeconfig.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// All definitions that there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Definitions {
    /// By the name of the Secret or file, kubeconfigs by the name of their cluster.
    pub(super) by_name: BTreeMap<Box<str>, BTreeMap<Box<str>, SecretBytes>>,
    /// What leads nowhere, by the name of the Secret or file.
    pub(super) problems: BTreeMap<Box<str>, String>,
}

/// Sends all definitions whenever they change, from the moment they are all known.
pub(super) fn follow(
    definitions: RemoteDefinitions,
    allowed: AllowedFields,
    out: mpsc::Sender<Definitions>,
) -> tasks::Running {
    let following = move || {
        let (definitions, allowed, out) = (definitions.clone(), allowed.clone(), out.clone());
        async move {
            match definitions {
                RemoteDefinitions::Secrets { cluster, namespace } => {
                    follow_secrets(cluster, &namespace, out).await;
                }
                RemoteDefinitions::Directory(path) => follow_directory(&path, &allowed, out).await,
            }
        }
    };
    tasks::keep_running("definitions of remote clusters", following, |_| std::future::ready(()))
}

async fn follow_secrets(cluster: Cluster, namespace: &str, out: mpsc::Sender<Definitions>) {
    let resource = Resource::for_kind(Kind::Secret, Some(namespace)).labelled(LABEL);
    let options =
        WatchOptions { listing: Listing::default(), optional: true, audit_interval: AUDIT_INTERVAL };
    let (sender, mut messages) = mpsc::channel(4);
    let topic = Topic::Kind(Kind::Secret, 0);
    let lost = sender.clone();
    let _watch = tasks::keep_running(
        "watch of Secrets that lead to remote clusters",
        move || {
            let watch = Watch::new(cluster.clone(), resource.clone(), options);
            watch.run(Arc::new(Notify::new()), Out::new(topic, sender.clone()))
        },
        move |reason| {
            let out = Out::new(topic, lost.clone());
            async move {
                // If nobody listens, the watch will not be begun again either.
                let _ = out.tell(vec![WatchEvent::Lost(reason)]).await;
            }
        },
    );
    let mut secrets = Secrets::default();
    while let Some(message) = messages.recv().await {
        let Message::Kind(_, _, changes) = message else { continue };
        for change in changes {
            secrets.take(change);
        }
        if secrets.is_complete() && out.send(secrets.definitions.clone()).await.is_err() {
            return;
        }
    }
}

/// The Secrets as a watch reports them.
#[derive(Debug, Default)]
struct Secrets {
    definitions: Definitions,
    /// The names that a listing which has not ended has named.
    listed: Option<BTreeSet<Box<str>>>,
    was_listed: bool,
}

impl Secrets {
    fn take(&mut self, change: Change) {
        match change {
            Change::Begin(_) => self.listed = Some(BTreeSet::new()),
            Change::Set(Object::Secret(secret)) => {
                let name: Box<str> = format!("{}/{}", secret.meta.namespace, secret.meta.name).into();
                self.definitions.by_name.insert(name.clone(), secret.spec.data.clone());
                self.name(name);
            }
            Change::Keep(key) => self.name(format!("{}/{}", key.namespace, key.name).into()),
            Change::Remove(key) => {
                self.definitions.by_name.remove(&*format!("{}/{}", key.namespace, key.name));
            }
            Change::End(_) => {
                if let Some(listed) = self.listed.take() {
                    self.definitions.by_name.retain(|name, _| listed.contains(name));
                }
                self.was_listed = true;
            }
            Change::Absent(_, reason) => {
                warn!(
                    reason,
                    "Secrets that lead to remote clusters cannot be read: no remote cluster is added or removed"
                );
                self.was_listed = true;
            }
            _ => {}
        }
    }

    fn name(&mut self, name: Box<str>) {
        if let Some(listed) = &mut self.listed {
            listed.insert(name);
        }
    }

    /// Whether nothing that is there may be missing.
    fn is_complete(&self) -> bool {
        self.was_listed && self.listed.is_none()
    }
}

/// Looks at a directory again and again. Mounted Secrets are swapped as a whole, which events of single files do not tell.
async fn follow_directory(path: &Path, allowed: &AllowedFields, out: mpsc::Sender<Definitions>) {
    let mut last = None;
    loop {
        let (directory, allowed) = (path.to_owned(), allowed.clone());
        let read = tokio::task::spawn_blocking(move || read_directory(&directory, &allowed)).await;
        if let Ok(definitions) = read
            && last.as_ref() != Some(&definitions)
        {
            for (file, problem) in &definitions.problems {
                warn!(file = &**file, problem, "no cluster is followed by this file");
            }
            last = Some(definitions.clone());
            if out.send(definitions).await.is_err() {
                return;
            }
        }
        sleep(DIRECTORY_INTERVAL).await;
    }
}

fn read_directory(path: &Path, allowed: &AllowedFields) -> Definitions {
    let mut definitions = Definitions::default();
    let mut owners: BTreeMap<Box<str>, Box<str>> = BTreeMap::new();
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => {
            definitions.problems.insert(path.display().to_string().into(), error.to_string());
            return definitions;
        }
    };
    let mut files: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    for file in files {
        let name: Box<str> = file.display().to_string().into();
        match read_file(&file, allowed) {
            Ok((cluster, kubeconfig)) => match owners.get(&cluster) {
                Some(owner) => {
                    let problem = format!("cluster {cluster} is defined by {owner} already");
                    definitions.problems.insert(name, problem);
                }
                None => {
                    owners.insert(cluster.clone(), name.clone());
                    definitions.by_name.insert(name, BTreeMap::from([(cluster, kubeconfig)]));
                }
            },
            Err(problem) => drop(definitions.problems.insert(name, problem)),
        }
    }
    definitions
}

fn read_file(path: &Path, allowed: &AllowedFields) -> Result<(Box<str>, SecretBytes), String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let parsed = kubeconfig::parse(&bytes, allowed).map_err(|error| error.to_string())?;
    let cluster = kubeconfig::cluster_name(&parsed).ok_or("it names no cluster")?;
    Ok((cluster.into(), SecretBytes::new(bytes)))
}

#[cfg(test)]
mod tests {
    use canopus_api::ObjectKey;
    use canopus_base::json;
    use canopus_base::tree::Limits;

    use super::*;
    use crate::change::SourcePart;

    const SECRETS: SourcePart = SourcePart::Kind(Kind::Secret);

    fn secret(name: &str) -> Change {
        let text = format!(
            r#"{{"apiVersion": "v1", "kind": "Secret", "data": {{"{name}": "e30="}},
                "metadata": {{"namespace": "istio-system", "name": "{name}"}}}}"#
        );
        let node = json::parse(text.as_bytes(), &Limits::default()).unwrap();
        Change::Set(Object::decode(&node, canopus_api::Options::watch()).unwrap().value)
    }

    fn names(secrets: &Secrets) -> Vec<&str> {
        secrets.definitions.by_name.keys().map(|name| &**name).collect()
    }

    #[test]
    fn nothing_counts_before_a_listing_is_complete() {
        let mut secrets = Secrets::default();
        secrets.take(Change::Begin(SECRETS));
        secrets.take(secret("west"));
        assert!(!secrets.is_complete());
        secrets.take(Change::End(SECRETS));
        assert!(secrets.is_complete());
        assert_eq!(names(&secrets), ["istio-system/west"]);
    }

    #[test]
    fn secret_goes_with_its_removal_or_with_a_listing_that_lacks_it() {
        let mut secrets = Secrets::default();
        for name in ["a", "b", "c"] {
            secrets.take(secret(name));
        }
        secrets.take(Change::Remove(ObjectKey::new(Kind::Secret, "istio-system", "b")));
        secrets.take(Change::Begin(SECRETS));
        secrets.take(Change::Keep(ObjectKey::new(Kind::Secret, "istio-system", "c")));
        secrets.take(Change::End(SECRETS));
        assert_eq!(names(&secrets), ["istio-system/c"]);
    }

    #[test]
    fn directory_has_a_cluster_for_each_file() {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = |cluster: &str| {
            format!(
                "clusters: [{{name: {cluster}, cluster: {{server: 'https://192.0.2.1'}}}}]\n\
                 contexts: [{{name: x, context: {{cluster: {cluster}, user: u}}}}]\ncurrent-context: x\n"
            )
        };
        fs::write(directory.path().join("a"), kubeconfig("west")).unwrap();
        fs::write(directory.path().join("b"), kubeconfig("west")).unwrap();
        fs::write(directory.path().join("c"), "no: [kubeconfig").unwrap();
        let read = read_directory(directory.path(), &AllowedFields::new());
        let clusters: Vec<_> = read.by_name.values().flat_map(BTreeMap::keys).collect();
        assert_eq!(clusters, [&Box::<str>::from("west")]);
        assert_eq!(read.problems.len(), 2, "{:?}", read.problems);
    }
}
