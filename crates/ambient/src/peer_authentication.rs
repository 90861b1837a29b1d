//! PeerAuthentications converted for ztunnels: policies that deny connections without an identity.

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

/// The policy of workloads that require mutual TLS.
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

fn policy_name(policy: &PeerAuthentication) -> String {
    format!("converted_peer_authentication_{}", policy.meta.name)
}

fn selector(policy: &PeerAuthentication) -> Labels {
    let written = policy.spec.selector.iter().flat_map(|selector| &selector.match_labels);
    written.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// The policies of a namespace, oldest first.
fn policies(ctx: &Ctx<'_>, namespace: &str) -> Vec<Arc<PeerAuthentication>> {
    let index = ObjectIndex::Namespace(Kind::PeerAuthentication, namespace.into());
    let mut found = indexed_objects::<PeerAuthentication>(ctx, &index);
    oldest_first(&mut found);
    found.into_iter().map(|(_, policy)| policy).collect()
}

/// The modes of a namespace and of the mesh, of the oldest policies without a selector; `None` if there is no policy.
fn wide_modes(ctx: &Ctx<'_>, namespace: &str, is_wide: fn(&PeerAuthentication) -> bool) -> [Option<Mode>; 2] {
    let root = settings(ctx).root_namespace().to_owned();
    let mode_in = |namespace: &str| {
        let found = policies(ctx, namespace).into_iter().find(|policy| is_wide(policy));
        found.map(|policy| mode(policy.spec.mtls.as_ref()))
    };
    [(namespace != root).then(|| mode_in(namespace)).flatten(), mode_in(&root)]
}

/// The policy for the port-level exceptions of a PeerAuthentication. Returns `None` if the policy for all ports covers it.
pub(crate) fn port_policy(ctx: &Ctx<'_>, policy: &PeerAuthentication) -> Option<Authorization> {
    let settings = settings(ctx);
    let spec = &policy.spec;
    let is_root = *policy.meta.namespace == *settings.root_namespace();
    if is_root || spec.selector.is_none() || spec.port_level_mtls.is_empty() {
        return None;
    }
    let own = mode(spec.mtls.as_ref());
    let [namespace_mode, mesh_mode] =
        wide_modes(ctx, &policy.meta.namespace, |policy| policy.spec.selector.is_none());
    let namespace_is_strict = namespace_mode == Some(Mode::Strict);
    let mesh_is_strict =
        namespace_mode.is_none_or(|mode| mode == Mode::Unset) && mesh_mode == Some(Mode::Strict);
    // Parity: a strict mesh-wide policy applies to a port even if the policy itself is not strict.
    let implied = own == Mode::Strict || (own == Mode::Unset && namespace_is_strict) || mesh_is_strict;
    let wide_is_lax = namespace_mode.or(mesh_mode) != Some(Mode::Strict);
    let (mut groups, mut rules) = (Vec::new(), Vec::new());
    rules.extend((own == Mode::Strict).then(|| matching(without_identity())));
    let mut has_lax_port = false;
    for (port, written) in &spec.port_level_mtls {
        let port_mode = mode(Some(written));
        if port_mode == Mode::Strict && !implied {
            let denied = Match { destination_ports: vec![*port], ..without_identity() };
            groups.push(Group { rules: vec![matching(denied)] });
        } else if is_lax(port_mode) && !is_lax(own) && !(own == Mode::Unset && wide_is_lax) {
            has_lax_port = true;
            let other = Match { not_destination_ports: vec![*port], ..Default::default() };
            rules.push(matching(other));
        }
    }
    if (own == Mode::Strict && !has_lax_port) || (rules.is_empty() && groups.is_empty()) {
        return None;
    }
    let mesh_reaches = namespace_mode.is_none_or(|mode| matches!(mode, Mode::Unset | Mode::Strict));
    let inherits = (mesh_mode == Some(Mode::Strict) && mesh_reaches) || namespace_is_strict;
    if inherits && has_lax_port {
        rules.push(matching(without_identity()));
    }
    if !rules.is_empty() {
        groups.push(Group { rules });
    }
    Some(denying(&policy_name(policy), &policy.meta.namespace, groups))
}

/// The names of the policies that enforce the PeerAuthentications of a workload.
pub(crate) fn names_for(ctx: &Ctx<'_>, namespace: &str, labels: &Labels) -> Vec<String> {
    let settings = settings(ctx);
    let root = settings.root_namespace();
    let [namespace_mode, mesh_mode] = wide_modes(ctx, namespace, |policy| selector(policy).is_empty());
    let mut is_strict = mesh_mode == Some(Mode::Strict);
    if let Some(mode) = namespace_mode.filter(|mode| *mode != Mode::Unset) {
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
            // Parity: a port with DISABLE is not an exception to a namespace-wide or mesh-wide policy.
            (Mode::Unset, true) => ports.contains(&Mode::Permissive),
            _ => ports.contains(&Mode::Strict),
        };
        if excepts {
            // The policy with exceptions also covers all other ports.
            is_strict = false;
            named = Some(format!("{namespace}/{}", policy_name(&policy)));
        }
    }
    let strict = is_strict.then(|| format!("{root}/{STRICT}"));
    let mut names: Vec<_> = strict.into_iter().chain(named).collect();
    names.sort();
    names
}
