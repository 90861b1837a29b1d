//! Patches of listeners, and of what is in them.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_engine::Ctx;
use canopus_proto::Message;
use canopus_proto::envoy::config::core::v3::address::Address;
use canopus_proto::envoy::config::core::v3::socket_address::PortSpecifier;
use canopus_proto::envoy::config::listener::v3::{Listener, ListenerFilter, listener_filter::ConfigType};
use canopus_proto::istio::networking::v1alpha3::envoy_filter::ListenerMatch;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;
use canopus_proto::resource::Resource;

use super::compile::{Patch, Patches};
use super::tally::Tally;
use super::{Patched, Side, filter_chain, list, merge, patches, route, sound};
use crate::audience::{Build, PatchSet};
use crate::pool;

/// Listeners after their patches; with `additions`, also those that patches add to this side.
pub(crate) fn listeners(
    ctx: &Ctx<'_>,
    (set, build): (&PatchSet, &Build),
    side: Side,
    generated: Arc<Vec<Resource>>,
    additions: bool,
) -> Patched {
    let patches = patches(ctx, set);
    if !patches.touch_listeners() {
        return Patched::untouched(generated);
    }
    let mut tally = Tally::default();
    let mut resources = Vec::new();
    for resource in generated.iter() {
        match Listener::decode(resource.body.clone()) {
            Ok(listener) => {
                let encode = |patched: Listener| match patched == listener {
                    // A listener that no patch is for stays the very bytes that others have.
                    true => resource.clone(),
                    false => pool::LISTENERS.share(Resource::encode(patched.name.as_str(), &patched)),
                };
                resources.extend(patched(&patches, build, side, &listener, &mut tally).map(encode));
            }
            Err(_) => resources.push(resource.clone()),
        }
    }
    if additions {
        for patch in &patches.listeners {
            let Some(added) = patch.addition(side) else { continue };
            if !build.is_known() || sound::is_sound(build, added) {
                tally.note(&patch.id, true);
                resources.push(pool::LISTENERS.share(Resource::encode(added.name.as_str(), added)));
            } else {
                tally.refuse(&patch.id);
            }
        }
    }
    Patched { resources: Arc::new(resources), tally }
}

/// A listener after its patches, less those after which the proxy would refuse it; `None` if one of them removes it.
fn patched(
    patches: &Patches,
    build: &Build,
    side: Side,
    generated: &Listener,
    tally: &mut Tally,
) -> Option<Listener> {
    let attempt = |patches: &Patches| {
        let mut patching = Patching { patches, side, tally: Tally::default() };
        let mut listener = generated.clone();
        if side == Side::Inbound {
            route::inline_tables(&mut patching, &mut listener);
        }
        let kept = patching.listener(&mut listener);
        (kept.then_some(listener), patching.tally)
    };
    let (mut listener, mut noted) = attempt(patches);
    let is_sound =
        |listener: &Option<Listener>| listener.as_ref().is_none_or(|one| sound::is_sound(build, one));
    // Parity: a proxy that does not say what it has gets what is asked for.
    if build.is_known() && !is_sound(&listener) && sound::is_sound(build, generated) {
        // One patch after another: a patch may need an earlier one, and must not suffer for a later one.
        let mut left_out: BTreeSet<_> = patches.listener_patches().into_iter().collect();
        for id in patches.listener_patches() {
            left_out.remove(&id);
            if !is_sound(&attempt(&patches.without(&left_out)).0) {
                left_out.insert(id);
            }
        }
        (listener, noted) = attempt(&patches.without(&left_out));
        left_out.iter().for_each(|id| noted.refuse(id));
    }
    tally.add(&noted);
    listener
}

/// The patches of one side, being applied.
pub(super) struct Patching<'a> {
    pub(super) patches: &'a Patches,
    pub(super) side: Side,
    pub(super) tally: Tally,
}

impl Patching<'_> {
    /// Patches a listener; `false` if it is removed.
    fn listener(&mut self, listener: &mut Listener) -> bool {
        for patch in self.patches.listeners.iter().filter(|patch| patch.operation != Operation::Add) {
            let matches = patch.is_on(self.side)
                && patch.listener().is_none_or(|m| has_name(m, listener) && has_port(m, listener));
            if matches && patch.operation == Operation::Remove {
                self.tally.note(&patch.id, true);
                return false;
            }
            let value = patch.value.as_ref().filter(|_| matches && patch.is_merge());
            let merged = value.is_some_and(|value| merge::into(listener, value, patch.operation));
            self.tally.note(&patch.id, merged);
        }
        self.listener_filters(listener);
        filter_chain::patch(self, listener);
        // An empty name is a listener that a merge made useless.
        !listener.name.is_empty()
    }

    fn listener_filters(&mut self, listener: &mut Listener) {
        for patch in &self.patches.listener_filters {
            if !is_meant(patch, self.side, listener) {
                self.tally.note(&patch.id, false);
                continue;
            }
            let name = patch.listener().map(|m| m.listener_filter.as_str()).filter(|name| !name.is_empty());
            let picks = |filter: &ListenerFilter| name == Some(filter.name.as_str());
            let filters = &mut listener.listener_filters;
            let applied = match (patch.operation, name, &patch.value) {
                (Operation::Merge, Some(_), Some(value)) => merge_filters(filters, value),
                (Operation::Merge, ..) => false,
                (operation, name, value) => {
                    let picks = name.map(|_| &picks as &dyn Fn(&ListenerFilter) -> bool);
                    list::edit(filters, operation, value.as_ref(), picks)
                }
            };
            self.tally.note(&patch.id, applied);
        }
    }
}

/// Merges a patch into listener filters.
///
/// Parity: into one after the other, whatever their names, up to the first of another type.
fn merge_filters(filters: &mut [ListenerFilter], patch: &ListenerFilter) -> bool {
    let Some(ConfigType::TypedConfig(patch)) = &patch.config_type else { return false };
    let mut applied = false;
    for filter in filters {
        let Some(ConfigType::TypedConfig(config)) = &mut filter.config_type else { continue };
        match merge::packed(config, patch) {
            Some(merged) => {
                *config = merged;
                applied = true;
            }
            None => break,
        }
    }
    applied
}

/// The listeners that redirected traffic comes to: their chains, not they, have the ports of services.
pub(super) fn is_virtual(listener: &Listener) -> bool {
    matches!(listener.name.as_str(), "virtualInbound" | "virtualOutbound")
}

/// Whether a patch of something inside a listener may be for this one.
pub(super) fn is_meant<M>(patch: &Patch<M>, side: Side, listener: &Listener) -> bool {
    let is_listener = |wanted: &ListenerMatch| {
        has_name(wanted, listener) && (is_virtual(listener) || has_port(wanted, listener))
    };
    patch.is_on(side) && patch.listener().is_none_or(is_listener)
}

fn has_name(wanted: &ListenerMatch, listener: &Listener) -> bool {
    wanted.name.is_empty() || wanted.name == listener.name
}

fn has_port(wanted: &ListenerMatch, listener: &Listener) -> bool {
    let port = match listener.address.as_ref().and_then(|address| address.address.as_ref()) {
        Some(Address::SocketAddress(socket)) => socket.port_specifier.as_ref(),
        _ => None,
    };
    let number = port.map(|port| match port {
        PortSpecifier::PortValue(number) => *number,
        PortSpecifier::NamedPort(_) => 0,
    });
    wanted.port_number == 0 || number == Some(wanted.port_number)
}
