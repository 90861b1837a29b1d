//! Virtual hosts whose routes are encoded.

use bytes::Bytes;
use canopus_proto::envoy::config::route::v3::VirtualHost;

use crate::pieces::Pieces;
use crate::route::RouteList;

/// The fields of a virtual host that stand before its routes.
mod field {
    pub(super) const NAME: u32 = 1;
    pub(super) const DOMAINS: u32 = 2;
}

/// Room for what is small.
const ROOM: usize = 32;

/// A virtual host. Tables put it together with others by copying bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    /// Its name.
    pub(crate) name: String,
    /// The hosts that requests to it name.
    pub(crate) domains: Vec<String>,
    /// All other fields.
    rest: Bytes,
}

impl Host {
    /// A virtual host with these routes, and besides them what `other` says.
    pub(crate) fn new(name: String, domains: Vec<String>, routes: &RouteList, other: &VirtualHost) -> Self {
        Self::of_parts(name, domains, [routes.as_slice()], other)
    }

    /// The same, of routes in several parts.
    pub(crate) fn of_parts<'a>(
        name: String,
        domains: Vec<String>,
        routes: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
        other: &VirtualHost,
    ) -> Self {
        let routes = routes.into_iter();
        let mut rest = Pieces::with_capacity(routes.clone().map(<[u8]>::len).sum::<usize>() + ROOM);
        routes.for_each(|part| rest.append(part));
        rest.fields(other);
        Self { name, domains, rest: rest.into_vec().into() }
    }

    /// About how many bytes it is.
    pub(crate) fn size(&self) -> usize {
        let domains = self.domains.iter().map(|domain| domain.len() + 2).sum::<usize>();
        self.name.len() + domains + self.rest.len() + ROOM
    }

    /// The encoded virtual host.
    pub(crate) fn encode(&self) -> Pieces {
        let mut host = Pieces::with_capacity(self.size());
        host.text(field::NAME, &self.name);
        self.domains.iter().for_each(|domain| host.body(field::DOMAINS, domain.as_bytes()));
        host.append(&self.rest);
        host
    }
}

impl From<VirtualHost> for Host {
    fn from(mut host: VirtualHost) -> Self {
        let (name, domains) = (std::mem::take(&mut host.name), std::mem::take(&mut host.domains));
        Self { name, domains, rest: Pieces::of(&host).into_vec().into() }
    }
}
