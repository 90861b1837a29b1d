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
        routes: impl IntoIterator<Item = &'a [u8]>,
        other: &VirtualHost,
    ) -> Self {
        let mut rest = Pieces::default();
        routes.into_iter().for_each(|part| rest.append(part));
        rest.fields(other);
        Self { name, domains, rest: rest.into_vec().into() }
    }

    /// The encoded virtual host.
    pub(crate) fn encode(&self) -> Pieces {
        let mut host = Pieces::default();
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
