//! What a route cannot do at once.

use canopus_proto::istio::networking::v1alpha3::HttpRoute;

use crate::text::quoted;
use crate::validate::code::codes;
use crate::validate::header::is_authority;
use crate::validate::scope::Scope;
use crate::validate::virtual_service::Context;

codes! {
    ROOT_CONFLICT: error "http-route-delegates-and-acts", "keep either delegate, or what the route does itself";
    DELEGATE_OF_DELEGATE: error "http-route-delegate-of-delegate", "delegate from a VirtualService with hosts only";
    CONFLICT: error "http-route-conflict", "keep one of the two";
    NOTHING_TO_DO: error "http-route-without-action", "give route, redirect or directResponse";
    AUTHORITY_TWICE: error "http-route-authority-twice", "set the authority in one place";
}

pub(super) fn check(route: &HttpRoute, context: Context, mut scope: Scope<'_>) {
    if route.delegate.is_some() {
        if !context.delegate {
            return root(route, scope);
        }
        let message = "delegate HTTP route cannot contain delegate";
        scope.field("delegate").add(DELEGATE_OF_DELEGATE.says(message));
    }
    let has_route = !route.route.is_empty();
    let action = match (&route.redirect, &route.direct_response) {
        (Some(_), _) => Some("redirect"),
        (None, Some(_)) => Some("direct_response"),
        (None, None) => None,
    };
    match action {
        Some(action) => {
            let others = [
                (has_route, "HTTP route", "route"),
                (route.fault.is_some(), "HTTP route", "fault"),
                (route.rewrite.is_some(), "HTTP route rule", "rewrite"),
                (
                    route.redirect.is_some() && route.direct_response.is_some(),
                    "HTTP route rule",
                    "direct_response",
                ),
            ];
            for (present, rule, other) in others {
                scope.add_if(present, || {
                    CONFLICT.says(format!("{rule} cannot contain both {other} and {action}"))
                });
            }
        }
        None => scope
            .add_if(!has_route, || NOTHING_TO_DO.says("HTTP route, redirect or direct_response is required")),
    }
    scope.add_if(route.mirror.is_some() && !route.mirrors.is_empty(), || {
        CONFLICT.says("HTTP route cannot contain both mirror and mirrors")
    });
}

/// A route that leaves everything to another virtual service.
fn root(route: &HttpRoute, mut scope: Scope<'_>) {
    let name = &route.name;
    scope.field("redirect").add_if(route.redirect.is_some(), || {
        ROOT_CONFLICT.says(format!("root HTTP route {name} must not specify redirect"))
    });
    scope.field("route").add_if(!route.route.is_empty(), || {
        ROOT_CONFLICT.says(format!("root HTTP route {name} must not specify route"))
    });
}

/// The authority of a request is set once: by the rewrite, or by a header operation.
pub(super) fn one_authority(route: &HttpRoute, mut scope: Scope<'_>) {
    let rewritten = route.rewrite.as_ref().map_or("", |rewrite| &rewrite.authority);
    let Some(request) = route.headers.as_ref().and_then(|headers| headers.request.as_ref()) else { return };
    let mut current = rewritten;
    for (name, value) in request.set.iter().chain(&request.add) {
        if !is_authority(name) {
            continue;
        }
        if !current.is_empty() {
            let (have, wanted) = (quoted(current), quoted(value));
            let message = format!(
                "authority header cannot be set multiple times: have {have}, attempting to set {wanted}"
            );
            return scope
                .field("headers")
                .field("request")
                .add(AUTHORITY_TWICE.says(message).with_value(value));
        }
        current = value;
    }
}
