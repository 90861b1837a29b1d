//! Converting the paths of Ingresses to routes, and their precedence.

use std::cmp::Reverse;

use canopus_api::kube::{IngressBackend, IngressRule, PathType, Service};
use canopus_api::{Kind, ObjectKey};
use canopus_engine::Ctx;
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{
    Destination, HttpMatchRequest, HttpRoute, HttpRouteDestination, PortSelector, StringMatch,
};

use crate::world::{Origin, object, settings};

/// Converts the paths of a rule. Paths whose backend cannot be resolved are dropped.
pub(super) fn routes(ctx: &Ctx<'_>, ingress: &Origin, rule: &IngressRule) -> Vec<HttpRoute> {
    let paths = rule.http.iter().flat_map(|http| &http.paths);
    let route = |path: &canopus_api::kube::IngressPath| {
        let uri = match &path.path_type {
            PathType::Exact => Some(MatchType::Exact(path.path.to_string())),
            PathType::Prefix => Some(MatchType::Prefix(path.path.to_string())),
            PathType::ImplementationSpecific | PathType::Other(_) => loose(&path.path),
        };
        let found = uri.map(|uri| HttpMatchRequest {
            uri: Some(StringMatch { match_type: Some(uri) }),
            ..Default::default()
        });
        Some(HttpRoute {
            r#match: found.into_iter().collect(),
            route: vec![destination(ctx, ingress, &path.backend)?],
            ..Default::default()
        })
    };
    paths.filter_map(route).collect()
}

/// Parses an implementation-specific path: a star at the end makes it a prefix, and a star alone matches everything.
fn loose(path: &str) -> Option<MatchType> {
    if matches!(path, "" | "*" | "/*" | ".*") {
        return None;
    }
    let prefix = path.strip_suffix(".*").or_else(|| path.strip_suffix("/*"));
    Some(match prefix {
        Some(prefix) => MatchType::Prefix(prefix.to_owned()),
        None => MatchType::Exact(path.to_owned()),
    })
}

fn destination(ctx: &Ctx<'_>, ingress: &Origin, backend: &IngressBackend) -> Option<HttpRouteDestination> {
    let service = backend.service.as_ref()?;
    let number = match service.port.number {
        0 => named_port(ctx, ingress, &service.name, &service.port.name)?,
        number => number.into(),
    };
    let host = format!("{}.{}.svc.{}", service.name, ingress.namespace(), settings(ctx).domain);
    Some(HttpRouteDestination {
        destination: Some(Destination { host, port: Some(PortSelector { number }), ..Default::default() }),
        weight: 100,
        ..Default::default()
    })
}

fn named_port(ctx: &Ctx<'_>, ingress: &Origin, service: &str, name: &str) -> Option<u32> {
    let key = ObjectKey::new(Kind::Service, ingress.namespace(), service);
    let service = object::<Service>(ctx, &Origin::new(ingress.cluster.clone(), key))?;
    let port = service.spec.ports.iter().find(|port| *port.name == *name)?;
    Some(u32::from(port.port))
}

/// Sorts routes by the precedence that Kubernetes defines: longer paths first, then exact before prefix.
pub(super) fn sort(routes: &mut [HttpRoute]) {
    routes.sort_by_key(|route| {
        let uri = route.r#match.first().and_then(|found| found.uri.as_ref()?.match_type.as_ref());
        Reverse(match uri {
            Some(MatchType::Exact(path)) => (path.len(), true),
            Some(MatchType::Prefix(path) | MatchType::Regex(path)) => (path.len(), false),
            None => (0, false),
        })
    });
}
