//! Routes of HTTP requests.

mod actions;
mod conflict;
mod cors;
mod destinations;
mod fault;
mod matching;
mod mirror;

use canopus_proto::istio::networking::v1alpha3::HttpRoute;

use super::Context;
use crate::validate::scope::Scope;
use crate::validate::{destination, duration, retry};

pub use actions::{direct_response, redirect, regex_rewrite, rewrite};
pub use cors::check as cors;
pub use fault::{abort, delay, http_status};

/// The rules of this module's parts.
pub(in crate::validate) static CODES: &[&[&crate::validate::Code]] = &[
    actions::CODES,
    conflict::CODES,
    cors::CODES,
    destinations::CODES,
    fault::CODES,
    matching::CODES,
    mirror::CODES,
];

/// Checks one route.
pub fn route(route: &HttpRoute, context: Context, mut scope: Scope<'_>) {
    conflict::check(route, context, scope.again());
    matching::check(&route.r#match, scope.field("match"));
    scope.optional("headers", route.headers.as_ref(), destinations::headers);
    scope.optional("corsPolicy", route.cors_policy.as_ref(), cors);
    scope.optional("fault", route.fault.as_ref(), fault::check);
    mirror::percentages(route, scope.again());
    scope.optional("mirror", route.mirror.as_ref(), destination::check);
    scope.each("mirrors", &route.mirrors, mirror::check);
    scope.optional("redirect", route.redirect.as_ref(), |redirect, scope| {
        actions::redirect(redirect, &route.r#match, scope);
    });
    scope.optional("directResponse", route.direct_response.as_ref(), direct_response);
    scope.optional("retries", route.retries.as_ref(), retry::check);
    scope.optional("rewrite", route.rewrite.as_ref(), rewrite);
    conflict::one_authority(route, scope.again());
    destinations::check(&route.route, context, scope.field("route"));
    duration::optional(route.timeout.as_ref(), scope.field("timeout"));
}
