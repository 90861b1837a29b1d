//! Clusters that are of no service.
//!
//! Which of them a proxy has follows from its kind and its settings. Each is generated for the facts that it depends on, so
//! that proxies of all namespaces, and of several kinds, share it.

use canopus_api::node::NodeKind;
use canopus_engine::{Ctx, Query};
use canopus_mesh::audience::Addressing;
use canopus_mesh::scope;
use canopus_mesh::world::settings;
use canopus_proto::resource::Resource;
use canopus_runtime::flags::{AMBIENT_ENABLE_MULTI_NETWORK, PILOT_ENABLE_SIDECAR_LISTENING_HBONE};

use super::traits::ClientTraits;
use super::{Env, dns, fixed, hbone, waypoint};
use crate::audience::{Certificates, Resolver};
use crate::{dns_cache, tunnel};

/// A cluster, or two that belong together, with all that it depends on of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Constant {
    /// Where traffic goes that may go nowhere.
    BlackHole,
    /// Where traffic goes to destinations that no service has.
    Passthrough(ClientTraits),
    /// Where traffic goes to ports of the workload that no service has.
    InboundPassthrough(ClientTraits),
    /// Where traffic goes to hosts that no service has, which the proxy resolves.
    UnknownHosts(ClientTraits, Addressing, Resolver),
    /// The listener that takes what came out of a tunnel.
    MainInternal,
    /// Where a waypoint hands connections over to be tunnelled.
    Encapsulate,
    /// The same for the inner tunnels of a gateway between networks.
    EncapsulateInner,
    /// Where a gateway between networks passes inner tunnels on.
    ForwardInner,
    /// Opens tunnels, with the prefix of the identities it accepts if not all are.
    Originate(Certificates, Option<String>),
    /// Opens tunnels within tunnels.
    OriginateDouble(Certificates),
    /// The user's server of credentials.
    CredentialServer,
}

/// The clusters of no service that a proxy has, in their order.
pub(super) fn clusters(env: &Env<'_>, traits: &ClientTraits) -> Vec<Constant> {
    let (flags, audience) = (&env.settings.flags, env.audience);
    let kind = audience.role.kind;
    let mut clusters = match kind {
        NodeKind::Sidecar => sidecar_constants(env, traits),
        NodeKind::Waypoint => waypoint_constants(env),
        _ => vec![Constant::BlackHole],
    };
    if tunnel::opens_tunnels(flags, audience.tunnels) && kind != NodeKind::Waypoint {
        clusters.push(Constant::Originate(audience.certificates.clone(), None));
    }
    if tunnel::crosses_networks(flags, audience.role, audience.tunnels) {
        clusters.push(Constant::OriginateDouble(audience.certificates.clone()));
    }
    if traits.credential_socket {
        clusters.push(Constant::CredentialServer);
    }
    clusters
}

fn sidecar_constants(env: &Env<'_>, traits: &ClientTraits) -> Vec<Constant> {
    let audience = env.audience;
    let terms = scope::scope_settings(env.ctx, &audience.caller.scope);
    let mut clusters = vec![
        Constant::BlackHole,
        Constant::Passthrough(traits.clone()),
        Constant::InboundPassthrough(traits.clone()),
    ];
    if dns_cache::resolves_unknown_hosts(audience.role.kind, &terms.outbound_policy) {
        let (addressing, resolver) = (audience.addressing.clone(), audience.resolver.clone());
        clusters.push(Constant::UnknownHosts(traits.clone(), addressing, resolver));
    }
    if env.flag(PILOT_ENABLE_SIDECAR_LISTENING_HBONE) && audience.tunnels.takes {
        clusters.push(Constant::MainInternal);
    }
    clusters
}

fn waypoint_constants(env: &Env<'_>) -> Vec<Constant> {
    let crosses = env.audience.role.is_east_west_gateway;
    let encapsulate = if crosses { Constant::EncapsulateInner } else { Constant::Encapsulate };
    let mut clusters = vec![Constant::MainInternal, encapsulate];
    if crosses && env.flag(AMBIENT_ENABLE_MULTI_NETWORK) {
        clusters.extend([Constant::ForwardInner, Constant::BlackHole]);
    } else {
        clusters.push(Constant::Originate(env.audience.certificates.clone(), waypoint::peers(env)));
    }
    clusters
}

/// A cluster of no service.
pub(super) struct ConstantCluster;

impl Query for ConstantCluster {
    const NAME: &'static str = "constant_cluster";
    type Key = Constant;
    type Value = Vec<Resource>;

    fn run(ctx: &Ctx<'_>, cluster: &Constant) -> Vec<Resource> {
        let settings = &*settings(ctx);
        let flags = &settings.flags;
        vec![match cluster {
            Constant::BlackHole => fixed::black_hole(settings),
            Constant::Passthrough(traits) => fixed::passthrough(settings, traits),
            Constant::InboundPassthrough(traits) => fixed::inbound_passthrough(settings, traits),
            Constant::UnknownHosts(traits, addressing, resolver) => {
                dns::unknown_hosts(settings, traits, addressing, resolver)
            }
            Constant::MainInternal => hbone::main_internal(flags),
            Constant::Encapsulate => hbone::encapsulate(flags),
            Constant::EncapsulateInner => hbone::encapsulate_inner(flags),
            Constant::ForwardInner => hbone::forward_inner(settings),
            Constant::Originate(certificates, peers) => {
                hbone::originate(settings, certificates, peers.as_deref())
            }
            Constant::OriginateDouble(certificates) => {
                return hbone::originate_double(settings, certificates).into();
            }
            Constant::CredentialServer => fixed::credential_server(settings),
        }]
    }
}
