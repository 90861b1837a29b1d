//! A route table before it is encoded.

use std::sync::Arc;

use canopus_proto::Message;
use canopus_proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

/// How a virtual host begins in an encoded table: field 2, with its length before it.
const VIRTUAL_HOST: u8 = 2 << 3 | 2;

/// A route table, of which some virtual hosts may be shared with other tables.
pub(crate) struct Table {
    /// The first virtual hosts.
    pub(crate) shared: Arc<Vec<VirtualHost>>,
    /// The other virtual hosts, and all else.
    pub(crate) own: RouteConfiguration,
}

impl Table {
    /// The encoded table. An encoded list is its entries one after the other, so nothing need be copied to be encoded.
    pub(crate) fn encode(mut self) -> Vec<u8> {
        let name = std::mem::take(&mut self.own.name);
        let mut bytes = RouteConfiguration { name, ..Default::default() }.encode_to_vec();
        for host in self.shared.iter() {
            bytes.push(VIRTUAL_HOST);
            host.encode_length_delimited(&mut bytes).expect("a vector grows as needed");
        }
        self.own.encode(&mut bytes).expect("a vector grows as needed");
        bytes
    }

    /// The table as one message.
    pub(crate) fn into_message(mut self) -> RouteConfiguration {
        let own = std::mem::take(&mut self.own.virtual_hosts);
        self.own.virtual_hosts = self.shared.iter().cloned().chain(own).collect();
        self.own
    }
}

impl From<RouteConfiguration> for Table {
    fn from(own: RouteConfiguration) -> Self {
        Self { shared: Arc::default(), own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_encoded_as_the_message_it_stands_for() {
        let host = |name: &str| VirtualHost { name: name.into(), ..Default::default() };
        let table = || Table {
            shared: Arc::new(vec![host("a"), host("b")]),
            own: RouteConfiguration {
                name: "80".into(),
                virtual_hosts: vec![host("c")],
                validate_clusters: Some(false.into()),
                ignore_port_in_host_matching: true,
                ..Default::default()
            },
        };
        let message = table().into_message();
        assert_eq!(message.virtual_hosts.len(), 3);
        assert_eq!(table().encode(), message.encode_to_vec());
    }
}
