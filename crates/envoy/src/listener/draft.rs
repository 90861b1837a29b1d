//! Listeners whose filter chains are encoded as they are put together.

use bytes::Bytes;
use canopus_proto::envoy::config::core::v3::{CidrRange, Metadata};
use canopus_proto::envoy::config::listener::v3::Listener;
use canopus_proto::google::protobuf::{Duration, UInt32Value};
use canopus_proto::resource::Resource;

use crate::network::Filters;
use crate::pieces::Pieces;
use crate::pool;

/// Room for what a listener says besides its chains.
const USUAL_REST: usize = 512;
/// Room for what a chain says besides its filters and its socket.
const USUAL_CHAIN: usize = 256;

/// The fields of a listener that do not stand behind its chains.
mod field {
    pub(super) const NAME: u32 = 1;
    pub(super) const ADDRESS: u32 = 2;
    pub(super) const FILTER_CHAINS: u32 = 3;
    pub(super) const DEFAULT_FILTER_CHAIN: u32 = 25;
}

/// The fields of a filter chain; its filters are fields already.
mod chain_field {
    pub(super) const MATCH: u32 = 1;
    pub(super) const METADATA: u32 = 5;
    pub(super) const TRANSPORT_SOCKET: u32 = 6;
    pub(super) const NAME: u32 = 7;
    pub(super) const CONNECT_TIMEOUT: u32 = 9;
}

/// The fields of what a chain matches.
mod match_field {
    pub(super) const PREFIX_RANGES: u32 = 3;
    pub(super) const DESTINATION_PORT: u32 = 8;
    pub(super) const TRANSPORT_PROTOCOL: u32 = 9;
    pub(super) const APPLICATION_PROTOCOLS: u32 = 10;
    pub(super) const SERVER_NAMES: u32 = 11;
}

/// A filter chain, without its filters.
#[derive(Default)]
pub(crate) struct FilterChain<'a> {
    /// Its name, if it has one.
    pub(crate) name: &'a str,
    /// The connections it takes; all if not said.
    pub(crate) matched: Option<Match<'a>>,
    /// The object that asks for it.
    pub(crate) metadata: Option<Metadata>,
    /// What lies between the network and the filters, encoded.
    pub(crate) socket: Option<Bytes>,
    /// How long a client may take for its handshake.
    pub(crate) handshake_timeout: Option<Duration>,
}

/// The connections that a chain takes.
#[derive(Clone, Default)]
pub(crate) struct Match<'a> {
    /// The addresses they were made to.
    pub(crate) ranges: Vec<CidrRange>,
    /// The port they were made to; any if 0.
    pub(crate) port: u32,
    /// What carries them.
    pub(crate) transport: &'static str,
    /// What is spoken on them, as inspectors find it.
    pub(crate) protocols: &'static [&'static str],
    /// The names TLS clients ask for.
    pub(crate) server_names: Vec<&'a str>,
}

impl Match<'_> {
    fn write(&self, fields: &mut Pieces) {
        self.ranges.iter().for_each(|range| fields.message(match_field::PREFIX_RANGES, range));
        if self.port > 0 {
            fields.message(match_field::DESTINATION_PORT, &UInt32Value::from(self.port));
        }
        fields.text(match_field::TRANSPORT_PROTOCOL, self.transport);
        for protocol in self.protocols {
            fields.body(match_field::APPLICATION_PROTOCOLS, protocol.as_bytes());
        }
        for name in &self.server_names {
            fields.body(match_field::SERVER_NAMES, name.as_bytes());
        }
    }

    /// The same for two that match the same.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut fields = Pieces::default();
        self.write(&mut fields);
        fields.into_vec()
    }
}

impl FilterChain<'_> {
    fn write(&self, filters: &Filters, fields: &mut Pieces) {
        if let Some(matched) = &self.matched {
            fields.nested(chain_field::MATCH, |fields| matched.write(fields));
        }
        fields.append(filters.as_slice());
        if let Some(metadata) = &self.metadata {
            fields.message(chain_field::METADATA, metadata);
        }
        if let Some(socket) = &self.socket {
            fields.body(chain_field::TRANSPORT_SOCKET, socket);
        }
        fields.text(chain_field::NAME, self.name);
        if let Some(timeout) = &self.handshake_timeout {
            fields.message(chain_field::CONNECT_TIMEOUT, timeout);
        }
    }

    fn usual_size(&self, filters: &Filters) -> usize {
        filters.as_slice().len() + self.socket.as_ref().map_or(0, Bytes::len) + USUAL_CHAIN
    }
}

/// The chains of a listener, encoded as they are added.
#[derive(Default)]
pub(crate) struct FilterChains {
    /// Those that are tried first, as fields of the listener.
    chains: Pieces,
    /// The fields of the chain that takes what no other does.
    default: Option<Pieces>,
}

impl FilterChains {
    /// Adds a chain.
    pub(crate) fn add(&mut self, chain: &FilterChain<'_>, filters: &Filters) {
        let size = chain.usual_size(filters);
        self.chains.reserve(size);
        self.chains.nested_of(size, field::FILTER_CHAINS, |fields| chain.write(filters, fields));
    }

    /// Makes a chain the one that takes what no other does; if there is no other, it is the only one.
    pub(crate) fn set_default(&mut self, chain: &FilterChain<'_>, filters: &Filters) {
        let mut fields = Pieces::with_capacity(chain.usual_size(filters));
        chain.write(filters, &mut fields);
        self.default = Some(fields);
    }

