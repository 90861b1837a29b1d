//! Patches of virtual hosts and of their routes.

use std::collections::BTreeSet;

use canopus_proto::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost, route::Action};
use canopus_proto::istio::networking::v1alpha3::envoy_filter::patch::Operation;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::route_configuration_match::route_match::Action as WantedAction;
use canopus_proto::istio::networking::v1alpha3::envoy_filter::route_configuration_match::{
    RouteMatch, VirtualHostMatch,
};

use super::compile::{Patch, Patches};
use super::route::{TableUse, is_meant};
use super::tally::Tally;
use super::{list, merge};

/// Patches the virtual hosts of a table and adds some.
pub(super) fn patch(patches: &Patches, place: &TableUse, table: &mut RouteConfiguration, tally: &mut Tally) {
    let name = table.name.clone();
    let mut patching = Patching { patches, place, table: &name, tally };
    let mut removed = BTreeSet::new();
    for host in &mut table.virtual_hosts {
        if !patching.host(host) {
            removed.insert(host.name.clone());
        }
    }
    for patch in patches.virtual_hosts.iter().filter(|patch| patch.operation == Operation::Add) {
        let value = patch.value.as_ref().filter(|_| is_meant(patch, place, &name));
        patching.tally.note(&patch.id, value.is_some());
        table.virtual_hosts.extend(value.cloned());
    }
    table.virtual_hosts.retain(|host| !removed.contains(&host.name));
}

struct Patching<'a> {
    patches: &'a Patches,
    place: &'a TableUse,
    table: &'a str,
    tally: &'a mut Tally,
}

impl Patching<'_> {
    /// Patches a virtual host; `false` if it is removed.
    fn host(&mut self, host: &mut VirtualHost) -> bool {
        for patch in self.patches.virtual_hosts.iter().filter(|patch| patch.operation != Operation::Add) {
            let matches = self.is_for(patch, host);
            if matches && patch.operation == Operation::Remove {
                self.tally.note(&patch.id, true);
                return false;
            }
            let applied = match &patch.value {
                Some(value) if matches && patch.is_merge() => merge::into(host, value, patch.operation),
                Some(value) if matches && patch.operation == Operation::Replace => {
                    host.clone_from(value);
                    true
                }
                _ => false,
            };
            self.tally.note(&patch.id, applied);
        }
        self.routes(host);
        true
    }

    fn routes(&mut self, host: &mut VirtualHost) {
        let mut routes = std::mem::take(&mut host.routes);
        routes.retain_mut(|route| self.route(host, route));
        for patch in &self.patches.routes {
            if patch.is_merge() || matches!(patch.operation, Operation::Remove | Operation::Replace) {
                continue;
            }
            let applied = self.is_for(patch, host) && insert(&mut routes, patch);
            self.tally.note(&patch.id, applied);
        }
        host.routes = routes;
    }

    /// Patches a route; `false` if it is removed.
    fn route(&mut self, host: &VirtualHost, route: &mut Route) -> bool {
        for patch in &self.patches.routes {
            let removes = patch.operation == Operation::Remove;
            if !removes && !patch.is_merge() {
                continue;
            }
            let matches =
                self.is_for(patch, host) && route_match(patch).is_none_or(|wanted| is_route(wanted, route));
            if matches && removes {
                self.tally.note(&patch.id, true);
                return false;
            }
            let value = patch.value.as_ref().filter(|_| matches);
            let merged = value.is_some_and(|value| merge::into(route, value, patch.operation));
            self.tally.note(&patch.id, merged);
        }
        true
    }

    fn is_for<M>(&self, patch: &Patch<M>, host: &VirtualHost) -> bool {
        is_meant(patch, self.place, self.table)
            && host_match(patch).is_none_or(|wanted| {
                (wanted.name.is_empty() || wanted.name == host.name)
                    && (wanted.domain_name.is_empty() || host.domains.contains(&wanted.domain_name))
            })
    }
}

fn insert(routes: &mut Vec<Route>, patch: &Patch<Route>) -> bool {
    let wanted = route_match(patch);
    let picks = |route: &Route| wanted.is_some_and(|wanted| is_route(wanted, route));
    // A route goes first only where the one it names is.
    if patch.operation == Operation::InsertFirst && wanted.is_some() && !routes.iter().any(picks) {
        return false;
    }
    let picks = wanted.map(|_| &picks as &dyn Fn(&Route) -> bool);
    list::edit(routes, patch.operation, patch.value.as_ref(), picks)
}

fn host_match<M>(patch: &Patch<M>) -> Option<&VirtualHostMatch> {
    patch.route_configuration()?.vhost.as_ref()
}

fn route_match(patch: &Patch<Route>) -> Option<&RouteMatch> {
    host_match(patch)?.route.as_ref()
}

fn is_route(wanted: &RouteMatch, route: &Route) -> bool {
    let does = match (&route.action, wanted.action()) {
        (_, WantedAction::Any) => true,
        (Some(Action::Route(_)), wanted) => wanted == WantedAction::Route,
        (Some(Action::Redirect(_)), wanted) => wanted == WantedAction::Redirect,
        (Some(Action::DirectResponse(_)), wanted) => wanted == WantedAction::DirectResponse,
        _ => true,
    };
    (wanted.name.is_empty() || wanted.name == route.name) && does
}
