//! A cluster while it is put together.
//!
//! A mesh has one cluster for each port of each service and each subset, so they are encoded with as few messages as possible:
//! fields that nearly every cluster has are written in place, what never differs is encoded once for the process, and only
//! what few clusters have is set on a message ([`Draft::rest`]).

use std::sync::LazyLock;

use canopus_proto::envoy::config::cluster::v3::Cluster;
use canopus_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy,
};
use canopus_proto::envoy::config::core::v3::http1_protocol_options::HeaderKeyFormat;
use canopus_proto::envoy::config::core::v3::http1_protocol_options::header_key_format::HeaderFormat;
use canopus_proto::envoy::config::core::v3::{
    Http1ProtocolOptions, Http2ProtocolOptions, TypedExtensionConfig,
};
use canopus_proto::envoy::extensions::http::header_formatters::preserve_case::v3::PreserveCaseFormatterConfig;
use canopus_proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use canopus_proto::envoy::extensions::upstreams::http::v3::http_protocol_options::explicit_http_config::ProtocolConfig;
use canopus_proto::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig,
};
use canopus_proto::fields::{cluster, eds_cluster_config};
use canopus_proto::google::protobuf::Duration;
use canopus_proto::resource::Resource;
use canopus_proto::wire::{Encoded, ProtoWriter, packed_size};
use canopus_proto::{Any, Message};

use super::connection_pool::Limits;
use super::metadata::Metadata;
use super::transport::{self, MeshSocket};
use crate::endpoint::Group;
use crate::names;
use crate::pool;

/// The key of a cluster's HTTP options.
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Room for what most clusters are encoded to.
const USUAL_SIZE: usize = 2048;

/// Endpoint discovery on the same stream.
static ASK_HERE: LazyLock<Encoded<EdsClusterConfig>> = LazyLock::new(|| {
    Encoded::new(&EdsClusterConfig { eds_config: Some(names::ads()), ..Default::default() })
});

/// A cluster and its HTTP options.
///
/// Fields that nearly every cluster has are written in place; the others are set on a message.
pub(super) struct Draft {
    pub(super) name: String,
    /// Name in statistics, if it differs from `name`.
    pub(super) stat_name: Option<String>,
    /// How it finds its endpoints.
    pub(super) discovery: ClusterDiscoveryType,
    /// How long a connection may take to be opened.
    pub(super) connect_timeout: Option<Duration>,
    /// Which endpoint is chosen.
    pub(super) lb_policy: LbPolicy,
    /// How much it takes.
    pub(super) limits: Option<Limits>,
    /// Whether it resolves the name each request carries.
    pub(super) is_forward_proxy: bool,
    /// Groups of the endpoints that the cluster holds, where priorities follow labels.
    pub(super) held: Vec<Group>,
    /// The socket for endpoints that take the mesh's mutual TLS, where all others are spoken to in plain text.
    pub(super) if_mutual: Option<MeshSocket>,
    pub(super) metadata: Metadata,
    balancing: Option<CommonLbConfig>,
    http: Http,
    /// Fields that few clusters have.
    rest: Option<Box<Cluster>>,
    /// Fields that nothing can change any more.
    body: ProtoWriter<Cluster>,
}

impl Draft {
    /// A cluster of a name, of which nothing else is known.
    pub(super) fn new(name: String, discovery: ClusterDiscoveryType) -> Self {
        let mut body = ProtoWriter::with_capacity(USUAL_SIZE);
        body.string(cluster::NAME, &name);
        Self {
            name,
            stat_name: None,
            discovery,
            connect_timeout: None,
            lb_policy: LbPolicy::default(),
            limits: None,
            is_forward_proxy: false,
            held: Vec::new(),
            if_mutual: None,
            metadata: Metadata::default(),
            balancing: None,
            http: Http::default(),
            rest: None,
            body,
        }
    }

    /// A cluster that finds its endpoints in one of Envoy's own ways.
    pub(super) fn with_discovery(name: impl Into<String>, discovery: DiscoveryType) -> Self {
        Self::new(name.into(), ClusterDiscoveryType::Type(discovery as i32))
    }

