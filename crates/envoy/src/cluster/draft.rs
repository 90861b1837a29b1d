//! A cluster while it is put together.

use std::sync::LazyLock;

use bytes::Bytes;
use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig,
};
use canopus_proto::envoy::config::core::v3::http1_protocol_options::HeaderKeyFormat;
use canopus_proto::envoy::config::core::v3::http1_protocol_options::header_key_format::HeaderFormat;
use canopus_proto::envoy::config::core::v3::{
    Http1ProtocolOptions, Http2ProtocolOptions, TransportSocket, TypedExtensionConfig,
};
use canopus_proto::envoy::extensions::http::header_formatters::preserve_case::v3::PreserveCaseFormatterConfig;
use canopus_proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use canopus_proto::envoy::extensions::upstreams::http::v3::http_protocol_options::explicit_http_config::ProtocolConfig;
use canopus_proto::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig,
};
use canopus_proto::{Any, Message};

use canopus_proto::resource::Resource;

use super::metadata::Metadata;
use super::transport;
use crate::endpoint::Group;
use crate::names;
use crate::pieces::Pieces;

/// The key of a cluster's HTTP options.
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Room for what most clusters are encoded to.
const USUAL_SIZE: usize = 2048;

/// Fields that are written in place.
mod field {
    pub(super) const EDS_CLUSTER_CONFIG: u32 = 3;
    /// Of the configuration of endpoint discovery.
    pub(super) const SERVICE_NAME: u32 = 2;
    /// Room for what is said beside the name.
    pub(super) const SHORT: usize = 32;
}

/// Endpoint discovery on the same stream.
static ASK_HERE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    EdsClusterConfig { eds_config: Some(names::ads()), ..Default::default() }.encode_to_vec()
});

/// A cluster and its HTTP options, which go into it encoded.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    /// The cluster so far; apart, as it is large and handed around.
    pub(super) cluster: Box<Cluster>,
    /// Whether it resolves the name each request carries.
    pub(super) is_forward_proxy: bool,
    /// Those of the endpoints it holds that are ordered by their labels.
    pub(super) held: Vec<Group>,
    /// The socket for endpoints that take the mesh's mutual TLS, where all others are spoken to in plain text.
    pub(super) if_mutual: Option<TransportSocket>,
    /// Its metadata.
    pub(super) metadata: Metadata,
    http: Option<HttpProtocolOptions>,
    /// Fields that are encoded already, in the order they are added.
    encoded: Vec<Bytes>,
}

impl Draft {
    /// A cluster of a name, of which nothing else is known.
    pub(super) fn new(name: &str, discovery: ClusterDiscoveryType) -> Self {
        let cluster = Box::new(Cluster {
            name: name.to_owned(),
            alt_stat_name: names::stat_name(name),
            cluster_discovery_type: Some(discovery),
            ..Default::default()
        });
        Self {
            cluster,
            is_forward_proxy: false,
            held: Vec::new(),
            if_mutual: None,
            metadata: Metadata::default(),
            http: None,
            encoded: Vec::new(),
        }
    }

    /// A cluster that finds its endpoints in one of Envoy's own ways.
    pub(super) fn of_type(name: &str, discovery: DiscoveryType) -> Self {
        Self::new(name, ClusterDiscoveryType::Type(discovery as i32))
    }

    /// How it finds its endpoints; static for ways that are not Envoy's own.
    pub(super) fn discovery(&self) -> DiscoveryType {
        match self.cluster.cluster_discovery_type {
            Some(ClusterDiscoveryType::Type(discovery)) => {
                DiscoveryType::try_from(discovery).unwrap_or_default()
            }
            _ => DiscoveryType::Static,
        }
    }

    /// Whether it goes where the client wanted to go.
    pub(super) fn is_original_destination(&self) -> bool {
        self.discovery() == DiscoveryType::OriginalDst
    }

    /// Its load balancing options.
    pub(super) fn balancing(&mut self) -> &mut CommonLbConfig {
        self.cluster.common_lb_config.get_or_insert_default()
    }

    /// Its HTTP options.
    pub(super) fn http(&mut self) -> &mut HttpProtocolOptions {
        self.http.get_or_insert_default()
    }

