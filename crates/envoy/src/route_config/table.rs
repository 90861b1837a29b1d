//! A route table before it is encoded.

use std::sync::Arc;

use canopus_proto::Message;
use canopus_proto::envoy::config::route::v3::RouteConfiguration;

use super::Host;
use crate::pieces::Pieces;

/// The fields of a table that stand before all others.
mod field {
    pub(super) const NAME: u32 = 1;
    pub(super) const VIRTUAL_HOSTS: u32 = 2;
}

/// Room for what is small.
const ROOM: usize = 64;

/// A route table, of which some virtual hosts may be shared with other tables.
pub(crate) struct Table {
    /// Its name.
    pub(crate) name: String,
    /// The first virtual hosts.
    pub(crate) shared: Arc<Vec<Host>>,
    /// The other virtual hosts.
    pub(crate) own: Vec<Host>,
    /// Everything else.
    pub(crate) settings: RouteConfiguration,
}

impl Table {
    /// A table that shares nothing.
    pub(crate) fn new(name: &str, own: Vec<Host>, settings: RouteConfiguration) -> Self {
        Self { name: name.to_owned(), shared: Arc::default(), own, settings }
    }

    /// The encoded table.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let hosts = self.shared.iter().chain(&self.own);
        let mut table =
            Pieces::with_capacity(hosts.clone().map(Host::size).sum::<usize>() + self.name.len() + ROOM);
        table.text(field::NAME, &self.name);
        for host in hosts {
            table.body(field::VIRTUAL_HOSTS, host.encode().as_slice());
        }
        table.fields(&self.settings);
        table.into_vec()
    }

    /// The table as one message.
    pub(crate) fn into_message(self) -> RouteConfiguration {
        RouteConfiguration::decode(self.encode().as_slice()).expect("what was just encoded")
    }
}

#[cfg(test)]
mod tests {
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
        let settings = RouteConfiguration {
            validate_clusters: Some(false.into()),
            ignore_port_in_host_matching: true,
            ..Default::default()
        };
        let table = Table {
            name: "80".into(),
            shared: Arc::new(vec![host("a").into(), host("b").into()]),
            own: vec![host("c").into()],
            settings: settings.clone(),
        };
        let message = RouteConfiguration {
            name: "80".into(),
            virtual_hosts: vec![host("a"), host("b"), host("c")],
            ..settings
        };
        assert_eq!(table.encode(), message.encode_to_vec());
        assert_eq!(table.into_message(), message);
    }
}
