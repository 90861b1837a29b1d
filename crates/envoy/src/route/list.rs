//! Encoded routes.

use canopus_proto::envoy::config::route::v3::Route;

use super::matching::is_catch_all;
use crate::pieces::Pieces;

/// The field of a virtual host that its routes are in.
const ROUTES: u32 = 3;

/// Routes as a virtual host has them, one after the other. A route is a large message, so it is encoded as soon as it is
/// made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteList {
    entries: Pieces,
    /// Where the first route begins that takes every request.
    catch_all: Option<usize>,
}

impl RouteList {
    /// Adds a route.
    pub(crate) fn push(&mut self, route: &Route) {
        if is_catch_all(route) {
            self.mark_catch_all();
        }
        self.entries.message(ROUTES, route);
    }

    /// Adds a route that takes every request, encoded already.
    pub(super) fn push_catch_all(&mut self, route: &Pieces) {
        self.mark_catch_all();
        self.entries.body(ROUTES, route.as_slice());
    }

    /// Adds the routes of another list.
    pub(crate) fn append(&mut self, other: &Self) {
        if let Some(at) = other.catch_all {
            self.catch_all.get_or_insert(self.entries.as_slice().len() + at);
        }
        self.entries.append(other.as_slice());
    }

    /// Whether there are no routes.
    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Whether there is a route that takes every request.
    pub(crate) fn is_complete(&self) -> bool {
        self.catch_all.is_some()
    }

    /// All routes, as fields of a virtual host.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.entries.as_slice()
    }

    /// The routes before the one that takes every request, and the rest.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        let all = self.as_slice();
        all.split_at(self.catch_all.unwrap_or(all.len()))
    }

    fn mark_catch_all(&mut self) {
        self.catch_all.get_or_insert(self.entries.as_slice().len());
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::Message;
    use canopus_proto::envoy::config::route::v3::{RouteMatch, VirtualHost, route_match::PathSpecifier};

    use super::*;

    fn route(name: &str, path: &str) -> Route {
        let path = PathSpecifier::Prefix(path.to_owned());
        let condition = RouteMatch { path_specifier: Some(path), ..Default::default() };
        Route { name: name.to_owned(), r#match: Some(condition), ..Default::default() }
    }

    fn names(routes: &[u8]) -> Vec<String> {
        VirtualHost::decode(routes).unwrap().routes.into_iter().map(|route| route.name).collect()
    }

    #[test]
    fn list_is_split_before_the_route_that_takes_everything() {
        let mut routes = RouteList::default();
        assert!(routes.is_empty());
        routes.push(&route("a", "/a"));
        assert!(!routes.is_complete() && routes.split().1.is_empty());
        routes.push(&route("all", "/"));
        let (specific, rest) = routes.split();
        assert_eq!((names(specific), names(rest)), (vec!["a".to_owned()], vec!["all".to_owned()]));
        let mut longer = RouteList::default();
        longer.push(&route("b", "/b"));
        longer.append(&routes);
        assert_eq!(names(longer.split().0), ["b", "a"]);
    }
}
