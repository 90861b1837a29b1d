//! Where requests go, in which shares, and what is changed in their headers.

use canopus_proto::istio::networking::v1alpha3::headers::HeaderOperations;
use canopus_proto::istio::networking::v1alpha3::{Headers, HttpRouteDestination};

use crate::validate::code::{Fault, codes};
use crate::validate::scope::Scope;
use crate::validate::virtual_service::{Context, l4};
use crate::validate::{destination, header, percent};

codes! {
    NO_DESTINATION: error "http-route-without-destination", "give a destination";
}

/// Checks the destinations of a route. `scope` is the list's.
pub(super) fn check(routes: &[HttpRouteDestination], context: Context, mut scope: Scope<'_>) {
    for (index, route) in routes.iter().enumerate() {
        let mut scope = scope.item(index);
        scope
            .field("destination")
            .add_if(route.destination.is_none(), || NO_DESTINATION.says("destination is required").listed());
        scope.optional("headers", route.headers.as_ref(), headers);
        if !context.from_kubernetes {
            scope.optional("destination", route.destination.as_ref(), destination::check);
        }
        scope.field("weight").require(percent::weight(route.weight));
    }
    l4::total_weight(routes.iter().map(|route| route.weight), scope);
}

/// Checks changes to headers.
pub(super) fn headers(headers: &Headers, mut scope: Scope<'_>) {
    scope.optional("request", headers.request.as_ref(), |operations, scope| {
        changes(operations, header::settable_on_request, scope);
    });
    scope.optional("response", headers.response.as_ref(), |operations, scope| {
        changes(operations, header::changeable, scope);
    });
}

/// Checks what is added, set and removed; who may be added and set depends on the direction.
fn changes(operations: &HeaderOperations, settable: fn(&str) -> Result<(), Fault>, mut scope: Scope<'_>) {
    for (field, entries) in [("add", &operations.add), ("set", &operations.set)] {
        scope.each_entry(field, entries, |name, value, mut scope| {
            scope.require(settable(name));
            scope.require(header::value(value));
        });
    }
    scope.each("remove", &operations.remove, |name, mut scope| scope.require(header::changeable(name)));
}