    /// Speaks HTTP/2, unless another protocol has been chosen.
    pub(super) fn use_http2(&mut self) {
        let options = explicit(ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default()));
        self.http().upstream_protocol_options.get_or_insert(options);
    }

    /// Speaks HTTP/1 and keeps the case of headers.
    pub(super) fn keep_header_case(&mut self) {
        let options = ProtocolConfig::HttpProtocolOptions(case_keeping());
        self.http().upstream_protocol_options = Some(explicit(options));
    }

    /// Speaks what the client speaks.
    pub(super) fn follow_client(&mut self) {
        let http1 = match &self.http().upstream_protocol_options {
            Some(UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::HttpProtocolOptions(options)),
            })) => options.clone(),
            _ => Http1ProtocolOptions::default(),
        };
        self.http().upstream_protocol_options = Some(following(http1));
    }

    /// The options of HTTP/2, if that is what it speaks.
    pub(super) fn http2(&mut self) -> Option<&mut Http2ProtocolOptions> {
        match &mut self.http.as_mut()?.upstream_protocol_options {
            Some(UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(options)),
            })) => Some(options),
            _ => None,
        }
    }

    /// Asks the control plane for endpoints if its type says so. To be done once the type is certain.
    pub(super) fn ask_for_endpoints(&mut self) {
        if self.discovery() == DiscoveryType::Eds {
            let mut fields = Pieces::with_capacity(self.cluster.name.len() + field::SHORT);
            fields.nested(field::EDS_CLUSTER_CONFIG, |config| {
                config.append(&ASK_HERE);
                config.text(field::SERVICE_NAME, &self.cluster.name);
            });
            self.add(fields.into_vec().into());
        }
    }

    /// Adds fields that are encoded already. Repeated ones come after those of the cluster so far.
    pub(super) fn add(&mut self, fields: Bytes) {
        self.encoded.push(fields);
    }

    /// The finished cluster, if it has neither metadata nor fields that are encoded already.
    pub(super) fn finish(mut self) -> Cluster {
        self.settle();
        *self.cluster
    }

    /// The finished cluster, encoded: a message is its fields, one after another.
    pub(super) fn encode(mut self) -> Resource {
        self.settle();
        let mut body = Pieces::with_capacity(USUAL_SIZE);
        body.fields(&*self.cluster);
        if let Some(socket) = &self.if_mutual {
            transport::write_matches(&mut body, socket);
        }
        self.metadata.write(&mut body);
        self.encoded.iter().for_each(|fields| body.append(fields));
        Resource::new(self.cluster.name, body.as_slice().to_vec())
    }

    /// Puts the HTTP options in their place.
    fn settle(&mut self) {
        if let Some(mut http) = self.http.take() {
            // Envoy insists on a protocol.
            let http1 = || explicit(ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default()));
            http.upstream_protocol_options.get_or_insert_with(http1);
            self.cluster.typed_extension_protocol_options = http_options(&http);
        }
    }
}

/// HTTP options as a cluster has them.
pub(super) fn http_options(options: &HttpProtocolOptions) -> std::collections::BTreeMap<String, Any> {
    [(HTTP_OPTIONS.to_owned(), Any::pack(options))].into()
}

/// A fixed protocol.
pub(super) fn explicit(protocol: ProtocolConfig) -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig { protocol_config: Some(protocol) })
}

/// Whatever the client speaks.
pub(super) fn following(http1: Http1ProtocolOptions) -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
        http_protocol_options: Some(http1),
        http2_protocol_options: Some(Http2ProtocolOptions::default()),
        ..Default::default()
    })
}

/// HTTP/1 with headers in the case they came in.
pub(super) fn case_keeping() -> Http1ProtocolOptions {
    let formatter = TypedExtensionConfig {
        name: "preserve_case".to_owned(),
        typed_config: Some(Any::pack(&PreserveCaseFormatterConfig::default())),
    };
    Http1ProtocolOptions {
        header_key_format: Some(HeaderKeyFormat {
            header_format: Some(HeaderFormat::StatefulFormatter(formatter)),
        }),
        ..Default::default()
    }
}
