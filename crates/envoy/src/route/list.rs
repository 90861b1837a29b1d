//! Encoded routes.

use canopus_proto::envoy::config::route::v3::{Route, VirtualHost};
use canopus_proto::fields::virtual_host;
use canopus_proto::wire::{EncodedFields, ProtoWriter};

/// Routes as a virtual host has them, one after the other. A route is a large message, so it is encoded as soon as it is
/// made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteList {
    entries: ProtoWriter<VirtualHost>,
    /// Where the first route begins that takes every request.
    catch_all: Option<usize>,
}

impl RouteList {
    /// An empty list with room for so many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { entries: ProtoWriter::with_capacity(bytes), catch_all: None }
    }

    /// Adds a route of about so many bytes whose fields are written in place, given whether it takes every request.
    pub(super) fn push(
        &mut self,
        takes_all: bool,
        expected: usize,
        write: impl FnOnce(&mut ProtoWriter<Route>),
    ) {
        if takes_all {
            self.catch_all.get_or_insert(self.entries.len());
        }
        self.entries.nested_of_about(virtual_host::ROUTES, expected, write);
    }

    /// Adds the routes of another list.
    pub(crate) fn append(&mut self, other: &Self) {
        if let Some(at) = other.catch_all {
            self.catch_all.get_or_insert(self.entries.len() + at);
        }
        self.entries.append(other);
    }

    /// Whether there are no routes.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A virtual host that has these routes and nothing else.
    pub(crate) fn into_writer(self) -> ProtoWriter<VirtualHost> {
        self.entries
    }

    /// The routes before the one that takes every request, and the rest.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        let all = self.as_slice();
        all.split_at(self.catch_all.unwrap_or(all.len()))
    }
}

impl EncodedFields<VirtualHost> for RouteList {
    fn as_slice(&self) -> &[u8] {
        self.entries.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::Message;

    use super::*;

    fn route(name: &str) -> impl FnOnce(&mut ProtoWriter<Route>) {
        let route = Route { name: name.to_owned(), ..Default::default() };
        move |fields| fields.append_message(&route)
    }

    fn names(routes: &[u8]) -> Vec<String> {
        VirtualHost::decode(routes).unwrap().routes.into_iter().map(|route| route.name).collect()
    }

    #[test]
    fn list_is_split_before_the_route_that_takes_everything() {
        let mut routes = RouteList::default();
        assert!(routes.is_empty());
        routes.push(false, 0, route("a"));
        assert!(routes.split().1.is_empty());
        routes.push(true, 0, route("all"));
        let (specific, rest) = routes.split();
        assert_eq!((names(specific), names(rest)), (vec!["a".to_owned()], vec!["all".to_owned()]));
        let mut longer = RouteList::default();
        longer.push(false, 0, route("b"));
        longer.append(&routes);
        assert_eq!(names(longer.split().0), ["b", "a"]);
    }
}
