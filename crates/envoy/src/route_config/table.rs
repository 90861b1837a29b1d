//! A route table before it is encoded.

use std::sync::{Arc, LazyLock};

use canopus_proto::envoy::config::route::v3::RouteConfiguration;
use canopus_proto::fields::route_configuration;
use canopus_proto::resource::Resource;
use canopus_proto::wire::{Encoded, ProtoWriter};

use super::Host;
use crate::pool;

/// A route table, of which some virtual hosts may be shared with other tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    name: Arc<str>,
    /// The first virtual hosts.
    shared: Arc<Vec<Host>>,
    /// The other virtual hosts.
    own: Vec<Host>,
    /// All other fields.
    settings: Encoded<RouteConfiguration>,
}

impl Table {
    /// A table that shares nothing.
    pub(crate) fn new(name: &str, own: Vec<Host>, settings: RouteConfiguration) -> Self {
        let settings = Encoded::new(&settings);
        Self { name: name.into(), shared: Arc::default(), own, settings }
    }

    /// The table of a port of an application.
    pub(super) fn for_application(name: &str, host: Host) -> Self {
        static SETTINGS: LazyLock<Encoded<RouteConfiguration>> = LazyLock::new(|| {
            let settings = RouteConfiguration { validate_clusters: Some(false.into()), ..Default::default() };
            Encoded::new(&settings)
        });
        Self { name: name.into(), shared: Arc::default(), own: vec![host], settings: SETTINGS.clone() }
    }

    /// A table of an outbound or a gateway's listener, with virtual hosts of others before its own.
    pub(crate) fn usual(name: &str, shared: Arc<Vec<Host>>, own: Vec<Host>) -> Self {
        static SETTINGS: LazyLock<Encoded<RouteConfiguration>> =
            LazyLock::new(|| Encoded::new(&super::settings()));
        Self { name: name.into(), shared, own, settings: SETTINGS.clone() }
    }

    /// Whether it has at most one virtual host.
    pub(super) fn is_small(&self) -> bool {
        self.shared.len() + self.own.len() <= 1
    }

    /// The resource that it is.
    pub(super) fn to_resource(&self) -> Resource {
        pool::ROUTES.share(Resource::new(self.name.clone(), self.encode()))
    }

    /// The encoded table.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let size = self.hosts().map(Host::size_in_table).sum::<usize>();
        let name = route_configuration::NAME.text_size(self.name.len());
        let mut table = ProtoWriter::with_capacity(name + size + self.settings.len());
        self.write(&mut table);
        table.into_vec()
    }

    /// Adds the fields of the table.
    pub(crate) fn write(&self, table: &mut ProtoWriter<RouteConfiguration>) {
        table.string(route_configuration::NAME, &self.name);
        self.hosts().for_each(|host| host.write(table));
        table.append(&self.settings);
    }

    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.shared.iter().chain(&self.own)
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::Message;
    use canopus_proto::envoy::config::route::v3::VirtualHost;

    use super::*;

    #[test]
    fn table_is_encoded_as_the_message_it_stands_for() {
        let host = |name: &str| VirtualHost {
            name: name.into(),
            domains: vec![name.into(), String::new()],
            require_tls: 1,
            ..Default::default()
        };
        let shared = Arc::new(vec![host("a").into(), host(&"b".repeat(300)).into()]);
        let table = Table::usual("80", shared, vec![host("c").into()]);
        let message = RouteConfiguration {
            name: "80".into(),
            virtual_hosts: vec![host("a"), host(&"b".repeat(300)), host("c")],
            ..crate::route_config::settings()
        };
        assert_eq!(table.encode(), message.encode_to_vec());
    }
}