    /// How it finds its endpoints; static for ways that are not Envoy's own.
    pub(super) fn discovery(&self) -> DiscoveryType {
        match self.discovery {
            ClusterDiscoveryType::Type(discovery) => DiscoveryType::try_from(discovery).unwrap_or_default(),
            ClusterDiscoveryType::ClusterType(_) => DiscoveryType::Static,
        }
    }

    /// Whether it goes where the client wanted to go.
    pub(super) fn is_original_destination(&self) -> bool {
        self.discovery() == DiscoveryType::OriginalDst
    }

    /// Whether endpoints that fail are left alone.
    pub(super) fn detects_outliers(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.outlier_detection.is_some())
    }

    /// The message for fields that few clusters have.
    pub(super) fn rest(&mut self) -> &mut Cluster {
        self.rest.get_or_insert_default()
    }

    /// Load balancing options, created on first use.
    pub(super) fn balancing(&mut self) -> &mut CommonLbConfig {
        self.balancing.get_or_insert_default()
    }

    /// HTTP options, created on first use.
    pub(super) fn http(&mut self) -> &mut HttpProtocolOptions {
        self.http.options()
    }

    /// Whether it has HTTP options so far.
    pub(super) fn has_http(&self) -> bool {
        self.http.usual.is_some() || self.http.said.is_some()
    }

    /// Replaces its HTTP options by some that are encoded already, as a field of a cluster.
    pub(super) fn use_http_options(&mut self, encoded: &Encoded<Cluster>) {
        self.http = Http::default();
        self.body.append(encoded);
    }

    /// Speaks HTTP/2, unless another protocol has been chosen.
    pub(super) fn use_http2(&mut self) {
        match &mut self.http.said {
            Some(options) => _ = options.upstream_protocol_options.get_or_insert_with(http2),
            None => _ = self.http.usual.get_or_insert(Usual::Version2),
        }
    }

    /// Speaks HTTP/1 and keeps the case of headers.
    pub(super) fn keep_header_case(&mut self) {
        let options = ProtocolConfig::HttpProtocolOptions(case_keeping());
        self.http().upstream_protocol_options = Some(explicit(options));
    }

    /// Speaks what the client speaks.
    pub(super) fn follow_client(&mut self) {
        let Some(options) = &mut self.http.said else {
            self.http.usual = Some(Usual::Following);
            return;
        };
        let http1 = match &options.upstream_protocol_options {
            Some(UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::HttpProtocolOptions(options)),
            })) => options.clone(),
            _ => Http1ProtocolOptions::default(),
        };
        options.upstream_protocol_options = Some(following(http1));
    }

    /// Whether it speaks HTTP/2 and nothing else.
    pub(super) fn speaks_http2(&self) -> bool {
        let said = self.http.said.as_ref().and_then(|options| options.upstream_protocol_options.as_ref());
        let is_said = matches!(
            said,
            Some(UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(_)),
            }))
        );
        is_said || self.http.usual == Some(Usual::Version2)
    }

    /// The options of HTTP/2, if that is what it speaks.
    pub(super) fn http2(&mut self) -> Option<&mut Http2ProtocolOptions> {
        if !self.speaks_http2() {
            return None;
        }
        match &mut self.http().upstream_protocol_options {
            Some(UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(options)),
            })) => Some(options),
            _ => None,
        }
    }

    /// Asks the control plane for endpoints if its type says so. To be done once the type is certain.
    pub(super) fn ask_for_endpoints(&mut self) {
        if self.discovery() == DiscoveryType::Eds {
            self.body.nested(cluster::EDS_CLUSTER_CONFIG, |config| {
                config.append(&*ASK_HERE);
                config.string(eds_cluster_config::SERVICE_NAME, &self.name);
            });
        }
    }

    /// Where fields are written that nothing changes any more. Repeated ones come before those of [`Self::rest`].
    pub(super) fn body(&mut self) -> &mut ProtoWriter<Cluster> {
        &mut self.body
    }

    /// The finished cluster, encoded: a message is its fields, one after another.
    pub(super) fn encode(mut self) -> Resource {
        self.write_usual();
        self.write_http();
        let body = &mut self.body;
        if let Some(rest) = &self.rest {
            body.append_message(rest);
        }
        if let Some(socket) = &self.if_mutual {
            transport::write_matches(body, socket);
        }
        self.metadata.write(body);
        pool::CLUSTERS.share(Resource::new(self.name, self.body.as_slice().to_vec()))
    }

    fn write_usual(&mut self) {
        let discovery = self.discovery();
        let body = &mut self.body;
        match &self.discovery {
            ClusterDiscoveryType::Type(_) => body.enumeration(cluster::TYPE, discovery),
            ClusterDiscoveryType::ClusterType(custom) => body.message(cluster::CLUSTER_TYPE, custom),
        }
        if let Some(timeout) = &self.connect_timeout {
            body.message(cluster::CONNECT_TIMEOUT, timeout);
        }
        body.enumeration(cluster::LB_POLICY, self.lb_policy);
        if let Some(limits) = &self.limits {
            limits.write(body);
        }
        if let Some(balancing) = &self.balancing {
            body.message(cluster::COMMON_LB_CONFIG, balancing);
        }
        let stat_name = self.stat_name.as_deref().unwrap_or(&self.name);
        body.string_of_parts(cluster::ALT_STAT_NAME, &[stat_name, ";"]);
    }

    fn write_http(&mut self) {
        match self.http.usual {
            Some(Usual::Version2) => self.body.append(&*VERSION2),
            Some(Usual::Following) => self.body.append(&*FOLLOWING),
            None => {}
        }
        let Some(options) = &mut self.http.said else { return };
        // Envoy insists on a protocol.
        let http1 = || explicit(ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default()));
        options.upstream_protocol_options.get_or_insert_with(http1);
        write_http_options(&mut self.body, options);
    }
}

