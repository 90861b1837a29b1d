//! Network filters: what handles the bytes of a connection.

pub(crate) mod pipeline;
pub(crate) mod protocols;
pub(crate) mod tcp;

use canopus_proto::envoy::config::listener::v3::Filter;
use canopus_proto::{Any, Message, Name};

use crate::audience::ListenerAudience;
use crate::pieces::Pieces;
use crate::telemetry::peer_metadata;

/// The field of a filter chain that lists its filters.
const FILTERS: u32 = 3;

/// The fields of a filter, and of a configuration of any type.
mod field {
    pub(super) const NAME: u32 = 1;
    pub(super) const TYPED_CONFIG: u32 = 4;
    pub(super) const TYPE_URL: u32 = 1;
}

/// The filters of a chain, encoded as they are added.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filters(Pieces);

impl Filters {
    /// None yet, with room for so many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Pieces::with_capacity(bytes))
    }

    /// Adds a filter under its well-known name.
    pub(crate) fn add<M: Message + Name>(&mut self, name: &str, config: &M) {
        self.write(name, &M::type_url(), &|fields| fields.fields(config));
    }

    /// Adds a filter whose configuration is packed already.
    pub(crate) fn add_packed(&mut self, name: &str, config: &Any) {
        self.write_of(config.value.len(), name, &config.type_url, &|fields| fields.append(&config.value));
    }

    /// Adds a filter whose configuration is of a type and written in place.
    pub(crate) fn write(&mut self, name: &str, type_url: &str, config: &dyn Fn(&mut Pieces)) {
        self.write_of(0, name, type_url, config);
    }

    /// The same of a configuration that is about so many bytes.
    pub(crate) fn write_of(
        &mut self,
        bytes: usize,
        name: &str,
        type_url: &str,
        config: &dyn Fn(&mut Pieces),
    ) {
        self.0.reserve(bytes + name.len() + type_url.len());
        self.0.nested_of(bytes, FILTERS, |filter| {
            filter.text(field::NAME, name);
            filter.nested_of(bytes, field::TYPED_CONFIG, |any| {
                any.text(field::TYPE_URL, type_url);
                any.value_of_any(bytes, config);
            });
        });
    }

    /// Adds a filter of another sort.
    pub(crate) fn push(&mut self, filter: &Filter) {
        self.0.message(FILTERS, filter);
    }

    /// Adds filters that are put together already.
    pub(crate) fn append(&mut self, others: &Self) {
        self.0.append(others.as_slice());
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// The fields of the chain that they are.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// What makes a text in filter state count for connection pools. Older proxies of Istio and those of others know only
/// texts that do not.
pub(crate) fn hashable_string(audience: &ListenerAudience) -> &'static str {
    let known = audience.gates.hashable_filter_state && peer_metadata::is_known(&audience.build);
    if known { "istio.hashable_string" } else { "envoy.string" }
}

#[cfg(test)]
mod tests {
    use canopus_proto::envoy::config::listener::v3::FilterChain;
    use canopus_proto::envoy::config::listener::v3::filter::ConfigType;
    use canopus_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;

    use super::*;

    #[test]
    fn filters_are_the_list_of_a_chain() {
        // One of no bytes is a configuration too.
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
