//! PeerAuthentications as ztunnels enforce them: policies that deny connections without an identity.

use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::istio::PeerAuthentication;
use canopus_base::labels::Labels;
use canopus_engine::Ctx;
use canopus_mesh::world::{ObjectIndex, indexed_objects, oldest_first, settings};
use canopus_proto::istio::security::v1beta1::peer_authentication::MutualTls;
use canopus_proto::istio::security::v1beta1::peer_authentication::mutual_tls::Mode;
use canopus_proto::istio::security::{Action, Authorization, Group, Match, Rules, Scope, StringMatch};

use crate::authorization::presence;

/// The policy that denies all connections without an identity.
const STRICT: &str = "istio_converted_static_strict";

/// The policy that workloads refer to which take nothing but mutual TLS.
pub(crate) fn strict(root: &str) -> Authorization {
    denying(STRICT, root, vec![Group { rules: vec![matching(without_identity())] }])
}

fn denying(name: &str, namespace: &str, groups: Vec<Group>) -> Authorization {
    Authorization {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        scope: Scope::WorkloadSelector as i32,
        action: Action::Deny as i32,
        groups,
        ..Default::default()
    }
}

fn matching(one: Match) -> Rules {
    Rules { matches: vec![one] }
}

fn without_identity() -> Match {
    let anybody = StringMatch { match_type: Some(presence()) };
    Match { not_principals: vec![anybody], ..Default::default() }
}

fn mode(written: Option<&MutualTls>) -> Mode {
    written.map_or(Mode::Unset, MutualTls::mode)
}

fn is_lax(mode: Mode) -> bool {
    matches!(mode, Mode::Permissive | Mode::Disable)
}

fn name_of(policy: &PeerAuthentication) -> String {
    format!("converted_peer_authentication_{}", policy.meta.name)
}

fn selector(policy: &PeerAuthentication) -> Labels {
    let written = policy.spec.selector.iter().flat_map(|selector| &selector.match_labels);
    written.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// The policies of a namespace, oldest first.
fn policies(ctx: &Ctx<'_>, namespace: &str) -> Vec<Arc<PeerAuthentication>> {
    let shelf = ObjectIndex::Namespace(Kind::PeerAuthentication, namespace.into());
    let mut found = indexed_objects::<PeerAuthentication>(ctx, &shelf);
    oldest_first(&mut found);
    found.into_iter().map(|(_, policy)| policy).collect()
}

/// The modes of a namespace and of the mesh, of the oldest policies without a selector; `None` if there is no policy.
fn wide(ctx: &Ctx<'_>, namespace: &str, is_wide: fn(&PeerAuthentication) -> bool) -> [Option<Mode>; 2] {
    let root = settings(ctx).root_namespace().to_owned();
    let of = |namespace: &str| {
        let found = policies(ctx, namespace).into_iter().find(|policy| is_wide(policy));
        found.map(|policy| mode(policy.spec.mtls.as_ref()))
    };
    [(namespace != root).then(|| of(namespace)).flatten(), of(&root)]
}

/// The policy of a PeerAuthentication that says something else for single ports; `None` if it says nothing that the policy
/// for all ports does not say.
pub(crate) fn of_ports(ctx: &Ctx<'_>, policy: &PeerAuthentication) -> Option<Authorization> {
    let settings = settings(ctx);
    let spec = &policy.spec;
    let is_root = *policy.meta.namespace == *settings.root_namespace();
    if is_root || spec.selector.is_none() || spec.port_level_mtls.is_empty() {
        return None;
    }
    let own = mode(spec.mtls.as_ref());
    let [of_namespace, of_mesh] = wide(ctx, &policy.meta.namespace, |policy| policy.spec.selector.is_none());
    let namespace_is_strict = of_namespace == Some(Mode::Strict);
    let mesh_is_strict = of_namespace.is_none_or(|mode| mode == Mode::Unset) && of_mesh == Some(Mode::Strict);
    // Parity: a strict mesh counts for a port even where the policy itself is not strict.
    let implied = own == Mode::Strict || (own == Mode::Unset && namespace_is_strict) || mesh_is_strict;
    let wide_is_lax = of_namespace.or(of_mesh) != Some(Mode::Strict);
    let (mut groups, mut rules) = (Vec::new(), Vec::new());
    rules.extend((own == Mode::Strict).then(|| matching(without_identity())));
    let mut has_lax_port = false;
    for (port, written) in &spec.port_level_mtls {
        let of_port = mode(Some(written));
        if of_port == Mode::Strict && !implied {
            let denied = Match { destination_ports: vec![*port], ..without_identity() };
            groups.push(Group { rules: vec![matching(denied)] });
        } else if is_lax(of_port) && !is_lax(own) && !(own == Mode::Unset && wide_is_lax) {
            has_lax_port = true;
            let other = Match { not_destination_ports: vec![*port], ..Default::default() };
            rules.push(matching(other));
        }
    }
    if (own == Mode::Strict && !has_lax_port) || (rules.is_empty() && groups.is_empty()) {
        return None;
    }
    let mesh_reaches = of_namespace.is_none_or(|mode| matches!(mode, Mode::Unset | Mode::Strict));
    let inherits = (of_mesh == Some(Mode::Strict) && mesh_reaches) || namespace_is_strict;
    if inherits && has_lax_port {
        rules.push(matching(without_identity()));
    }
    if !rules.is_empty() {
        groups.push(Group { rules });
    }
    Some(denying(&name_of(policy), &policy.meta.namespace, groups))
}

/// The names of the policies that PeerAuthentications bring to a workload.
pub(crate) fn names_for(ctx: &Ctx<'_>, namespace: &str, labels: &Labels) -> Vec<String> {
    let settings = settings(ctx);
    let root = settings.root_namespace();
    let [of_namespace, of_mesh] = wide(ctx, namespace, |policy| selector(policy).is_empty());
    let mut is_strict = of_mesh == Some(Mode::Strict);
    if let Some(mode) = of_namespace.filter(|mode| *mode != Mode::Unset) {
        is_strict = mode == Mode::Strict;
    }
    let own = (namespace != root).then(|| policies(ctx, namespace)).into_iter().flatten();
    let own = own.into_iter().find(|policy| selector(policy).selects(labels));
    let mut named = None;
    if let Some(policy) = own {
        let mode_of_all = mode(policy.spec.mtls.as_ref());
        match mode_of_all {
            Mode::Strict => is_strict = true,
            Mode::Permissive | Mode::Disable => is_strict = false,
            Mode::Unset => {}
        }
        let ports: Vec<_> = policy.spec.port_level_mtls.values().map(|written| mode(Some(written))).collect();
        let excepts = match (mode_of_all, is_strict) {
            (Mode::Strict, _) => ports.iter().any(|mode| is_lax(*mode)),
            // Parity: a port without mutual TLS is no exception from what the namespace or the mesh says.
            (Mode::Unset, true) => ports.contains(&Mode::Permissive),
            _ => ports.contains(&Mode::Strict),
        };
        if excepts {
            // It says about all other ports what the policy for all would.
            is_strict = false;
            named = Some(format!("{namespace}/{}", name_of(&policy)));
        }
    }
    let strict = is_strict.then(|| format!("{root}/{STRICT}"));
    let mut names: Vec<_> = strict.into_iter().chain(named).collect();
    names.sort();
    names
}