/// The HTTP options of a cluster; those that most clusters have are encoded once.
#[derive(Default)]
struct Http {
    /// Options that only choose a protocol; `None` once there are others.
    usual: Option<Usual>,
    said: Option<Box<HttpProtocolOptions>>,
}

/// The protocol of options that choose nothing else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Usual {
    /// HTTP/2.
    Version2,
    /// What the client speaks.
    Following,
}

impl Http {
    /// The options, to be changed.
    fn options(&mut self) -> &mut HttpProtocolOptions {
        let upstream_protocol_options = self.usual.take().map(|usual| match usual {
            Usual::Version2 => http2(),
            Usual::Following => following(Http1ProtocolOptions::default()),
        });
        let options = || HttpProtocolOptions { upstream_protocol_options, ..Default::default() };
        self.said.get_or_insert_with(|| Box::new(options()))
    }
}

/// HTTP/2, as a field of a cluster.
static VERSION2: LazyLock<Encoded<Cluster>> = LazyLock::new(|| only(http2()));
/// What the client speaks, as a field of a cluster.
static FOLLOWING: LazyLock<Encoded<Cluster>> =
    LazyLock::new(|| only(following(Http1ProtocolOptions::default())));

/// HTTP options that choose a protocol and say no more, as a field of a cluster.
fn only(protocol: UpstreamProtocolOptions) -> Encoded<Cluster> {
    let mut field = ProtoWriter::default();
    let options = HttpProtocolOptions { upstream_protocol_options: Some(protocol), ..Default::default() };
    write_http_options(&mut field, &options);
    field.finish()
}

/// Writes HTTP options as the field of a cluster they are.
pub(super) fn write_http_options(fields: &mut ProtoWriter<Cluster>, options: &HttpProtocolOptions) {
    let length = options.encoded_len();
    let any = packed_size::<HttpProtocolOptions>(length);
    fields.entry_of_exactly(cluster::TYPED_EXTENSION_PROTOCOL_OPTIONS, HTTP_OPTIONS, any, |any| {
        any.pack_of_exactly(length, |fields| fields.append_message(options));
    });
}

/// HTTP/2.
fn http2() -> UpstreamProtocolOptions {
    explicit(ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default()))
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
