//! Which workloads a node's proxy may have certificates of.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::kube::{Pod, PodPhase};
use canopus_api::{Kind, Object, ObjectKey};
use canopus_base::spiffe::Identity;
use canopus_engine::Engine;
use canopus_identity::service::{self, Caller, NodeAuthorizer};
use canopus_mesh::world::{ObjectIndex, Objects, Origin};
use canopus_runtime::flags::{CA_TRUSTED_NODE_ACCOUNTS, Flags};

/// Trusts proxies of certain service accounts with the workloads of the node they run on.
pub struct Nodes {
    engine: Engine,
    cluster: Arc<str>,
    trusted: BTreeSet<String>,
}

impl Nodes {
    /// The accounts of `CA_TRUSTED_NODE_ACCOUNTS`, in this cluster; `None` if there are none.
    pub fn new(engine: &Engine, cluster: &Arc<str>, flags: &Flags) -> Option<Self> {
        let trusted: BTreeSet<_> = flags.get(CA_TRUSTED_NODE_ACCOUNTS).iter().cloned().collect();
        let (engine, cluster) = (engine.clone(), Arc::clone(cluster));
        (!trusted.is_empty()).then_some(Self { engine, cluster, trusted })
    }

    /// A pod, unless it has failed.
    fn pod(&self, origin: &Origin) -> Option<Arc<Object>> {
        let object = self.engine.read::<Objects>(origin)?;
        as_pod(&object).is_some_and(|pod| pod.status.phase != PodPhase::Failed).then_some(object)
    }

    fn node_of(&self, caller: &service::Pod) -> Result<Box<str>, String> {
        let service::Pod { namespace, name, uid, service_account } = caller;
        let origin = Origin::new(Arc::clone(&self.cluster), ObjectKey::new(Kind::Pod, namespace, name));
        let object = self.pod(&origin).ok_or_else(|| format!("pod {namespace}/{name} is not known"))?;
        let pod = as_pod(&object).ok_or("it is no pod")?;
        if *pod.meta.uid != **uid {
            return Err(format!("pod {namespace}/{name} is another one now"));
        }
        if *pod.spec.service_account_name != **service_account {
            return Err(format!("pod {namespace}/{name} has another service account"));
        }
        Ok(pod.spec.node_name.clone())
    }

    fn runs_on(&self, node: &str, identity: &Identity) -> bool {
        let index = ObjectIndex::InCluster(Kind::Pod, Arc::clone(&self.cluster), identity.namespace.clone());
        let pods = self.engine.members::<Objects>(&index);
        pods.iter().filter_map(|origin| self.pod(origin)).any(|object| {
            as_pod(&object).is_some_and(|pod| {
                *pod.spec.node_name == *node && pod.spec.service_account_name == identity.service_account
            })
        })
    }
}

fn as_pod(object: &Object) -> Option<&Pod> {
    if let Object::Pod(pod) = object { Some(pod) } else { None }
}

impl NodeAuthorizer for Nodes {
    fn authorize(&self, caller: &Caller, requested: &Identity) -> Result<(), String> {
        // Parity: the caller has to say which cluster it is in, whatever its token says.
        let cluster = caller.cluster.as_deref().unwrap_or_default();
        if *cluster != *self.cluster {
            return Err(format!("there are no nodes of cluster {cluster:?} here"));
        }
        let pod = caller.pod.as_ref().ok_or("the caller has no token of a service account")?;
        let account = format!("{}/{}", pod.namespace, pod.service_account);
        if !self.trusted.contains(&account) {
            return Err(format!("{account} is not among CA_TRUSTED_NODE_ACCOUNTS"));
        }
        let node = self.node_of(pod)?;
        if node.is_empty() || !self.runs_on(&node, requested) {
            return Err(format!("nothing with identity {requested} runs on node {node:?}"));
        }
        Ok(())
    }
}
