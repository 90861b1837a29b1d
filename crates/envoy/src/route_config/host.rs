//! Virtual hosts whose routes are encoded.

use std::sync::Arc;

use canopus_proto::Any;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::envoy::config::route::v3::VirtualHost;
use canopus_proto::envoy::config::route::v3::virtual_host::TlsRequirementType;
use canopus_proto::fields::{route_configuration, virtual_host};
use canopus_proto::wire::{Encoded, EncodedFields as _, ProtoWriter};

use crate::route::{RouteList, session};

/// Room for traits that are not out of the ordinary.
const ROOM: usize = 8;

/// A virtual host. Tables put it together with others by copying bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) name: Arc<str>,
    /// The hosts that requests to it name.
    pub(crate) domains: Vec<Arc<str>>,
    /// All other fields.
    rest: Encoded<VirtualHost>,
}

/// The settings of a virtual host besides its names and routes.
#[derive(Default)]
pub(crate) struct Traits {
    /// Whether plain requests are redirected.
    pub(crate) requires_tls: bool,
    /// Whether requests carry `x-envoy-attempt-count`.
    pub(crate) counts_attempts: bool,
    /// The session filter's configuration.
    pub(crate) session: Option<Any>,
}

impl Host {
    /// A virtual host with these routes.
    pub(crate) fn new(name: Arc<str>, domains: Vec<Arc<str>>, routes: &RouteList, traits: &Traits) -> Self {
        Self::with_route_parts(name, domains, [routes.as_slice()], traits)
    }

    /// The same, of routes that nobody else has.
    pub(super) fn with_own_routes(
        name: Arc<str>,
        domains: Vec<Arc<str>>,
        routes: RouteList,
        traits: &Traits,
    ) -> Self {
        let mut rest = routes.into_writer();
        traits.write(&mut rest);
        Self { name, domains, rest: rest.finish() }
    }

    /// The same, of routes in several parts.
    pub(crate) fn with_route_parts<'a>(
        name: Arc<str>,
        domains: Vec<Arc<str>>,
        routes: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
        traits: &Traits,
    ) -> Self {
        let routes = routes.into_iter();
        let mut rest = ProtoWriter::with_capacity(routes.clone().map(<[u8]>::len).sum::<usize>() + ROOM);
        routes.for_each(|part| rest.append_part(part));
        traits.write(&mut rest);
        Self { name, domains, rest: rest.finish() }
    }

    /// How many bytes its fields are.
    fn size(&self) -> usize {
        let domains = self.domains.iter().map(|domain| virtual_host::DOMAINS.text_size(domain.len()));
        virtual_host::NAME.text_size(self.name.len()) + domains.sum::<usize>() + self.rest.len()
    }

    /// How many bytes it takes in a table.
    pub(super) fn size_in_table(&self) -> usize {
        route_configuration::VIRTUAL_HOSTS.size(self.size())
    }

    /// Adds it to a table.
    pub(super) fn write(&self, table: &mut ProtoWriter<RouteConfiguration>) {
        table.nested_of_exactly(route_configuration::VIRTUAL_HOSTS, self.size(), |host| {
            host.string(virtual_host::NAME, &self.name);
            self.domains.iter().for_each(|domain| host.string(virtual_host::DOMAINS, domain));
            host.append(&self.rest);
        });
    }
}

impl Traits {
    fn write(&self, host: &mut ProtoWriter<VirtualHost>) {
        if self.requires_tls {
            host.enumeration(virtual_host::REQUIRE_TLS, TlsRequirementType::All);
        }
        host.bool(virtual_host::INCLUDE_REQUEST_ATTEMPT_COUNT, self.counts_attempts);
        if let Some(session) = &self.session {
            host.entry(virtual_host::TYPED_PER_FILTER_CONFIG, session::FILTER, session);
        }
    }
}

impl From<VirtualHost> for Host {
    fn from(mut host: VirtualHost) -> Self {
        let (name, domains) = (std::mem::take(&mut host.name), std::mem::take(&mut host.domains));
        Self {
            name: name.into(),
            domains: domains.into_iter().map(Into::into).collect(),
            rest: Encoded::new(&host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traits_are_written_as_the_message_they_stand_for() {
        let session = Any::pack(&VirtualHost { name: "x".repeat(200), ..Default::default() });
        let traits = Traits { requires_tls: true, counts_attempts: true, session: Some(session.clone()) };
        let host = Host::new("a:80".into(), vec!["a".into()], &RouteList::default(), &traits);
        let message = VirtualHost {
            name: "a:80".into(),
            domains: vec!["a".into()],
            require_tls: TlsRequirementType::All as i32,
            include_request_attempt_count: true,
            typed_per_filter_config: [(session::FILTER.to_owned(), session)].into(),
            ..Default::default()
        };
        assert_eq!(host, message.into());
        let plain = Host::new("".into(), Vec::new(), &RouteList::default(), &Traits::default());
        assert_eq!((plain.size(), plain), (0, VirtualHost::default().into()));
    }
}