    /// Whether there are chains, and none that takes what these do not.
    pub(crate) fn leave_gaps(&self) -> bool {
        self.chains.len() > 0 && self.default.is_none()
    }

    /// Whether there are none at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.chains.len() == 0 && self.default.is_none()
    }

    /// A listener that has them: `address` adds its address, `rest` all fields but that, its name and its chains.
    pub(crate) fn in_listener(
        &self,
        name: &str,
        address: impl FnOnce(&mut Pieces, u32),
        rest: impl FnOnce(&mut Pieces),
    ) -> Resource {
        let default = self.default.as_ref().map_or(&[][..], Pieces::as_slice);
        let mut all = Pieces::with_capacity(self.chains.len() + default.len() + USUAL_REST);
        all.text(field::NAME, name);
        address(&mut all, field::ADDRESS);
        all.append(self.chains.as_slice());
        if self.default.is_some() && self.chains.len() == 0 {
            all.body(field::FILTER_CHAINS, default);
        }
        rest(&mut all);
        if self.default.is_some() && self.chains.len() > 0 {
            all.body(field::DEFAULT_FILTER_CHAIN, default);
        }
        pool::LISTENERS.share(Resource::new(name, all.into_vec()))
    }
}

/// A listener in the making.
pub(crate) struct Draft {
    /// All of it but its chains.
    pub(crate) listener: Box<Listener>,
    /// Its chains.
    pub(crate) chains: FilterChains,
}

impl Draft {
    /// A listener without chains.
    pub(crate) fn new(listener: Listener) -> Self {
        Self { listener: Box::new(listener), chains: FilterChains::default() }
    }

    /// Adds a chain.
    pub(crate) fn add(&mut self, chain: &FilterChain<'_>, filters: &Filters) {
        self.chains.add(chain, filters);
    }

    /// The listener.
    pub(crate) fn encode(mut self) -> Resource {
        let name = std::mem::take(&mut self.listener.name);
        let address = self.listener.address.take();
        let write_address = |all: &mut Pieces, field: u32| {
            address.iter().for_each(|address| all.message(field, address));
        };
        self.chains.in_listener(&name, write_address, |all| all.fields(&*self.listener))
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::Message;
    use canopus_proto::envoy::config::core::v3::TransportSocket;
    use canopus_proto::envoy::config::listener::v3 as message;
    use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;

    use super::*;
    use crate::listener::address;
    use crate::names;

    fn listener() -> Listener {
        Listener {
            name: "0.0.0.0_80".into(),
            address: Some(address::bind("0.0.0.0", 80)),
            bind_to_port: Some(false.into()),
            continue_on_listener_filters_timeout: true,
            ..Default::default()
        }
    }

    fn filters() -> Filters {
        let mut filters = Filters::default();
        filters.add("tcp", &TcpProxy { stat_prefix: "x".repeat(200), ..Default::default() });
        filters
    }

    fn chain() -> FilterChain<'static> {
        FilterChain {
            name: "chain",
            matched: Some(Match {
                ranges: address::range_of("10.0.0.0/8").into_iter().collect(),
                port: 8080,
                transport: "tls",
                protocols: &["h2", "http/1.1"],
                server_names: vec!["a.com", "b.com"],
            }),
            metadata: Some(names::config_metadata("sidecar", "ns", "name")),
            socket: Some(TransportSocket { name: "tls".into(), ..Default::default() }.encode_to_vec().into()),
            handshake_timeout: Some(Duration::from_secs(15)),
        }
    }

    fn decoded(draft: Draft) -> Listener {
        Listener::decode(draft.encode().body).unwrap()
    }

    #[test]
    fn listener_says_what_its_draft_and_chains_do() {
        let mut draft = Draft::new(listener());
        draft.add(&chain(), &filters());
        let filters = message::FilterChain::decode(filters().as_slice()).unwrap().filters;
        let written = message::FilterChain {
            name: "chain".into(),
            filter_chain_match: Some(message::FilterChainMatch {
                prefix_ranges: address::range_of("10.0.0.0/8").into_iter().collect(),
                destination_port: Some(8080.into()),
                transport_protocol: "tls".into(),
                application_protocols: vec!["h2".into(), "http/1.1".into()],
                server_names: vec!["a.com".into(), "b.com".into()],
                ..Default::default()
            }),
            filters,
            metadata: Some(names::config_metadata("sidecar", "ns", "name")),
            transport_socket: Some(TransportSocket { name: "tls".into(), ..Default::default() }),
            transport_socket_connect_timeout: Some(Duration::from_secs(15)),
            ..Default::default()
        };
        assert_eq!(decoded(draft), Listener { filter_chains: vec![written], ..listener() });
    }

    #[test]
    fn default_chain_is_the_only_one_unless_there_are_others() {
        let takes_all = FilterChain { name: "all", ..Default::default() };
        let mut alone = Draft::new(listener());
        assert!(alone.chains.is_empty() && !alone.chains.leave_gaps());
        alone.chains.set_default(&takes_all, &Filters::default());
        let alone = decoded(alone);
        assert_eq!((alone.filter_chains.len(), alone.default_filter_chain), (1, None));

        let mut last = Draft::new(listener());
        last.add(&chain(), &filters());
        assert!(last.chains.leave_gaps());
        last.chains.set_default(&takes_all, &Filters::default());
        let last = decoded(last);
        let names = last.filter_chains.iter().chain(&last.default_filter_chain).map(|chain| &chain.name);
        assert_eq!(names.collect::<Vec<_>>(), ["chain", "all"]);
    }
}
