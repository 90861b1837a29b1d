//! Filters of connections and of requests: how one is configured under its name, whatever it does.

use canopus_proto::envoy::config::listener::v3::{Filter, FilterChain};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter::ConfigType,
};
use canopus_proto::fields::{filter, filter_chain};
use canopus_proto::wire::{EncodedFields, ProtoWriter, TypeUrl};
use canopus_proto::{Any, Message, Name};

/// A filter of requests under its well-known name.
pub(crate) fn http_filter<M: Message + Name>(name: &str, config: &M) -> HttpFilter {
    packed_http_filter(name, Any::pack(config))
}

/// A filter of requests whose configuration is packed already.
pub(crate) fn packed_http_filter(name: &str, config: Any) -> HttpFilter {
    HttpFilter { name: name.into(), config_type: Some(ConfigType::TypedConfig(config)), ..Default::default() }
}

/// Room for the type URL of a configuration.
const USUAL_URL: usize = 96;

/// The network filters of a filter chain, encoded as they are added.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filters(ProtoWriter<FilterChain>);

impl Filters {
    /// No filters, with room for so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(ProtoWriter::with_capacity(bytes))
    }

    /// Adds a filter under its well-known name.
    pub(crate) fn add<M: Message + Name>(&mut self, name: &str, config: &M) {
        self.write(name, 0, |any| any.pack(config));
    }

    /// Adds a filter whose configuration is packed already.
    pub(crate) fn add_packed(&mut self, name: &str, config: &Any) {
        self.write(name, config.encoded_len(), |any| any.append_message(config));
    }

    /// Adds a filter whose configuration, of about so many bytes, is written in place.
    pub(crate) fn add_in_place<M: TypeUrl>(
        &mut self,
        name: &str,
        bytes: usize,
        config: impl FnOnce(&mut ProtoWriter<M>),
    ) {
        self.write(name, bytes, |any| any.pack_of_about(bytes, config));
    }

    fn write(&mut self, name: &str, bytes: usize, config: impl FnOnce(&mut ProtoWriter<Any>)) {
        self.0.reserve(bytes + name.len() + USUAL_URL);
        self.0.nested_of_about(filter_chain::FILTERS, bytes, |fields| {
            fields.string(filter::NAME, name);
            fields.nested_of_about(filter::TYPED_CONFIG, bytes, config);
        });
    }

    /// Adds a filter that is not configured by a message of its own.
    pub(crate) fn push(&mut self, filter: &Filter) {
        self.0.message(filter_chain::FILTERS, filter);
    }

    /// Adds filters that are put together already.
    pub(crate) fn append(&mut self, others: &Self) {
        self.0.append(&others.0);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// How many bytes they take.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl EncodedFields<FilterChain> for Filters {
    fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::listener::v3::filter::ConfigType;
    use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;

    use super::*;

    #[test]
    fn filters_are_the_list_of_a_chain() {
        // An empty configuration is a configuration too.
        let config = |length: usize| TcpProxy { stat_prefix: "x".repeat(length), ..Default::default() };
        let filter = |length: usize| Filter {
            name: "tcp".into(),
            config_type: Some(ConfigType::TypedConfig(Any::pack(&config(length)))),
        };
        let mut written = Filters::default();
        assert!(written.is_empty());
        written.add("tcp", &config(0));
        written.add_packed("tcp", &Any::pack(&config(300)));
        let mut all = written.clone();
        all.append(&written);
        all.push(&filter(2));
        let chain = FilterChain { filters: [0, 300, 0, 300, 2].map(filter).to_vec(), ..Default::default() };
        assert_eq!(all.as_slice(), chain.encode_to_vec());
    }
}
