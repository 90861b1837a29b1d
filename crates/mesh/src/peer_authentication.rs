//! PeerAuthentications: the mutual TLS mode of workloads.

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

/// The mutual TLS mode of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MutualTls {
    /// Only plain connections are accepted.
    Disable,
    /// Both plain connections and mutual TLS are accepted.
    Permissive,
    /// Only mutual TLS is accepted.
    Strict,
}

impl MutualTls {
    /// Reads the mode of an object; `None` if it is inherited.
    fn from_spec(written: Option<&Written>) -> Option<Self> {
        match written?.mode() {
            Mode::Unset => None,
            Mode::Disable => Some(Self::Disable),
            Mode::Permissive => Some(Self::Permissive),
            Mode::Strict => Some(Self::Strict),
        }
    }
}

/// The effective policy of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicy {
    /// The mode of ports without a mode of their own.
    pub mode: MutualTls,
    /// The modes of workload ports.
    pub ports: BTreeMap<u32, MutualTls>,
}

impl PeerPolicy {
    /// The mode of a port of the workload.
    pub fn mode_on_port(&self, port: u32) -> MutualTls {
        self.ports.get(&port).copied().unwrap_or(self.mode)
    }
}

/// The mode that a namespace-wide or mesh-wide policy sets; `None` if there is neither.
pub struct NamespaceMode;

impl Query for NamespaceMode {
    const NAME: &'static str = "peer_authentication_namespace_wide";
    type Key = Arc<str>;
    type Value = Option<MutualTls>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let settings = settings(ctx);
        let root = settings.root_namespace();
        let wide = |namespace| {
            let policies = policies(ctx, namespace);
            policies.into_iter().map(|(_, policy)| policy).find(|policy| selector(policy).is_empty())
        };
        let mesh_mode = wide(root).map(|policy| mode(&policy).unwrap_or(MutualTls::Permissive));
        if **namespace == *root {
            return mesh_mode;
        }
        match wide(namespace) {
            Some(policy) => Some(mode(&policy).or(mesh_mode).unwrap_or(MutualTls::Permissive)),
            None => mesh_mode,
        }
    }
}

/// The effective policy of a workload with these labels.
pub fn workload_policy(ctx: &Ctx<'_>, namespace: &Arc<str>, labels: &Labels) -> Arc<PeerPolicy> {
    ctx.get::<WorkloadPolicy>(&(namespace.clone(), selector_labels(ctx, namespace, labels)))
}

/// Keeps the labels that policies of the namespace select by.
pub fn selector_labels(ctx: &Ctx<'_>, namespace: &Arc<str>, labels: &Labels) -> SelectorLabels {
    SelectorLabels::reduce(ctx, labels, &[(SelectingKind::PeerAuthentication, namespace.clone())])
}

/// The effective policy of workloads with these reduced labels.
///
/// The oldest policy that selects the workload wins, and it overrides those of the namespace and the mesh.
pub struct WorkloadPolicy;

impl Query for WorkloadPolicy {
    const NAME: &'static str = "peer_authentication_of_workload";
    /// Namespace and reduced labels.
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

/// Finds the oldest policy whose selector matches.
fn selecting_policy(
    ctx: &Ctx<'_>,
    namespace: &str,
    labels: &SelectorLabels,
) -> Option<(Origin, Arc<PeerAuthentication>)> {
    // Policies with a selector in the root namespace are ignored, even for workloads of that namespace.
    let own = (*namespace != *settings(ctx).root_namespace()).then(|| policies(ctx, namespace));
    own.into_iter().flatten().find(|(_, policy)| selector(policy).selects(labels.as_labels()))
}

/// The policies that apply to a workload, from the most specific to the mesh-wide one.
pub(crate) fn deciding_policies(ctx: &Ctx<'_>, namespace: &str, labels: &SelectorLabels) -> Vec<Origin> {
    let settings = settings(ctx);
    let root = settings.root_namespace();
    let wide = |namespace: &str| {
        let mut policies = policies(ctx, namespace).into_iter();
        policies.find(|(_, policy)| selector(policy).is_empty())
    };
    let namespace_wide = (*namespace != *root).then(|| wide(namespace)).flatten();
    let deciding = [selecting_policy(ctx, namespace, labels), namespace_wide, wide(root)];
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
