//! A source under test and what to hold it against.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use canopus_api::{Kind, Object, ObjectKey, Options as DecodeOptions, decode_documents};
use canopus_base::tree::Limits;
use canopus_sources::kubernetes::{Access, Cluster, Kubernetes, Options, RateLimit};
use canopus_sources::status::{Phase, SourceStatus};
use canopus_sources::{Intake, Source as _, SourceInfo, SourcePart};
use canopus_testkit::{KubeApi, eventually};
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const CLUSTER: &str = "east";

/// A Kubernetes source and the world it feeds.
pub(crate) struct Mirror {
    pub(crate) intake: Intake,
    /// Objects as whoever applies the updates has them.
    applied: BTreeMap<ObjectKey, Object>,
    task: JoinHandle<()>,
}

impl Mirror {
    /// Follows the cluster that a kubeconfig leads to.
    pub(crate) async fn start(kubeconfig: &Path, options: Options) -> Self {
        let access = Access::Kubeconfig(kubeconfig.to_owned());
        let cluster = Cluster::connect(&access, RateLimit::default()).await.unwrap();
        let mut intake = Intake::new();
        let feed = intake.feed(SourceInfo::new("kubernetes:east", CLUSTER, 0));
        let task = tokio::spawn(Kubernetes::new(cluster, options).run(feed));
        Self { intake, applied: BTreeMap::new(), task }
    }

    /// Takes updates until something holds.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !holds(self) {
                self.take_next().await;
            }
        };
        let Ok(()) = timeout(PATIENCE, waiting).await else {
            panic!("{what}: not so after {PATIENCE:?}: {:#?}", self.intake.world().status())
        };
    }

    async fn take_next(&mut self) {
        for ((cluster, key), object) in self.intake.next().await.changes {
            assert_eq!(&*cluster, CLUSTER);
            match object {
                Some(object) => self.applied.insert(key, object),
                None => self.applied.remove(&key),
            };
        }
    }

    /// Takes updates until the world equals a fresh read of these kinds.
    pub(crate) async fn equals_fresh_read(&mut self, kube: &KubeApi, kinds: &[Kind]) {
        eventually("a world that equals a fresh read", PATIENCE, async || {
            while timeout(Duration::from_millis(20), self.take_next()).await.is_ok() {}
            let fresh = fresh_read(kube, kinds).await?;
            let held: Vec<&ObjectKey> = self.applied.keys().collect();
            ensure!(held == fresh.keys().collect::<Vec<_>>(), "{held:?} instead of {:?}", fresh.keys());
            for (key, object) in &fresh {
                let held = &self.applied[key];
                ensure!(held.same_but_for_version(object), "{held:?} instead of {object:?}");
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    pub(crate) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object> {
        self.applied.get(&ObjectKey::new(kind, namespace, name))
    }

    pub(crate) fn len(&self) -> usize {
        self.applied.len()
    }

    pub(crate) fn status(&self) -> SourceStatus {
        self.intake.world().status().remove(0)
    }

    pub(crate) fn phase(&self, kind: Kind) -> Option<Phase> {
        let parts = self.status().parts;
        parts.into_iter().find(|status| status.part == SourcePart::Kind(kind)).map(|status| status.phase)
    }

    pub(crate) fn is_stale(&self, kind: Kind) -> bool {
        matches!(self.phase(kind), Some(Phase::Stale { .. }))
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the API server has of these kinds.
async fn fresh_read(kube: &KubeApi, kinds: &[Kind]) -> Result<BTreeMap<ObjectKey, Object>> {
    let resources: Vec<String> = kinds.iter().map(|kind| kind.info().resource()).collect();
    let listing = kube.kubectl(&["get", &resources.join(","), "--all-namespaces", "--output=json"]).await?;
    let mut objects = BTreeMap::new();
    for outcome in decode_documents(listing, &Limits::default(), DecodeOptions::watch()) {
        let object = outcome?.value;
        objects.insert(object.key(), object);
    }
    Ok(objects)
}
