//! Listeners whose filter chains are encoded as they are put together.

use canopus_proto::envoy::config::core::v3::{CidrRange, Metadata, TransportSocket};
use canopus_proto::envoy::config::listener::v3::{self as message, Listener};
use canopus_proto::fields::{filter_chain, filter_chain_match, listener};
use canopus_proto::google::protobuf::{Duration, UInt32Value};
use canopus_proto::resource::Resource;
use canopus_proto::wire::{Encoded, ProtoWriter};

use crate::filter::Filters;
use crate::pool;

/// Room for a listener without its chains.
const USUAL_REST: usize = 512;
/// Room for a chain without its filters and its socket.
const USUAL_CHAIN: usize = 256;

/// A filter chain, without its filters.
#[derive(Default)]
pub(crate) struct FilterChain<'a> {
    pub(crate) name: &'a str,
    /// The connections it takes; `None` takes all.
    pub(crate) matched: Option<Match<'a>>,
    /// The object that asks for it.
    pub(crate) metadata: Option<Metadata>,
    /// What lies between the network and the filters, encoded.
    pub(crate) socket: Option<Encoded<TransportSocket>>,
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
    fn write(&self, fields: &mut ProtoWriter<message::FilterChainMatch>) {
        self.ranges.iter().for_each(|range| fields.message(filter_chain_match::PREFIX_RANGES, range));
        if self.port > 0 {
            fields.message(filter_chain_match::DESTINATION_PORT, &UInt32Value::from(self.port));
        }
        fields.string(filter_chain_match::TRANSPORT_PROTOCOL, self.transport);
        for protocol in self.protocols {
            fields.string(filter_chain_match::APPLICATION_PROTOCOLS, protocol);
        }
        for name in &self.server_names {
            fields.string(filter_chain_match::SERVER_NAMES, name);
        }
    }

    /// The same for two that match the same.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut fields = ProtoWriter::default();
        self.write(&mut fields);
        fields.into_vec()
    }
}

impl FilterChain<'_> {
    fn write(&self, filters: &Filters, fields: &mut ProtoWriter<message::FilterChain>) {
        if let Some(matched) = &self.matched {
            fields.nested(filter_chain::FILTER_CHAIN_MATCH, |fields| matched.write(fields));
        }
        fields.append(filters);
        if let Some(metadata) = &self.metadata {
            fields.message(filter_chain::METADATA, metadata);
        }
        if let Some(socket) = &self.socket {
            fields.encoded(filter_chain::TRANSPORT_SOCKET, socket);
        }
        fields.string(filter_chain::NAME, self.name);
        if let Some(timeout) = &self.handshake_timeout {
            fields.message(filter_chain::TRANSPORT_SOCKET_CONNECT_TIMEOUT, timeout);
        }
    }

    fn usual_size(&self, filters: &Filters) -> usize {
        filters.len() + self.socket.as_ref().map_or(0, Encoded::len) + USUAL_CHAIN
    }
}

/// The chains of a listener, encoded as they are added.
#[derive(Default)]
pub(crate) struct FilterChains {
    /// Chains that are tried first, as fields of the listener.
    chains: ProtoWriter<Listener>,
    /// The fields of the chain that takes what no other does.
    default: Option<ProtoWriter<message::FilterChain>>,
}

impl FilterChains {
    /// Adds a chain.
    pub(crate) fn add(&mut self, chain: &FilterChain<'_>, filters: &Filters) {
        let size = chain.usual_size(filters);
        self.chains.reserve(size);
        self.chains.nested_of_about(listener::FILTER_CHAINS, size, |fields| chain.write(filters, fields));
    }

    /// Makes a chain the one that takes what no other does; if there is no other, it is the only one.
    pub(crate) fn set_default(&mut self, chain: &FilterChain<'_>, filters: &Filters) {
        let mut fields = ProtoWriter::with_capacity(chain.usual_size(filters));
        chain.write(filters, &mut fields);
        self.default = Some(fields);
    }

    /// Whether there are chains, and none that takes what these do not.
    pub(crate) fn leave_gaps(&self) -> bool {
        !self.chains.is_empty() && self.default.is_none()
    }

    /// Whether there are none at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.default.is_none()
    }

    /// A listener that has them: `address` adds its address, `rest` all fields but that, its name and its chains.
    pub(crate) fn in_listener(
        &self,
        name: &str,
        address: impl FnOnce(&mut ProtoWriter<Listener>),
        rest: impl FnOnce(&mut ProtoWriter<Listener>),
    ) -> Resource {
        let default = self.default.as_ref().map_or(0, ProtoWriter::len);
        let mut all = ProtoWriter::with_capacity(self.chains.len() + default + USUAL_REST);
        all.string(listener::NAME, name);
        address(&mut all);
        all.append(&self.chains);
        let (only, last) = match self.chains.is_empty() {
            true => (self.default.as_ref(), None),
            false => (None, self.default.as_ref()),
        };
        only.iter().for_each(|chain| all.encoded(listener::FILTER_CHAINS, *chain));
        rest(&mut all);
        last.iter().for_each(|chain| all.encoded(listener::DEFAULT_FILTER_CHAIN, *chain));
        pool::LISTENERS.share(Resource::new(name, all.into_vec()))
    }
}

/// A listener in the making.
pub(crate) struct Draft {
    /// All of it but its chains.
    pub(crate) listener: Box<Listener>,
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
        let write_address = |all: &mut ProtoWriter<Listener>| {
            address.iter().for_each(|address| all.message(listener::ADDRESS, address));
        };
        self.chains.in_listener(&name, write_address, |all| all.append_message(&self.listener))
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::Message;
    use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
    use canopus_proto::wire::EncodedFields as _;

    use super::*;
    use crate::address;
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
            socket: Some(Encoded::new(&TransportSocket { name: "tls".into(), ..Default::default() })),
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
