//! Whether the peers of a workload must use mutual TLS.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::PeerAuthentication;
use canopus_base::labels::Labels;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::security::v1beta1::peer_authentication::{MutualTls as Written, mutual_tls::Mode};

use crate::selector::{SelectingKind, SelectorLabels};
use crate::world::{ObjectIndex, Origin, indexed_objects, oldest_first, settings};

/// What a workload does about mutual TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MutualTls {
    /// It takes plain connections only.
    Disable,
    /// It takes both.
    Permissive,
    /// It takes nothing else.
    Strict,
}

impl MutualTls {
    /// What an object says; `None` if it leaves it to a wider policy.
    fn from_spec(written: Option<&Written>) -> Option<Self> {
        match written?.mode() {
            Mode::Unset => None,
            Mode::Disable => Some(Self::Disable),
            Mode::Permissive => Some(Self::Permissive),
            Mode::Strict => Some(Self::Strict),
        }
    }
}

/// The policy in force for a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicy {
    /// The mode of ports that are not listed.
    pub mode: MutualTls,
    /// The modes of single ports of the workload.
    pub ports: BTreeMap<u32, MutualTls>,
}

impl PeerPolicy {
    /// The mode of a port of the workload.
    pub fn mode_on_port(&self, port: u32) -> MutualTls {
        self.ports.get(&port).copied().unwrap_or(self.mode)
    }
}

/// The mode that the policy of a whole namespace, or else of the mesh, sets; `None` if there is neither.
pub struct NamespaceMode;

impl Query for NamespaceMode {
    const NAME: &'static str = "peer_authentication_of_namespace";
    type Key = Arc<str>;
    type Value = Option<MutualTls>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let settings = settings(ctx);
        let root = settings.root_namespace();
        let wide = |namespace| {
            let policies = policies(ctx, namespace);
            policies.into_iter().map(|(_, policy)| policy).find(|policy| selector(policy).is_empty())
        };
        let of_mesh = wide(root).map(|policy| mode(&policy).unwrap_or(MutualTls::Permissive));
        if **namespace == *root {
            return of_mesh;
        }
        match wide(namespace) {
            Some(policy) => Some(mode(&policy).or(of_mesh).unwrap_or(MutualTls::Permissive)),
            None => of_mesh,
        }
    }
}

/// The policy of a workload of a namespace with these labels.
pub fn workload_policy(ctx: &Ctx<'_>, namespace: &Arc<str>, labels: &Labels) -> Arc<PeerPolicy> {
    ctx.get::<WorkloadPolicy>(&(namespace.clone(), selector_labels(ctx, namespace, labels)))
}

/// The labels that policies of the namespace select a workload by.
pub fn selector_labels(ctx: &Ctx<'_>, namespace: &Arc<str>, labels: &Labels) -> SelectorLabels {
    SelectorLabels::reduce(ctx, labels, &[(SelectingKind::PeerAuthentication, namespace.clone())])
}

/// The policy of the workloads of a namespace that policies select by these labels.
///
/// Of the policies that select some labels the oldest one counts, and it counts over those of namespace and mesh.
pub struct WorkloadPolicy;

impl Query for WorkloadPolicy {
    const NAME: &'static str = "peer_authentication_of_workload";
    /// Namespace, and the labels that policies of the namespace select the workload by.
    type Key = (Arc<str>, SelectorLabels);
    type Value = PeerPolicy;

    fn run(ctx: &Ctx<'_>, (namespace, labels): &Self::Key) -> Self::Value {
        let inherited = ctx.get::<NamespaceMode>(namespace).unwrap_or(MutualTls::Permissive);
        let Some((_, policy)) = selecting_policy(ctx, namespace, labels) else {
            return PeerPolicy { mode: inherited, ports: BTreeMap::new() };
        };
        let mode = mode(&policy).unwrap_or(inherited);
        let ports = policy.spec.port_level_mtls.iter();
        let ports = ports.map(|(port, written)| (*port, MutualTls::from_spec(Some(written)).unwrap_or(mode)));
        PeerPolicy { mode, ports: ports.collect() }
    }
}

/// The policy that selects workloads by some of their labels.
fn selecting_policy(
    ctx: &Ctx<'_>,
    namespace: &str,
    labels: &SelectorLabels,
) -> Option<(Origin, Arc<PeerAuthentication>)> {
    // Selectors of the root namespace count nowhere, not even there.
    let own = (*namespace != *settings(ctx).root_namespace()).then(|| policies(ctx, namespace));
    own.into_iter().flatten().find(|(_, policy)| selector(policy).selects(labels.as_labels()))
}

/// The policies that decide about a workload, the narrowest first: of its labels, its namespace, the mesh.
pub(crate) fn deciding_policies(ctx: &Ctx<'_>, namespace: &str, labels: &SelectorLabels) -> Vec<Origin> {
    let settings = settings(ctx);
    let root = settings.root_namespace();
    let wide = |namespace: &str| {
        let mut policies = policies(ctx, namespace).into_iter();
        policies.find(|(_, policy)| selector(policy).is_empty())
    };
    let of_namespace = (*namespace != *root).then(|| wide(namespace)).flatten();
    let deciding = [selecting_policy(ctx, namespace, labels), of_namespace, wide(root)];
    deciding.into_iter().flatten().map(|(origin, _)| origin).collect()
}

/// The policies of a namespace, oldest first.
fn policies(ctx: &Ctx<'_>, namespace: &str) -> Vec<(Origin, Arc<PeerAuthentication>)> {
    let index = ObjectIndex::Namespace(Kind::PeerAuthentication, namespace.into());
    let mut found = indexed_objects::<PeerAuthentication>(ctx, &index);
    oldest_first(&mut found);
    found
}

fn selector(policy: &PeerAuthentication) -> Labels {
    let written = policy.spec.selector.iter().flat_map(|selector| &selector.match_labels);
    written.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn mode(policy: &PeerAuthentication) -> Option<MutualTls> {
    MutualTls::from_spec(policy.spec.mtls.as_ref())
}
